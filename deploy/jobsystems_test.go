package deploy_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

// TestEveryJobSystemIsGrantedBoundAndExplained holds the chart and the docs to the list of job systems.
func TestEveryJobSystemIsGrantedBoundAndExplained(t *testing.T) {
	objects := manifests(t)
	text, err := os.ReadFile("../docs/jobs.md")
	require.NoError(t, err)
	for _, system := range systems.All(jobs.Cluster{Clock: clock.RealClock{}}) {
		group, resource := system.Resource().Group, system.Resource().Resource
		verbs := []string{"get", "list", "watch"}
		_, suspends := system.(jobs.Suspender)
		if suspends {
			verbs = append(verbs, "patch")
		}
		for _, verb := range verbs {
			assert.True(t, isGranted(objects, group, resource, verb), "no ClusterRole lets the autoscaler %s %s of %s: add it to rbac.yaml of the chart, and run make manifests", verb, resource, group)
		}
		if suspends {
			assert.True(t, isBound(objects, group, resource), "no admission policy bounds what the autoscaler writes on %s of %s: add it to the policy -jobs in policies.yaml of the chart, and run make manifests", resource, group)
		}
		assert.True(t, strings.Contains(strings.ToLower(string(text)), "`"+strings.TrimSuffix(resource, "s")),
			"docs/jobs.md does not explain %s: add rows to the tables of job systems and of their operators in the tests", resource)
	}
}

func TestHelmUninstallMayResumeTheJobsOfEverySystem(t *testing.T) {
	role := []runtime.Object{named[*rbacv1.ClusterRole](t, render(t), releaseAll)}
	for _, system := range systems.All(jobs.Cluster{Clock: clock.RealClock{}}) {
		if !mayHold(system) {
			continue
		}
		group, resource := system.Resource().Group, system.Resource().Resource
		for _, verb := range []string{"get", "list", "patch"} {
			assert.True(t, isGranted(role, group, resource, verb),
				"helm uninstall may not %s %s of %s, and would fail: add it to the ClusterRole in release-all.yaml of the chart", verb, resource, group)
		}
	}
}

func TestTheDocsListTheHeldJobsOfEverySystem(t *testing.T) {
	for _, page := range []string{"../docs/jobs.md", "../docs/zh-CN/jobs.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		command := regexp.MustCompile(`kubectl get (\S+) -A -l gpu-spot.autoscaling/held\n`).FindSubmatch(text)
		require.NotNil(t, command, page)
		listed := strings.Split(string(command[1]), ",")
		for _, system := range systems.All(jobs.Cluster{Clock: clock.RealClock{}}) {
			if !mayHold(system) {
				continue
			}
			resource := system.Resource().GroupResource()
			withGroup := slices.Contains(listed, resource.String())
			isJob := resource.Resource == "jobs" // kubectl takes it for that of Kubernetes
			assert.True(t, withGroup || !isJob && slices.Contains(listed, resource.Resource), "%s: add %s to the list of what is held", page, resource)
		}
	}
}

// mayHold returns whether jobs of the system can be held: suspended or shrunk.
func mayHold(system jobs.System) bool {
	_, suspends := system.(jobs.Suspender)
	_, resizes := system.(jobs.Resizer)
	return suspends || resizes
}

func isGranted(objects []runtime.Object, group, resource, verb string) bool {
	return slices.ContainsFunc(objects, func(object runtime.Object) bool {
		role, ok := object.(*rbacv1.ClusterRole)
		return ok && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
			return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb)
		})
	})
}

// isBound returns whether the policy on what the autoscaler writes to jobs matches the resource.
func isBound(objects []runtime.Object, group, resource string) bool {
	return slices.ContainsFunc(objects, func(object runtime.Object) bool {
		policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy)
		return ok && strings.HasSuffix(policy.Name, "-jobs") && slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(rule admissionv1.NamedRuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, group) && slices.Contains(rule.Resources, resource)
		})
	})
}
