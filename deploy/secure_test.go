package deploy_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cloudprovider/status/view"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
)

func TestReviewsAreGrantedOnlyWhereSomethingIsServedSecurely(t *testing.T) {
	reviews := rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}
	for enabled, want := range map[string]int{"false": 0, "true": 1} {
		found := 0
		for _, object := range render(t, "secureServing.enabled="+enabled) {
			if role, ok := object.(*rbacv1.ClusterRole); ok && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
				return assert.ObjectsAreEqual(reviews, rule)
			}) {
				found++
			}
		}
		assert.Equal(t, want, found, enabled)
	}
}

func TestTheSecurePortIsServedAndReached(t *testing.T) {
	objects := render(t, "secureServing.enabled=true", "secureServing.tlsSecretName=certificate", "secureServing.port=9444")
	pod := only[*appsv1.Deployment](t, objects).Spec.Template.Spec
	container := pod.Containers[0]
	args := slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool { return !strings.HasPrefix(arg, "--secure-") })
	assert.Equal(t, []string{
		"--secure-address=:9444", "--secure-tls-cert-file=/etc/gpu-spot/secure-tls/tls.crt",
		"--secure-tls-private-key-file=/etc/gpu-spot/secure-tls/tls.key",
	}, args)
	assertFlags(t, args, "../cmd/gpu-spot-autoscaler")
	assert.Contains(t, container.Ports, corev1.ContainerPort{Name: "https", ContainerPort: 9444})
	assert.Contains(t, container.VolumeMounts, corev1.VolumeMount{Name: "secure-tls", MountPath: "/etc/gpu-spot/secure-tls", ReadOnly: true})
	require.Len(t, pod.Volumes, 1)
	assert.Equal(t, "certificate", pod.Volumes[0].Secret.SecretName)
	service := only[*corev1.Service](t, objects)
	require.Len(t, service.Spec.Ports, 1, "metrics are served nowhere else")
	assert.Equal(t, "https", service.Spec.Ports[0].TargetPort.StrVal)
	assert.True(t, service.Spec.PublishNotReadyAddresses, "a leader that cannot begin its work is the one to ask why")
	assert.Equal(t, "metrics", container.LivenessProbe.HTTPGet.Port.StrVal, "probes send no token")

	role := named[*rbacv1.ClusterRole](t, objects, "gpu-spot-autoscaler-viewer")
	assert.Equal(t, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics", view.Path, status.Path, explain.Path, serving.CostsPath}, Verbs: []string{"get"}}}, role.Rules)
	assert.Equal(t, []string{"https:" + service.Name + ":https"}, named[*rbacv1.Role](t, objects, role.Name).Rules[1].ResourceNames)
}

func TestPrometheusSendsItsTokenWhereOneIsAskedFor(t *testing.T) {
	text, err := helm(t, "serviceMonitor.enabled=true", "secureServing.enabled=true")
	require.NoError(t, err)
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var monitor struct {
			Kind string
			Spec struct {
				Endpoints []struct {
					Port, Scheme, BearerTokenFile string
					TLSConfig                     map[string]any
				}
			}
		}
		require.NoError(t, documents.Decode(&monitor), "there is no ServiceMonitor")
		if monitor.Kind != "ServiceMonitor" {
			continue
		}
		endpoint := monitor.Spec.Endpoints[0]
		assert.Equal(t, "https", endpoint.Port)
		assert.Equal(t, "https", endpoint.Scheme)
		assert.Equal(t, "/var/run/secrets/kubernetes.io/serviceaccount/token", endpoint.BearerTokenFile)
		assert.Equal(t, map[string]any{"insecureSkipVerify": true}, endpoint.TLSConfig)
		return
	}
}
