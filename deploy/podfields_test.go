package deploy_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// podsOf returns the pods of the autoscaler, of its hook and of the node-agent.
func podsOf(t *testing.T, objects []runtime.Object) (replica, hook, agent corev1.PodTemplateSpec) {
	t.Helper()
	return only[*appsv1.Deployment](t, objects).Spec.Template, only[*batchv1.Job](t, objects).Spec.Template, only[*appsv1.DaemonSet](t, objects).Spec.Template
}

func TestPodsMeetTheRestrictedStandardUnlessTheyAreTold(t *testing.T) {
	replica, hook, agent := podsOf(t, render(t, "nodeAgent.enabled=true"))
	for name, pod := range map[string]corev1.PodSpec{"autoscaler": replica.Spec, "hook": hook.Spec, "node-agent": agent.Spec} {
		assert.Equal(t, &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, pod.Containers[0].SecurityContext, name)
		want := &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		if name == "node-agent" {
			want.FSGroup = nil
		}
		assert.Equal(t, want, pod.SecurityContext, name)
	}
}

// restricted-v2 refuses ids that are not of the range of the namespace, and sets its own where none are named.
func TestOpenShiftMayChooseTheUser(t *testing.T) {
	replica, hook, agent := podsOf(t, renderWith(t, `
securityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
containerSecurityContext: {runAsNonRoot: true}
nodeAgent: {enabled: true, securityContext: {runAsUser: null, runAsGroup: null}}
`))
	for name, pod := range map[string]corev1.PodSpec{"autoscaler": replica.Spec, "hook": hook.Spec, "node-agent": agent.Spec} {
		assert.Equal(t, &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, pod.SecurityContext, name)
		assert.False(t, *pod.Containers[0].SecurityContext.AllowPrivilegeEscalation, "what is not named stays: %s", name)
	}
	assert.True(t, *replica.Spec.Containers[0].SecurityContext.RunAsNonRoot)
}

func TestAnUpgradeFromAChartWithoutThemKeepsTheDefaults(t *testing.T) {
	want, wantHook, wantAgent := podsOf(t, render(t, "nodeAgent.enabled=true"))
	// As --reuse-values leaves them out.
	replica, hook, agent := podsOf(t, renderWith(t, `
securityContext: null
containerSecurityContext: null
rbac: null
nodeAgent: {enabled: true, securityContext: null, containerSecurityContext: null, serviceAccount: null, updateStrategy: null, tolerations: null, affinity: null}
`))
	assert.Equal(t, want.Spec, replica.Spec)
	assert.Equal(t, wantHook.Spec, hook.Spec)
	agent.Spec.SecurityContext.FSGroup = nil // it has no files that a group would own
	assert.Equal(t, wantAgent.Spec, agent.Spec)
}

func TestPodsAreOnTheNetworkThatTheyAreTold(t *testing.T) {
	objects := renderWith(t, `
hostNetwork: true
dnsConfig: {nameservers: [10.0.0.10], options: [{name: ndots, value: "1"}]}
hostAliases: [{ip: 10.0.0.1, hostnames: [ess.cn-hangzhou.aliyuncs.com]}]
nodeAgent: {enabled: true}
`)
	replica, hook, _ := podsOf(t, objects)
	for name, pod := range map[string]corev1.PodSpec{"autoscaler": replica.Spec, "hook": hook.Spec} {
		assert.True(t, pod.HostNetwork, name)
		assert.Equal(t, corev1.DNSClusterFirstWithHostNet, pod.DNSPolicy, "%s: ClusterFirst would be the node's", name)
		assert.Equal(t, []string{"10.0.0.10"}, pod.DNSConfig.Nameservers, name)
		assert.Equal(t, []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"ess.cn-hangzhou.aliyuncs.com"}}}, pod.HostAliases, name)
	}
	replica, hook, _ = podsOf(t, render(t, "nodeAgent.enabled=true", "hostNetwork=true", "dnsPolicy=Default"))
	assert.Equal(t, corev1.DNSDefault, replica.Spec.DNSPolicy)
	assert.Equal(t, corev1.DNSDefault, hook.Spec.DNSPolicy)
	replica, _, _ = podsOf(t, render(t, "nodeAgent.enabled=true"))
	assert.False(t, replica.Spec.HostNetwork)
	assert.Empty(t, replica.Spec.DNSPolicy)
}

func TestTheHookOfHelmUninstallHasWhatTheClusterAsksOfPods(t *testing.T) {
	_, hook, _ := podsOf(t, renderWith(t, `
nodeAgent: {enabled: true}
extraEnv: [{name: HTTPS_PROXY, value: proxy}]
extraEnvFrom: [{configMapRef: {name: proxy}}]
releaseAll: {podAnnotations: {sidecar.istio.io/inject: "false"}, podLabels: {team: ml}}
`))
	assert.Equal(t, map[string]string{"sidecar.istio.io/inject": "false"}, hook.Annotations)
	assert.Equal(t, "ml", hook.Labels["team"])
	assert.Equal(t, []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "proxy"}}, hook.Spec.Containers[0].Env)
	assert.Equal(t, "proxy", hook.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name)
}

func TestPodsMountTheirTokenWhateverTheirServiceAccountSays(t *testing.T) {
	objects := render(t, "nodeAgent.enabled=true", "serviceAccount.automountServiceAccountToken=false")
	assert.False(t, *named[*corev1.ServiceAccount](t, objects, "gpu-spot-autoscaler").AutomountServiceAccountToken)
	replica, hook, agent := podsOf(t, objects)
	for _, pod := range []corev1.PodTemplateSpec{replica, hook, agent} {
		assert.True(t, *pod.Spec.AutomountServiceAccountToken)
	}
	assert.Nil(t, named[*corev1.ServiceAccount](t, render(t), "gpu-spot-autoscaler").AutomountServiceAccountToken)
}

func TestFurtherFieldsOfTheUpstreamChartArrive(t *testing.T) {
	objects := render(t, "terminationGracePeriodSeconds=60", "revisionHistoryLimit=0", "rbac.annotations.owner=ml")
	deployment := only[*appsv1.Deployment](t, objects)
	assert.EqualValues(t, 60, *deployment.Spec.Template.Spec.TerminationGracePeriodSeconds)
	assert.Zero(t, *deployment.Spec.RevisionHistoryLimit)
	want := map[string]string{"owner": "ml"}
	assert.Equal(t, want, named[*rbacv1.ClusterRole](t, objects, "gpu-spot-autoscaler").Annotations)
	assert.Equal(t, want, named[*rbacv1.ClusterRoleBinding](t, objects, "gpu-spot-autoscaler").Annotations)
	assert.Equal(t, want, named[*rbacv1.Role](t, objects, "gpu-spot-autoscaler").Annotations)
	assert.Equal(t, want, named[*rbacv1.RoleBinding](t, objects, "gpu-spot-autoscaler").Annotations)

	for kind, field := range map[string]string{"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"} {
		monitor := unstructuredOf(t, kind, "serviceMonitor.enabled=true", "nodeAgent.enabled=true", "serviceMonitor.scrapeTimeout=7s")
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", field)
		require.NoError(t, err)
		assert.Equal(t, "7s", endpoints[0].(map[string]any)["scrapeTimeout"], kind)
	}
}

func TestTheNodeAgentHasTheFieldsOfADaemonSetThatOperatorsSet(t *testing.T) {
	objects := renderWith(t, `
nodeAgent:
  enabled: true
  extraEnv: [{name: HTTPS_PROXY, value: proxy}]
  nodeSelector: {pool: gpu}
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: spot, operator: Exists}]}]}}}
  updateStrategy: {type: OnDelete}
  revisionHistoryLimit: 2
  serviceAccount: {create: false, name: mine}
`)
	agent := only[*appsv1.DaemonSet](t, objects)
	assert.Equal(t, appsv1.OnDeleteDaemonSetStrategyType, agent.Spec.UpdateStrategy.Type)
	assert.EqualValues(t, 2, *agent.Spec.RevisionHistoryLimit)
	pod := agent.Spec.Template.Spec
	assert.Equal(t, map[string]string{"pool": "gpu"}, pod.NodeSelector)
	assert.Equal(t, []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}, pod.Tolerations)
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	require.Len(t, terms, 1)
	assert.Equal(t, "spot", terms[0].MatchExpressions[0].Key)
	assert.Contains(t, pod.Containers[0].Env, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "proxy"})

	assert.Equal(t, "mine", pod.ServiceAccountName)
	assert.Equal(t, "mine", named[*rbacv1.ClusterRoleBinding](t, objects, agent.Name).Subjects[0].Name)
	text, err := helm(t, "nodeAgent.enabled=true", "nodeAgent.serviceAccount.name=mine", "nodeAgent.serviceAccount.annotations.a=b")
	require.NoError(t, err)
	assert.Contains(t, string(text), `"system:serviceaccount:kube-system:mine"`, "the policy limits it by its name")
	for _, object := range objects {
		account, is := object.(*corev1.ServiceAccount)
		assert.False(t, is && account.Name == "mine", "the chart was told not to create it")
	}
	created := named[*corev1.ServiceAccount](t, render(t, "nodeAgent.enabled=true", "nodeAgent.serviceAccount.name=mine", "nodeAgent.serviceAccount.annotations.a=b"), "mine")
	assert.Equal(t, map[string]string{"a": "b"}, created.Annotations)
}

// renderWith is the whole chart with a file of values, in which null takes a value out.
func renderWith(t *testing.T, values string) []runtime.Object {
	t.Helper()
	return decode(t, "the chart", io.NopCloser(bytes.NewReader(helmWith(t, values))))
}

// helmWith renders the chart with a file of values.
func helmWith(t *testing.T, values string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(path, []byte(values), 0o600))
	text, err := helmRun(t, "template", "gpu-spot-autoscaler", "chart/gpu-spot-autoscaler", "--namespace=kube-system", "--kube-version=1.36.1",
		"--set=region=cn-hangzhou", "--set=clusterName=my-cluster", "--values="+path)
	require.NoError(t, err)
	return text
}
