package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"gpu-spot-autoscaler/cloudprovider/api"
)

func TestTheNodeAgentRunsOnSpotNodesToTheEnd(t *testing.T) {
	pod := only[*appsv1.DaemonSet](t, manifests(t)).Spec.Template.Spec
	affinity := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: pod})
	for name, c := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"spot":                    {map[string]string{"node.alibabacloud.com/spot-strategy": "SpotAsPriceGo"}, true},
		"spot with a price limit": {map[string]string{"node.alibabacloud.com/spot-strategy": "SpotWithPriceLimit"}, true},
		"spot by our own label":   {map[string]string{"gpu-spot.autoscaling/purchase-option": "spot"}, true},
		"on demand":               {map[string]string{"node.alibabacloud.com/spot-strategy": "NoSpot", "gpu-spot.autoscaling/purchase-option": "on-demand"}, false},
		"of another cloud":        {nil, false},
	} {
		matches, err := affinity.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.labels}})
		require.NoError(t, err, name)
		assert.Equal(t, c.want, matches, name)
	}
	assert.Equal(t, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, pod.Tolerations)
}

// The two share a chart, and must not share pods.
func TestTheNodeAgentsAreNobodyElsesPods(t *testing.T) {
	objects := manifests(t)
	agent := labels.Set(only[*appsv1.DaemonSet](t, objects).Spec.Template.Labels)
	selectors := 0
	for _, object := range objects {
		var selector *metav1.LabelSelector
		switch object := object.(type) {
		case *appsv1.Deployment:
			selector = object.Spec.Selector
		case *policyv1.PodDisruptionBudget:
			selector = object.Spec.Selector
		case *corev1.Service:
			selector = metav1.SetAsLabelSelector(object.Spec.Selector)
		default:
			continue
		}
		selectors++
		parsed, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err)
		assert.False(t, parsed.Matches(agent), "%T", object)
	}
	assert.Equal(t, 3, selectors)
}

func TestThePolicyAllowsTheNodeAgentWhatTheAutoscalerReads(t *testing.T) {
	objects := manifests(t)
	daemonSet := only[*appsv1.DaemonSet](t, objects)
	policy := named[*admissionv1.ValidatingAdmissionPolicy](t, objects, daemonSet.Name)
	assert.Equal(t, fmt.Sprintf("[%q, %q]", api.AnnotationNoticeAgent, api.AnnotationCheckpointAcknowledged), policy.Spec.Variables[0].Expression)
	assert.Contains(t, policy.Spec.MatchConditions[0].Expression,
		fmt.Sprintf("%q", "system:serviceaccount:"+daemonSet.Namespace+":"+daemonSet.Spec.Template.Spec.ServiceAccountName))
	binding := named[*admissionv1.ValidatingAdmissionPolicyBinding](t, objects, daemonSet.Name)
	assert.Equal(t, policy.Name, binding.Spec.PolicyName)
	assert.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, binding.Spec.ValidationActions)
}

func TestTheNodeAgentKnowsItsFlags(t *testing.T) {
	assertFlags(t, only[*appsv1.DaemonSet](t, manifests(t)).Spec.Template.Spec.Containers[0].Args, "../cmd/node-agent")
}

// No Service is in front of the agents, so that Prometheus has to be led to their pods.
func TestTheNodeAgentsAreMonitored(t *testing.T) {
	text, err := helm(t, "serviceMonitor.enabled=true", "serviceMonitor.interval=17s", "nodeAgent.enabled=true")
	require.NoError(t, err)
	pod := only[*appsv1.DaemonSet](t, manifests(t)).Spec.Template
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var monitor struct {
			Kind string
			Spec struct {
				Selector            *metav1.LabelSelector
				PodMetricsEndpoints []struct{ Port, Interval string }
			}
		}
		require.NoError(t, documents.Decode(&monitor), "there is no PodMonitor")
		if monitor.Kind != "PodMonitor" {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(monitor.Spec.Selector)
		require.NoError(t, err)
		assert.True(t, selector.Matches(labels.Set(pod.Labels)))
		require.Len(t, monitor.Spec.PodMetricsEndpoints, 1)
		assert.Equal(t, pod.Spec.Containers[0].Ports[0].Name, monitor.Spec.PodMetricsEndpoints[0].Port)
		assert.Equal(t, "17s", monitor.Spec.PodMetricsEndpoints[0].Interval)
		return
	}
}

func TestThePushEndpointIsMountedServedAndReached(t *testing.T) {
	objects := render(t, "push.enabled=true", "push.tokenSecretName=tokens", "push.tlsSecretName=certificates",
		"push.service.type=LoadBalancer", "push.service.loadBalancerSourceRanges={100.64.0.0/10}")
	pod := only[*appsv1.Deployment](t, objects).Spec.Template.Spec
	container := pod.Containers[0]
	assertFlags(t, slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool { return !strings.HasPrefix(arg, "--notice-") }), "../cmd/gpu-spot-autoscaler")
	mounted := map[string]string{}
	for _, volume := range pod.Volumes {
		for _, mount := range container.VolumeMounts {
			if mount.Name == volume.Name {
				assert.True(t, mount.ReadOnly)
				mounted[mount.MountPath] = volume.Secret.SecretName
			}
		}
	}
	assert.Equal(t, map[string]string{"/etc/gpu-spot/notice-token": "tokens", "/etc/gpu-spot/notice-tls": "certificates"}, mounted)
	files := 0
	for _, arg := range container.Args {
		if _, file, ok := strings.Cut(arg, "=/etc/gpu-spot/"); ok && strings.HasPrefix(arg, "--notice-") {
			files++
			assert.Contains(t, []string{"notice-token/token", "notice-tls/tls.crt", "notice-tls/tls.key"}, file)
		}
	}
	assert.Equal(t, 3, files)
	for _, object := range objects {
		if service, ok := object.(*corev1.Service); ok && strings.HasSuffix(service.Name, "-notices") {
			assert.Equal(t, []string{"100.64.0.0/10"}, service.Spec.LoadBalancerSourceRanges)
			assert.Equal(t, "notices", service.Spec.Ports[0].TargetPort.String())
			assert.Contains(t, container.Ports, corev1.ContainerPort{Name: "notices", ContainerPort: 8443})
			return
		}
	}
	t.Fatal("no Service in front of the endpoint")
}

func TestTheChartRefusesAPushEndpointWithoutItsSecrets(t *testing.T) {
	for _, missing := range []string{"push.tokenSecretName", "push.tlsSecretName"} {
		values := []string{"push.enabled=true"}
		for _, name := range []string{"push.tokenSecretName", "push.tlsSecretName"} {
			if name != missing {
				values = append(values, name+"=x")
			}
		}
		_, err := helm(t, values...)
		assert.ErrorContains(t, err, missing+" is required")
	}
}

// assertFlags looks for each flag where the sources declare it.
func assertFlags(t *testing.T, args []string, directory string) {
	t.Helper()
	declared := map[string]bool{}
	for _, match := range inSource(t, regexp.MustCompile(`Var\(&[\w.]+, "([a-z-]+)"`), directory) {
		declared[match[1]] = true
	}
	require.NotEmpty(t, declared)
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		assert.True(t, declared[name], "--%s is declared nowhere", name)
	}
}

// render is the whole chart with the values.
func render(t *testing.T, values ...string) []runtime.Object {
	t.Helper()
	text, err := helm(t, values...)
	require.NoError(t, err)
	return decode(t, "the chart", io.NopCloser(bytes.NewReader(text)))
}

// helm renders the chart for the newest Kubernetes that the end-to-end tests run on.
func helm(t *testing.T, values ...string) ([]byte, error) {
	t.Helper()
	return helmFor(t, "1.36.1", values...)
}

// helmFor renders the chart for the version of Kubernetes.
func helmFor(t *testing.T, kubernetes string, values ...string) ([]byte, error) {
	t.Helper()
	return helmRun(t, append([]string{"template", "gpu-spot-autoscaler", "chart/gpu-spot-autoscaler", "--namespace=kube-system", "--kube-version=" + kubernetes,
		"--set=region=cn-hangzhou", "--set=clusterName=my-cluster"}, set(values)...)...)
}

// set returns the flags that set the values.
func set(values []string) (flags []string) {
	for _, value := range values {
		flags = append(flags, "--set="+value)
	}
	return flags
}

// helmBinary returns the helm that make lint, and so make test, has built.
func helmBinary(t *testing.T) string {
	t.Helper()
	binary, err := filepath.Abs("../out/bin/helm")
	require.NoError(t, err)
	require.FileExists(t, binary, "make lint builds it")
	return binary
}

// helmRun runs helm, and returns what it prints. Its error has what it complains of.
func helmRun(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), helmBinary(t), args...).Output()
	if exit := new(exec.ExitError); err != nil && errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return text, err
}
