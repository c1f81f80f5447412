package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	internalv1 "k8s.io/kubernetes/pkg/apis/admissionregistration/v1"
	"k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
)

// The expressions are compiled as an API server does before it takes a policy, by the module's own Kubernetes, which is the
// oldest that the end-to-end tests run on.
func TestThePoliciesAreTakenByTheOldestKubernetes(t *testing.T) {
	taken := 0
	for _, object := range manifests(t) {
		policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		internal := &admissionregistration.ValidatingAdmissionPolicy{}
		internalv1.SetDefaults_ValidatingAdmissionPolicySpec(&policy.Spec)
		internalv1.SetDefaults_MatchResources(policy.Spec.MatchConstraints)
		for i := range policy.Spec.MatchConstraints.ResourceRules {
			internalv1.SetDefaults_Rule(&policy.Spec.MatchConstraints.ResourceRules[i].Rule)
		}
		require.NoError(t, internalv1.Convert_v1_ValidatingAdmissionPolicy_To_admissionregistration_ValidatingAdmissionPolicy(policy, internal, nil), policy.Name)
		assert.Empty(t, validation.ValidateValidatingAdmissionPolicy(internal), policy.Name)
		taken++
	}
	assert.GreaterOrEqual(t, taken, 8)
}
