// Package deploy_test keeps what is shipped true to the code: files that no compiler reads.
package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/client-go/kubernetes/scheme"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim/ram"
)

// manifests are the objects of all files, decoded by the rule of the API server that unknown fields are errors.
func manifests(t *testing.T) []runtime.Object {
	t.Helper()
	paths, err := filepath.Glob("manifests/*.yaml")
	require.NoError(t, err)
	optional, err := filepath.Glob("manifests/optional/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	require.NotEmpty(t, optional)
	var objects []runtime.Object
	for _, path := range append(paths, optional...) {
		file, err := os.Open(path)
		require.NoError(t, err)
		defer file.Close()
		objects = append(objects, decode(t, path, file)...)
	}
	return objects
}

// decode reads the objects of one stream.
func decode(t *testing.T, name string, stream io.ReadCloser) (objects []runtime.Object) {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := utilyaml.NewDocumentDecoder(stream)
	for buffer := make([]byte, 1<<20); ; {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err, name)
		if !strings.Contains(string(buffer[:n]), "kind:") { // the heading
			continue
		}
		object, _, err := decoder.Decode(inKnownVersion(buffer[:n]), nil, nil)
		require.NoError(t, err, name)
		objects = append(objects, object)
	}
}

// inKnownVersion has a MutatingAdmissionPolicy in the API version that this client-go knows, whose fields are the same.
func inKnownVersion(document []byte) []byte {
	const group, kind = "apiVersion: admissionregistration.k8s.io/", "\nkind: MutatingAdmissionPolicy"
	return bytes.Replace(document, []byte(group+"v1"+kind), []byte(group+"v1alpha1"+kind), 1)
}

// only returns the one object of the type.
func only[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, object := range objects {
		if object, ok := object.(T); ok {
			found = append(found, object)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// named returns the one object of the type that has the name.
func named[T interface {
	runtime.Object
	metav1.Object
}](t *testing.T, objects []runtime.Object, name string) T {
	t.Helper()
	return only[T](t, slices.DeleteFunc(slices.Clone(objects), func(object runtime.Object) bool {
		candidate, ok := object.(T)
		return !ok || candidate.GetName() != name
	}))
}

func TestWhatIsShippedRunsWithoutPrivileges(t *testing.T) {
	objects := manifests(t)
	for name, pod := range map[string]corev1.PodSpec{
		"the Deployment": only[*appsv1.Deployment](t, objects).Spec.Template.Spec,
		"the DaemonSet":  only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec,
	} {
		assert.True(t, *pod.SecurityContext.RunAsNonRoot, name)
		assert.EqualValues(t, "RuntimeDefault", pod.SecurityContext.SeccompProfile.Type, name)
		for _, container := range pod.Containers {
			assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem, name)
			assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation, name)
			assert.Contains(t, container.SecurityContext.Capabilities.Drop, corev1.Capability("ALL"), name)
			assert.False(t, container.Resources.Requests.Memory().IsZero(), name)
			assert.False(t, container.Resources.Limits.Memory().IsZero(), name)
			assert.NotNil(t, container.LivenessProbe, name)
			assert.NotNil(t, container.ReadinessProbe, name)
		}
	}
}

func TestTheRoleHasNoWildcards(t *testing.T) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range manifests(t) {
		switch role := object.(type) {
		case *rbacv1.ClusterRole:
			rules["ClusterRole "+role.Name] = role.Rules
		case *rbacv1.Role:
			rules["Role "+role.Name] = role.Rules
		}
	}
	require.Len(t, rules, 13)
	assert.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "patch"}}},
		rules["ClusterRole gpu-spot-autoscaler-node-agent"])
	for name, rules := range rules {
		for _, rule := range rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				assert.NotContains(t, list, "*", "%s: %v", name, rule)
			}
			assert.NotContains(t, rule.Resources, "secrets", name)
			assert.NotContains(t, rule.Verbs, "deletecollection", name)
		}
	}
}

// Roles cannot tell a label from an image, so that policies have to be there for whatever the role lets the autoscaler write,
// and for whoever has the role.
func TestPoliciesBoundWhateverTheAutoscalerMayWrite(t *testing.T) {
	unbounded := map[string]string{
		"events create": "they are said in its name", "events patch": "they are said in its name",
		"pods delete": "those that no eviction moves", "pods/eviction create": "PodDisruptionBudgets bound it",
		"scaleins delete": "what has yet to begin", "scaleouts delete": "what has yet to begin",
	}
	operations := map[string]admissionv1.OperationType{
		"create": admissionv1.Create, "update": admissionv1.Update, "patch": admissionv1.Update, "delete": admissionv1.Delete,
	}
	objects := render(t, "serviceAccount.name=other")
	const name = "gpu-spot-autoscaler"
	policies := boundPolicies(t, objects, "system:serviceaccount:kube-system:other")
	assert.Equal(t, "other", named[*rbacv1.ClusterRoleBinding](t, objects, name).Subjects[0].Name)
	assert.Equal(t, policies, boundPolicies(t, objects, "system:serviceaccount:kube-system:"+releaseAll), "the hook of helm uninstall")
	written := 0
	for _, rule := range slices.Concat(named[*rbacv1.ClusterRole](t, objects, name).Rules, named[*rbacv1.ClusterRole](t, objects, releaseAll).Rules) {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				operation, writes := operations[verb]
				if !writes || unbounded[resource+" "+verb] != "" {
					continue
				}
				written++
				assert.True(t, slices.ContainsFunc(policies, func(policy *admissionv1.ValidatingAdmissionPolicy) bool {
					return slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(bound admissionv1.NamedRuleWithOperations) bool {
						return slices.Equal(bound.APIGroups, rule.APIGroups) && slices.Contains(bound.Resources, resource) && slices.Contains(bound.Operations, operation)
					})
				}), "no policy says what of %s %s it may %s", rule.APIGroups, resource, verb)
			}
		}
	}
	assert.NotZero(t, written)
}

// boundPolicies are those for what the user asks, which must deny wherever that is.
func boundPolicies(t *testing.T, objects []runtime.Object, user string) (policies []*admissionv1.ValidatingAdmissionPolicy) {
	t.Helper()
	for _, object := range objects {
		policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		if condition := policy.Spec.MatchConditions[0]; condition.Name == "somebody-else" || !strings.Contains(condition.Expression, strconv.Quote(user)) {
			continue
		}
		binding := named[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, policy.Name)
		assert.Equal(t, policy.Name, binding.Spec.PolicyName)
		assert.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, binding.Spec.ValidationActions, policy.Name)
		assert.Nil(t, binding.Spec.MatchResources, policy.Name)
		assert.Equal(t, admissionv1.Fail, *policy.Spec.FailurePolicy, policy.Name)
		policies = append(policies, policy)
	}
	return policies
}

func TestThePoliciesKnowTheKeysOfTheAutoscaler(t *testing.T) {
	text, err := helm(t, "admission.autoscaler.otherKeys={example.org/a,example.org/b}")
	require.NoError(t, err)
	for _, known := range []string{
		fmt.Sprintf("key.startsWith(%q)", api.Prefix), strconv.Quote(api.TaintReclaim), strconv.Quote(taints.ToBeDeletedTaint),
		strconv.Quote(taints.DeletionCandidateTaint), strconv.Quote(api.AnnotationSupervisorSuspended), strconv.Quote(api.AnnotationSupervisorStatus),
		strconv.Quote(api.LabelPool) + " in object.metadata", `'["example.org/a","example.org/b"]'`,
	} {
		assert.Contains(t, string(text), known)
	}
	_, err = helm(t, "region=cn-hangzhou[.]|")
	assert.ErrorContains(t, err, "is none, such as cn-hangzhou", "it becomes part of an expression")
}

func TestWhatIsDisabledIsNotGranted(t *testing.T) {
	for value, resources := range map[string][]string{
		"provisioningRequests.enabled":      {"provisioningrequests", "provisioningrequests/status", "podtemplates"},
		"dynamicResourceAllocation.enabled": {"deviceclasses", "resourceclaims", "resourceslices"},
	} {
		for _, resource := range resources {
			assert.True(t, granted(render(t, value+"=true")).Has(resource), "%s with %s", resource, value)
			assert.False(t, granted(render(t)).Has(resource), "%s without %s", resource, value)
		}
	}
}

// granted are the resources that the cluster roles of the autoscaler name.
func granted(objects []runtime.Object) sets.Set[string] {
	resources := sets.New[string]()
	for _, object := range objects {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			for _, rule := range role.Rules {
				resources.Insert(rule.Resources...)
			}
		}
	}
	return resources
}

func TestTheMutatingPolicyIsInTheAPIVersionOfTheCluster(t *testing.T) {
	for kubernetes, want := range map[string]string{
		"1.33.13": "v1alpha1", "1.34.0": "v1beta1", "1.35.4-aliyun.1": "v1beta1", "1.36.0": "v1", "1.36.1-aliyun.1": "v1", "1.37.0": "v1",
	} {
		text, err := helmFor(t, kubernetes, "admission.keepOffReclaiming.enabled=true")
		require.NoError(t, err, kubernetes)
		versions := regexp.MustCompile(`apiVersion: admissionregistration\.k8s\.io/(\w+)\nkind: MutatingAdmissionPolicy`).FindAllStringSubmatch(string(text), -1)
		require.Len(t, versions, 3, "a policy and two bindings")
		assert.Equal(t, sets.New(want), firstGroups(versions), "Kubernetes %s", kubernetes)
	}
	_, err := helmFor(t, "1.31.9", "admission.keepOffReclaiming.enabled=true")
	assert.ErrorContains(t, err, "needs Kubernetes 1.32 or newer")
}

func TestTheRAMPolicyAllowsWhatTheAutoscalerCallsAndNoMore(t *testing.T) {
	policy, launchPolicy := ramPolicy(t, "ram-policy.json"), ramPolicy(t, "ram-policy-run-instances.json")
	called := sets.New[string]()
	request := regexp.MustCompile(`\b(ess|ecs|vpc)api\.Create(\w+)Request\(`)
	for _, match := range inSource(t, request, "../cloudprovider/alicloud") {
		called.Insert(match[1] + ":" + match[2])
	}
	require.NotEmpty(t, called)
	onlyContract := sets.New("ecs:DescribeSpotAdvice") // docs/contract.md has a policy of its own
	onlyLaunch := sets.New("ecs:RunInstances", "ecs:DeleteInstances", "ess:AttachInstances")
	onlyDoctor := sets.New("ecs:DescribeAccountAttributes") // docs/doctor.md has what it needs besides
	assert.Equal(t, sets.List(called.Difference(onlyContract).Difference(onlyLaunch).Difference(onlyDoctor)), policy.Actions())
	assert.Equal(t, sets.List(onlyLaunch.Union(sets.New("ram:PassRole"))), launchPolicy.Actions(), "RunInstances passes the role of the nodes on")

	operations, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	_, calls, found := strings.Cut(string(operations), "## Calls to Alibaba Cloud\n")
	require.True(t, found)
	calls, _, _ = strings.Cut(calls, "\n## ")
	for action := range called {
		_, name, _ := strings.Cut(action, ":")
		assert.Regexp(t, `(?m)^\|.*\b`+name+`\b`, calls, "%s: whether it is documented, and what happens where it fails", action)
	}
}

func TestTheRAMPolicyOfADryRunAllowsTheReadsOfTheOtherAndNothingElse(t *testing.T) {
	var reads []string
	for _, action := range ramPolicy(t, "ram-policy.json").Actions() {
		if _, name, _ := strings.Cut(action, ":"); strings.HasPrefix(name, "Describe") {
			reads = append(reads, action)
		}
	}
	assert.Equal(t, reads, ramPolicy(t, "ram-policy-dry-run.json").Actions())
}

// Nothing that is not tagged for the cluster is bought for or given back.
func TestTheRAMPolicyBindsWritesToTheDiscoveryTag(t *testing.T) {
	policy, tagged := ramPolicy(t, "ram-policy.json"), map[string]string{"k8s.io/cluster-autoscaler/my-cluster": "owned"}
	clusterName := regexp.MustCompile(`--cluster-name=(\S+)`).FindStringSubmatch(strings.Join(
		only[*appsv1.Deployment](t, manifests(t)).Spec.Template.Spec.Containers[0].Args, "\n"))
	assert.Equal(t, "my-cluster", clusterName[1], "all that is shipped names the same cluster")
	writes := 0
	for _, action := range policy.Actions() {
		_, name, _ := strings.Cut(action, ":")
		reads := strings.HasPrefix(name, "Describe")
		assert.True(t, policy.Allows(ram.Access{Action: action, ResourceTags: tagged}), action)
		assert.Equal(t, reads, policy.Allows(ram.Access{Action: action}), action)
		assert.Equal(t, reads, policy.Allows(ram.Access{Action: action, ResourceTags: map[string]string{"k8s.io/cluster-autoscaler/other": "owned"}}), action)
		if !reads {
			writes++
		}
	}
	assert.Equal(t, 2, writes)
}

// What is created and released past the scaling groups has the tag of the cluster too, and only roles of workers are passed on.
func TestThePolicyForRunInstancesBindsWritesToTheDiscoveryTag(t *testing.T) {
	policy := ramPolicy(t, "ram-policy-run-instances.json")
	tagged, other := map[string]string{"k8s.io/cluster-autoscaler/my-cluster": "owned"}, map[string]string{"k8s.io/cluster-autoscaler/other": "owned"}
	assert.True(t, policy.Allows(ram.Access{Action: "ecs:RunInstances", RequestTags: tagged}))
	assert.False(t, policy.Allows(ram.Access{Action: "ecs:RunInstances", RequestTags: other, ResourceTags: tagged}))
	for _, action := range []string{"ecs:DeleteInstances", "ess:AttachInstances"} {
		assert.True(t, policy.Allows(ram.Access{Action: action, ResourceTags: tagged}), action)
		assert.False(t, policy.Allows(ram.Access{Action: action, ResourceTags: other}), action)
		assert.False(t, policy.Allows(ram.Access{Action: action}), action)
	}
	assert.True(t, policy.Allows(ram.Access{Action: "ram:PassRole", Role: "KubernetesWorkerRole-1", Service: "ecs.aliyuncs.com"}))
	assert.False(t, policy.Allows(ram.Access{Action: "ram:PassRole", Role: "AliyunAdmin", Service: "ecs.aliyuncs.com"}))
	assert.False(t, policy.Allows(ram.Access{Action: "ram:PassRole", Role: "KubernetesWorkerRole-1", Service: "fc.aliyuncs.com"}))
}

func ramPolicy(t *testing.T, name string) *ram.Policy {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	policy, err := ram.Parse(text)
	require.NoError(t, err)
	return policy
}

func TestTheAlertsWatchMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	name := regexp.MustCompile(`\bgpu_spot_\w+`)
	declared := sets.New[string]()
	for _, match := range inSource(t, regexp.MustCompile(`"(gpu_spot_\w+)"`), "..") {
		declared.Insert(match[1])
	}
	used := name.FindAllString(string(text), -1)
	require.NotEmpty(t, used)
	for _, metric := range used {
		plain := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(metric, "")
		assert.True(t, declared.Has(metric) || declared.Has(plain), "%s is declared nowhere", metric)
	}
}

// inSource finds the pattern in the Go files below the directory that are not tests.
func inSource(t *testing.T, pattern *regexp.Regexp, directory string) [][]string {
	t.Helper()
	var found [][]string
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "out" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("reading the source: %w", err)
		}
		found = append(found, pattern.FindAllStringSubmatch(string(text), -1)...)
		return nil
	})
	require.NoError(t, err)
	return found
}
