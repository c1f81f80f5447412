package jobs

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// What is held is resumed and bought for, so that nobody else may say of a job that it is, whatever its system.
func TestTheMarksOfJobsOfEverySystemAreReserved(t *testing.T) {
	manifest, err := os.ReadFile("../../deploy/manifests/policies.yaml")
	require.NoError(t, err)
	policy := &admissionv1.ValidatingAdmissionPolicy{}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		if strings.Contains(document, "kind: ValidatingAdmissionPolicy\n") && strings.Contains(document, "name: gpu-spot-autoscaler-marks\n") {
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), policy))
		}
	}
	for _, adapter := range adapters(&cluster{}) {
		resource := adapter.Resource()
		assert.True(t, slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, resource.Group) && slices.Contains(rule.Resources, resource.Resource) &&
				slices.Contains(rule.Operations, admissionv1.Create) && slices.Contains(rule.Operations, admissionv1.Update)
		}), "those of %s", resource.GroupResource())
	}
	job := Job{Object: parse(t, `{kind: Job, metadata: {name: held}}`), Parts: []Ref{refOf("raycluster", "part")}}
	marks := newWorld(t).registry.systems[0].(*trainingJob).held(job, HeldSuspended, ReasonReclaim)
	values := map[string]string{}
	for _, variable := range policy.Spec.Variables {
		values[variable.Name] = variable.Expression
	}
	assert.Equal(t, strconv.Quote(api.LabelHeld), values["label"])
	for key := range marks["annotations"].(map[string]any) {
		assert.Contains(t, values["notes"], "key.startsWith("+strconv.Quote(api.LabelHeld+"-")+")")
		assert.Contains(t, values["notes"], "key == "+strconv.Quote(api.AnnotationStopRequested))
		assert.True(t, strings.HasPrefix(key, api.LabelHeld+"-"), key)
	}
}
