package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// releaseAll is the name of what helm uninstall creates first.
const releaseAll = "gpu-spot-autoscaler-release-all"

func TestHelmUninstallFirstRunsReleaseAllWithTheImageOfTheRelease(t *testing.T) {
	objects := render(t, "image.repository=mine/autoscaler", "image.tag=v9", "imagePullSecrets[0].name=reg", "nodeSelector.pool=system",
		"releaseAll.timeout=90s", "releaseAll.keepState=true")
	job, deployment := only[*batchv1.Job](t, objects), named[*appsv1.Deployment](t, objects, "gpu-spot-autoscaler")
	pod, replica := job.Spec.Template.Spec, deployment.Spec.Template.Spec
	assert.Equal(t, releaseAll, pod.ServiceAccountName)
	assert.Equal(t, replica.Containers[0].Image, pod.Containers[0].Image)
	assert.Equal(t, "mine/autoscaler:v9", pod.Containers[0].Image)
	assert.Equal(t, replica.ImagePullSecrets, pod.ImagePullSecrets)
	assert.Equal(t, replica.NodeSelector, pod.NodeSelector)
	assert.Equal(t, replica.Affinity, pod.Affinity, "not on a node that may be reclaimed")
	assert.Equal(t, replica.Tolerations, pod.Tolerations)
	assert.Equal(t, []string{
		"release-all", "--autoscaler-namespace=kube-system", "--autoscaler-name=gpu-spot-autoscaler", "--timeout=90s", "--keep-state",
	}, pod.Containers[0].Args)

	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	require.NoError(t, err)
	assert.False(t, selector.Matches(labels.Set(job.Spec.Template.Labels)), "it would wait for its own end")
	for _, policy := range []bool{*pod.SecurityContext.RunAsNonRoot, *pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem, !*pod.Containers[0].SecurityContext.AllowPrivilegeEscalation} {
		assert.True(t, policy)
	}
	assert.False(t, pod.Containers[0].Resources.Limits.Memory().IsZero())
}

func TestTheRightsOfReleaseAllExistOnlyDuringHelmUninstall(t *testing.T) {
	objects := render(t)
	weights := map[string]string{}
	for _, object := range objects {
		meta, ok := object.(metav1.Object)
		if !ok || meta.GetName() != releaseAll {
			continue
		}
		annotations := meta.GetAnnotations()
		assert.Equal(t, "pre-delete", annotations["helm.sh/hook"], "%T", object)
		policies := strings.Split(annotations["helm.sh/hook-delete-policy"], ",")
		assert.ElementsMatch(t, []string{"before-hook-creation", "hook-succeeded"}, policies, "%T", object)
		_, kind, _ := strings.Cut(fmt.Sprintf("%T", object), ".")
		weights[kind] = annotations["helm.sh/hook-weight"]
	}
	assert.Equal(t, map[string]string{
		"ServiceAccount": "-10", "ClusterRole": "-10", "ClusterRoleBinding": "-10", "Role": "-10", "RoleBinding": "-10", "Job": "0",
	}, weights)

	for _, rule := range slices.Concat(named[*rbacv1.ClusterRole](t, objects, releaseAll).Rules, named[*rbacv1.Role](t, objects, releaseAll).Rules) {
		for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
			assert.NotContains(t, list, "*", "%v", rule)
		}
		assert.NotContains(t, rule.Resources, "secrets")
		assert.NotContains(t, rule.Verbs, "watch")
		if slices.Contains(rule.Verbs, "delete") {
			assert.NotSubset(t, []string{"nodes", "pods"}, rule.Resources, "it deletes neither")
		}
	}
	for _, object := range render(t, "releaseAll.enabled=false") {
		if meta, ok := object.(metav1.Object); ok {
			assert.NotEqual(t, releaseAll, meta.GetName())
		}
	}
	for _, object := range manifests(t) {
		if account, ok := object.(*corev1.ServiceAccount); ok {
			assert.NotEqual(t, releaseAll, account.Name, "without Helm there is no hook")
		}
	}
}

func TestADryRunHasALeaseOfItsOwnAndTakesNothingOffTheCluster(t *testing.T) {
	objects := render(t, "dryRun.enabled=true")
	deployment := only[*appsv1.Deployment](t, objects)
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--dry-run")
	lease := named[*rbacv1.Role](t, objects, deployment.Name+"-dry-run")
	assert.Equal(t, []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{deployment.Name + "-dry-run"}, Verbs: []string{"get", "update"},
	}}, lease.Rules)
	named[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, deployment.Name+"-dry-run")
	text, err := helm(t, "dryRun.enabled=true")
	require.NoError(t, err)
	assert.NotContains(t, string(text), "release-all")
	assert.NotContains(t, string(text), "name: "+deployment.Name+"-marks", "the autoscaler beside it may hold jobs")
	assert.Contains(t, string(text), `request.name == "`+deployment.Name+`-dry-run"`, "no policy keeps it from its lease")
	assert.NotContains(t, string(text), `request.name == "`+deployment.Name+`"`)
	_, err = helm(t, "dryRun.enabled=true", "nodeAgent.enabled=true")
	assert.ErrorContains(t, err, "dryRun.enabled: the node-agent writes to Nodes")
}

func TestImagesArePulledFromTheRegistryThatIsNamed(t *testing.T) {
	objects := render(t, "imageRegistry=registry-vpc.cn-hangzhou.aliyuncs.com/mirror/", "nodeAgent.enabled=true", "imagePullSecrets[0].name=reg")
	for _, pod := range []corev1.PodSpec{
		named[*appsv1.Deployment](t, objects, "gpu-spot-autoscaler").Spec.Template.Spec, only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec,
		only[*batchv1.Job](t, objects).Spec.Template.Spec,
	} {
		assert.Regexp(t, `^registry-vpc\.cn-hangzhou\.aliyuncs\.com/mirror/gpu-spot-(autoscaler|node-agent):0\.2\.0$`, pod.Containers[0].Image)
		assert.Equal(t, []corev1.LocalObjectReference{{Name: "reg"}}, pod.ImagePullSecrets)
	}
}
