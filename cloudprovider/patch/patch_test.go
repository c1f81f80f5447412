package patch_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/patch/patchtest"
)

func TestAnnotationsAreSetAndRemovedInOnePatchThatNamesTheUID(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "p", UID: "uid", Annotations: map[string]string{"gone": "x", "kept": "y"}}}
	client := fake.NewClientset(pod)
	require.NoError(t, patch.Annotate(t.Context(), client.CoreV1().Pods("ml"), pod, map[string]any{"gone": nil, "new": "z"}))
	after, err := client.CoreV1().Pods("ml").Get(t.Context(), "p", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"kept": "y", "new": "z"}, after.Annotations)
	sent := client.Actions()[0].(clienttesting.PatchAction).GetPatch()
	assert.JSONEq(t, `{"metadata":{"uid":"uid","annotations":{"gone":null,"new":"z"}}}`, string(sent))
}

func TestAnObjectIsGoneIfAnotherHasItsName(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, "a", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 1)})
	conflict := apierrors.NewConflict(corev1.Resource("nodes"), "a", errors.New("the object has been modified"))
	for name, test := range map[string]struct {
		answer error
		isGone bool
	}{
		"it is gone":           {apierrors.NewNotFound(corev1.Resource("nodes"), "a"), true},
		"another has its name": {patchtest.AnotherUID("Node", "a"), true},
		"a field is malformed": {invalid, false},
		"a conflict":           {conflict, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			err := patch.Annotate(t.Context(), client.CoreV1().Nodes(), &metav1.ObjectMeta{Name: "a", UID: "before"}, map[string]any{"x": "y"})
			require.ErrorIs(t, err, test.answer)
			assert.Equal(t, test.isGone, apierrors.IsNotFound(err), "%v", err)
		})
	}
}
