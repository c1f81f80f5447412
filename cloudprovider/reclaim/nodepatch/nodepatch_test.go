package nodepatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestAPatchNamesTheVersionItWasMadeFromAndNothingThatDidNotChange(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: "cn-beijing.i-a", Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoExecute}}}}
	node.ResourceVersion = "42"
	node.Annotations = map[string]string{"kept": "x", "gone": "y"}
	body, err := difference(node, func(node *corev1.Node) {
		node.Spec.Unschedulable = true
		delete(node.Annotations, "gone")
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"42","annotations":{"gone":null}},"spec":{"unschedulable":true}}`, string(body))

	body, err = difference(node, func(*corev1.Node) {})
	require.NoError(t, err)
	assert.Nil(t, body, "nothing changed")
}

func TestAPatchHasAllTaintsIfOneChanges(t *testing.T) {
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "theirs", Effect: corev1.TaintEffectNoExecute}}}}
	node.ResourceVersion = "42"
	body, err := difference(node, func(node *corev1.Node) {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "ours", Effect: corev1.TaintEffectNoSchedule})
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"42"},"spec":{"taints":[{"key":"theirs","effect":"NoExecute"},{"key":"ours","effect":"NoSchedule"}]}}`, string(body))
}
