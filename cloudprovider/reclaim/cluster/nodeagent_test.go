package cluster

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

func TestPodsOfTheShippedNodeAgentAreKnown(t *testing.T) {
	manifest, err := os.ReadFile("../../../deploy/manifests/optional/node-agent.yaml")
	require.NoError(t, err)
	var agent appsv1.DaemonSet
	for _, document := range strings.Split(string(manifest), "\n---\n") {
		if strings.Contains(document, "kind: DaemonSet") {
			require.NoError(t, yaml.Unmarshal([]byte(document), &agent))
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:          agent.Spec.Template.Labels,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: agent.Name, Controller: ptr.To(true)}},
	}}
	assert.True(t, IsNodeAgent(pod))

	pod.OwnerReferences[0].Kind = "Job"
	assert.False(t, IsNodeAgent(pod), "a pod of a tenant with its labels")
	pod.OwnerReferences[0].Kind, pod.Labels = "DaemonSet", map[string]string{"app.kubernetes.io/component": "autoscaler", "app.kubernetes.io/part-of": "gpu-spot-autoscaler"}
	assert.False(t, IsNodeAgent(pod))
}
