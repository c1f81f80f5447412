package deploy_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// everything switches on whatever the chart can install and the types of this client know.
var everything = []string{
	"secureServing.enabled=true", "nodeAgent.enabled=true", "networkPolicy.enabled=true", "provisioningRequests.enabled=true",
	"admission.keepOffReclaiming.enabled=true", "push.enabled=true", "push.tlsSecretName=tls", "push.tokenSecretName=token",
}

func TestTwoReleasesHaveNoNameInCommon(t *testing.T) {
	ours, theirs := names(t, render(t, everything...)), names(t, render(t, append(everything, "fullnameOverride=other")...))
	assert.Len(t, theirs, len(ours))
	assert.Empty(t, ours.Intersection(theirs).UnsortedList())
}

// names returns kind and name of the objects.
func names(t *testing.T, objects []runtime.Object) sets.Set[string] {
	t.Helper()
	found := sets.New[string]()
	for _, object := range objects {
		accessor, err := meta.Accessor(object)
		require.NoError(t, err)
		found.Insert(object.GetObjectKind().GroupVersionKind().Kind + "/" + accessor.GetName())
	}
	return found
}

func TestARenamedReleaseRefersToItself(t *testing.T) {
	objects := render(t, append(everything, "fullnameOverride=other")...)
	deployment := named[*appsv1.Deployment](t, objects, "other")
	spec := deployment.Spec.Template.Spec
	assert.Equal(t, "other", spec.ServiceAccountName)
	assert.Contains(t, spec.Containers[0].Args, "--deployment-name=other")
	assert.Contains(t, spec.Containers[0].Args, "--leader-elect-resource-name=other")
	named[*corev1.ServiceAccount](t, objects, "other")
	assert.Equal(t, "other", named[*rbacv1.ClusterRoleBinding](t, objects, "other").Subjects[0].Name)
	text, err := helm(t, append(everything, "fullnameOverride=other")...)
	require.NoError(t, err)
	assert.NotRegexp(t, `system:serviceaccount:kube-system:gpu-spot-autoscaler`, string(text), "policies bind the ServiceAccount by its name")
}

func TestTheChartHasTheFieldsOfADeploymentThatOperatorsSet(t *testing.T) {
	objects := render(t, "nameOverride=spot", "commonLabels.team=ml", "deploymentAnnotations.owner=ml", "updateStrategy.type=Recreate", "revisionHistoryLimit=3",
		"dnsPolicy=Default", "extraEnvFrom[0].configMapRef.name=proxy", "extraVolumes[0].name=ca", "extraVolumes[0].configMap.name=ca",
		"extraVolumeMounts[0].name=ca", "extraVolumeMounts[0].mountPath=/etc/ssl/certs", "serviceAccount.create=false", "serviceAccount.name=mine",
		"extraObjects[0].apiVersion=v1", "extraObjects[0].kind=ConfigMap", "extraObjects[0].metadata.name=mine", "extraObjects[0].data.region=in {{ .Values.region }}")
	deployment := only[*appsv1.Deployment](t, objects)
	assert.Equal(t, "ml", deployment.Annotations["owner"])
	assert.Equal(t, appsv1.RecreateDeploymentStrategyType, deployment.Spec.Strategy.Type)
	assert.EqualValues(t, 3, *deployment.Spec.RevisionHistoryLimit)
	spec := deployment.Spec.Template.Spec
	assert.Equal(t, corev1.DNSDefault, spec.DNSPolicy)
	assert.Equal(t, "mine", spec.ServiceAccountName)
	assert.Equal(t, "proxy", spec.Containers[0].EnvFrom[0].ConfigMapRef.Name)
	assert.Equal(t, "/etc/ssl/certs", spec.Containers[0].VolumeMounts[0].MountPath)
	assert.Equal(t, "ca", spec.Volumes[0].Name)
	assert.Equal(t, "in cn-hangzhou", only[*corev1.ConfigMap](t, objects).Data["region"])
	for _, object := range objects {
		if _, extra := object.(*corev1.ConfigMap); extra {
			continue
		}
		accessor, err := meta.Accessor(object)
		require.NoError(t, err)
		assert.Equal(t, "ml", accessor.GetLabels()["team"], accessor.GetName())
		_, account := object.(*corev1.ServiceAccount)
		assert.False(t, account && accessor.GetName() == "mine", "the chart was told not to create it")
	}
}

func TestOperatorsSayHowPrometheusFindsTheAutoscaler(t *testing.T) {
	values := []string{"serviceMonitor.enabled=true", "alerts.enabled=true", "nodeAgent.enabled=true", "serviceMonitor.namespace=monitoring",
		"alerts.namespace=rules", "serviceMonitor.annotations.a=b", "serviceMonitor.relabelings[0].action=labeldrop",
		"serviceMonitor.metricRelabelings[0].action=drop", "service.annotations.c=d", "service.labels.e=f"}
	for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
		monitor := unstructuredOf(t, kind, values...)
		assert.Equal(t, "monitoring", monitor.GetNamespace())
		assert.Equal(t, map[string]string{"a": "b"}, monitor.GetAnnotations())
		found, _, err := unstructured.NestedStringSlice(monitor.Object, "spec", "namespaceSelector", "matchNames")
		require.NoError(t, err)
		assert.Equal(t, []string{"kube-system"}, found, "where the pods are")
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", map[string]string{"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}[kind])
		require.NoError(t, err)
		assert.Equal(t, []any{map[string]any{"action": "labeldrop"}}, endpoints[0].(map[string]any)["relabelings"])
		assert.Equal(t, []any{map[string]any{"action": "drop"}}, endpoints[0].(map[string]any)["metricRelabelings"])
	}
	assert.Equal(t, "rules", unstructuredOf(t, "PrometheusRule", values...).GetNamespace())
	service := unstructuredOf(t, "Service", values...)
	assert.Equal(t, map[string]string{"c": "d"}, service.GetAnnotations())
	assert.Equal(t, "f", service.GetLabels()["e"])
}

// unstructuredOf returns the only object of the kind that the chart renders, also of kinds that no client here knows.
func unstructuredOf(t *testing.T, kind string, values ...string) *unstructured.Unstructured {
	t.Helper()
	text, err := helm(t, values...)
	require.NoError(t, err)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	var found *unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
		if object.GetKind() == kind {
			require.Nil(t, found, "there is one %s", kind)
			found = object
		}
	}
	require.NotNil(t, found, kind)
	return found
}

func TestABudgetKeepsSoManyReplicasOrGivesSoManyUp(t *testing.T) {
	assert.Equal(t, 1, only[*policyv1.PodDisruptionBudget](t, render(t)).Spec.MaxUnavailable.IntValue())
	spec := only[*policyv1.PodDisruptionBudget](t, render(t, "replicas=3", "podDisruptionBudget.minAvailable=2")).Spec
	assert.Nil(t, spec.MaxUnavailable)
	assert.Equal(t, 2, spec.MinAvailable.IntValue())
}

func TestABudgetDoesNotKeepTheOneReplicaThatServesOnItsNode(t *testing.T) {
	objects := render(t, "replicas=2", "podDisruptionBudget.minAvailable=1", "serve.enabled=true", "serve.tlsSecretName=tls", "serve.clientCASecretName=clients")
	assert.EqualValues(t, 1, *only[*appsv1.Deployment](t, objects).Spec.Replicas)
	for _, object := range objects {
		_, isBudget := object.(*policyv1.PodDisruptionBudget)
		assert.False(t, isBudget)
	}
}

func TestContainersMayRunBeforeTheAutoscaler(t *testing.T) {
	spec := only[*appsv1.Deployment](t, render(t, "extraInitContainers[0].name=wait", "extraInitContainers[0].image=busybox")).Spec.Template.Spec
	require.Len(t, spec.InitContainers, 1)
	assert.Equal(t, "wait", spec.InitContainers[0].Name)
	assert.Equal(t, "autoscaler", spec.Containers[0].Name)
}

func TestReplicasSpreadOverNodesAndZones(t *testing.T) {
	deployment := only[*appsv1.Deployment](t, render(t))
	require.Len(t, deployment.Spec.Template.Spec.TopologySpreadConstraints, 2)
	for _, constraint := range deployment.Spec.Template.Spec.TopologySpreadConstraints {
		assert.Equal(t, deployment.Spec.Selector, constraint.LabelSelector)
	}
	assert.Equal(t, map[string]string{"app": "x"}, only[*appsv1.Deployment](t, render(t, "topologySpreadConstraints[0].maxSkew=1",
		"topologySpreadConstraints[0].topologyKey=zone", "topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
		"topologySpreadConstraints[0].labelSelector.matchLabels.app=x")).Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector.MatchLabels)
}

func TestTheNotesOfAnInstallationNameTheNextCommands(t *testing.T) {
	notes := notesOf(t, "fullnameOverride=spot", "secureServing.enabled=true")
	for _, want := range []string{
		"manages the scaling groups of cluster my-cluster in cn-hangzhou.\n", "the RAM role of the ECS instance",
		"\n    gpu-spot-autoscaler doctor --region=cn-hangzhou --cluster-name=my-cluster --autoscaler-name=spot\n",
		"\n    kubectl -n kube-system rollout status deployment/spot\n", "get configmap spot-status",
		"\n    gpu-spot-autoscaler top --autoscaler-name=spot\n", "explain pod NAMESPACE/NAME --autoscaler-name=spot\n",
		"\n    gpu-spot-autoscaler plan -f job.yaml --autoscaler-name=spot\n", "\n    gpu-spot-autoscaler drill --node=NODE\n",
	} {
		assert.Contains(t, notes, want)
	}
	assert.NotContains(t, notes, "externalgrpc")
	assert.Contains(t, notesOf(t), "The commands top, savings and explain, and the status as JSON, need secureServing.enabled=true.")
	assert.NotContains(t, notesOf(t), "\n    gpu-spot-autoscaler top")
	assert.NotContains(t, notesOf(t, "credentials.secretName=keys"), "RAM role")
	assert.Contains(t, notesOf(t, "clusterName=", "extraArgs.nodes={0:10:asg-1,0:4:asg-2}"), "doctor --region=cn-hangzhou --nodes=0:10:asg-1 --nodes=0:4:asg-2\n")
}

func TestTheNotesOfADryRunPointToItsLogAndToNothingThatItDoesNotWrite(t *testing.T) {
	notes := notesOf(t, "fullnameOverride=spot", "secureServing.enabled=true", "dryRun.enabled=true")
	for _, want := range []string{
		"says what it would do with the scaling groups of cluster my-cluster in cn-hangzhou, and changes nothing", "doctor --region=cn-hangzhou",
		`logs -l app.kubernetes.io/instance=gpu-spot-autoscaler,app.kubernetes.io/component=autoscaler --tail=-1 | grep "Dry run"`,
		"top --autoscaler-name=spot\n", "explain pod NAMESPACE/NAME --autoscaler-name=spot\n", "plan -f job.yaml --autoscaler-name=spot\n",
	} {
		assert.Contains(t, notes, want)
	}
	for _, wrong := range []string{"manages", "spot-status", "drill"} {
		assert.NotContains(t, notes, wrong)
	}
	pod := only[*appsv1.Deployment](t, render(t, "dryRun.enabled=true")).Spec.Template
	assert.Subset(t, pod.Labels, map[string]string{"app.kubernetes.io/instance": "gpu-spot-autoscaler", "app.kubernetes.io/component": "autoscaler"}, "whose log it is")
}

func TestTheNotesOfServeSayHowClusterAutoscalerConnects(t *testing.T) {
	values := []string{"fullnameOverride=spot", "secureServing.enabled=true", "serve.enabled=true", "serve.tlsSecretName=tls", "serve.clientCASecretName=clients"}
	notes := notesOf(t, values...)
	for _, want := range []string{
		"serves the scaling groups of cluster my-cluster in cn-hangzhou to a Cluster Autoscaler of another version", "the Secret clients has signed",
		"\n    address: spot-serve.kube-system.svc:8087\n", "\n    --grpc-expander-url=spot-serve.kube-system.svc:8088\n", "explain and plan do not know it",
		"get configmap spot-status", "\n    gpu-spot-autoscaler top --autoscaler-name=spot\n", "drill --node=NODE",
	} {
		assert.Contains(t, notes, want)
	}
	for _, wrong := range []string{"manages", "explain pod", "plan -f"} {
		assert.NotContains(t, notes, wrong)
	}
	assert.Contains(t, notesOf(t, append(values, "secureServing.enabled=false")...), "The commands top, savings, and the status as JSON")
}

func TestTheNotesAndTheGuideForServeSayTheSame(t *testing.T) {
	page, err := os.ReadFile("../docs/serve.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	require.Len(t, blocks, 3, "values, cloud-config, flags; test/e2e runs with them")
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(blocks[0][1]), 0o600))
	notes := notesWith(t, "--values="+values)
	for _, block := range blocks[1:] {
		for line := range strings.Lines(block[1]) {
			if line = strings.TrimPrefix(strings.TrimSpace(line), "- "); line != "" {
				assert.Contains(t, notes, "\n    "+line+"\n")
			}
		}
	}
}

// notesOf returns what helm install prints.
func notesOf(t *testing.T, values ...string) string {
	t.Helper()
	return notesWith(t, set(values)...)
}

// notesWith returns what helm install prints with the flags. helm template prints it only as part of an object, and helm install needs a cluster.
func notesWith(t *testing.T, flags ...string) string {
	t.Helper()
	chart := t.TempDir()
	require.NoError(t, os.CopyFS(chart, os.DirFS("chart/gpu-spot-autoscaler")))
	notes, err := os.ReadFile(filepath.Join(chart, "templates/NOTES.txt"))
	require.NoError(t, err)
	object := `{{ define "notes" }}` + string(notes) + `{{ end }}` +
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, data: {notes: {{ include "notes" . | toJson }}}}`
	require.NoError(t, os.WriteFile(filepath.Join(chart, "templates/notes.yaml"), []byte(object), 0o600))
	text, err := helmRun(t, append([]string{"template", "gpu-spot-autoscaler", chart, "--namespace=kube-system", "--kube-version=1.36.1",
		"--show-only=templates/notes.yaml", "--set=region=cn-hangzhou", "--set=clusterName=my-cluster"}, flags...)...)
	require.NoError(t, err)
	return only[*corev1.ConfigMap](t, decode(t, "the notes", io.NopCloser(bytes.NewReader(text)))).Data["notes"]
}

func TestAPackagedChartNamesItsImagesByDigest(t *testing.T) {
	const one, two = "sha256:1111111111111111111111111111111111111111111111111111111111111111", "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	directory := t.TempDir()
	digests := filepath.Join(directory, "digests")
	require.NoError(t, os.WriteFile(digests, []byte("gpu-spot-autoscaler "+one+"\ngpu-spot-node-agent "+two+"\n"), 0o600))
	out, err := exec.CommandContext(t.Context(), "../.ci/package", helmBinary(t), digests, directory).CombinedOutput()
	require.NoError(t, err, string(out))
	packaged, err := filepath.Glob(filepath.Join(directory, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, packaged, 1)
	text, err := helmRun(t, "template", "gpu-spot-autoscaler", packaged[0], "--kube-version=1.36.1", "--set=region=cn-hangzhou", "--set=clusterName=c", "--set=nodeAgent.enabled=true")
	require.NoError(t, err)
	objects := decode(t, "the package", io.NopCloser(bytes.NewReader(text)))
	assert.True(t, strings.HasSuffix(only[*appsv1.Deployment](t, objects).Spec.Template.Spec.Containers[0].Image, "@"+one))
	assert.True(t, strings.HasSuffix(only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec.Containers[0].Image, "@"+two))
}
