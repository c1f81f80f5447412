package nodepatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
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

func TestAnotherNodeOfTheNameIsNotPatched(t *testing.T) {
	stale := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "old", ResourceVersion: "1"}}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "new", ResourceVersion: "2"}})
	patches := 0
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		patches++
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "a", nil)
	})
	changed, err := Apply(t.Context(), client, stale, func(node *corev1.Node) { node.Spec.Unschedulable = true })
	require.NoError(t, err)
	assert.False(t, changed)
	assert.Equal(t, 1, patches)
}

func TestAnErrorNamesTheNodeAndStaysWhatItIs(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	client := fake.NewClientset(node)
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTimeoutError("too busy", 1)
	})
	_, err := Apply(t.Context(), client, node, func(node *corev1.Node) { node.Spec.Unschedulable = true })
	assert.ErrorContains(t, err, "node a")
	assert.True(t, apierrors.IsTimeout(err))
}
