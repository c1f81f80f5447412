package e2e

import (
	"cmp"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/patch/patchtest"
)

// TestAnObjectThatWasMadeAnewIsNotPatched asks a real API server, because a fake client answers what its author believes.
func TestAnObjectThatWasMadeAnewIsNotPatched(t *testing.T) {
	s := newSuite(t, newWorld())
	pods, nodes := s.Client.CoreV1().Pods(metav1.NamespaceDefault), s.Client.CoreV1().Nodes()
	resource := corev1.SchemeGroupVersion.WithResource("pods")
	metadataOnly, err := metadata.NewForConfig(s.Cluster.AdminConfig())
	require.NoError(t, err)
	objects, err := dynamic.NewForConfig(s.Cluster.AdminConfig())
	require.NoError(t, err)
	node, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "made-anew"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, nodes.Delete(context.WithoutCancel(t.Context()), node.Name, metav1.DeleteOptions{}))
	})
	pod := gpuPods("made-anew", 1)[0]
	s.Submit(t, pod)
	pod, err = pods.Get(t.Context(), pod.Name, metav1.GetOptions{})
	require.NoError(t, err)

	annotations := map[string]any{"test": "x"}
	for what, annotate := range map[string]func(uid types.UID) error{
		"a Node": func(uid types.UID) error {
			return patch.Annotate(t.Context(), nodes, &metav1.ObjectMeta{Name: node.Name, UID: cmp.Or(uid, node.UID)}, annotations)
		},
		"a pod": func(uid types.UID) error {
			return patch.Annotate(t.Context(), pods, &metav1.ObjectMeta{Name: pod.Name, UID: cmp.Or(uid, pod.UID)}, annotations)
		},
		"a pod, of which only the metadata is read": func(uid types.UID) error {
			client := metadataOnly.Resource(resource).Namespace(pod.Namespace)
			return patch.Annotate(t.Context(), client, &metav1.ObjectMeta{Name: pod.Name, UID: cmp.Or(uid, pod.UID)}, annotations)
		},
		"any object": func(uid types.UID) error {
			client := objects.Resource(resource).Namespace(pod.Namespace)
			return patch.Annotate(t.Context(), client, &metav1.ObjectMeta{Name: pod.Name, UID: cmp.Or(uid, pod.UID)}, annotations)
		},
		"a pod, by a strategic merge patch": func(uid types.UID) error {
			_, err := patch.Send(t.Context(), pods, &metav1.ObjectMeta{Name: pod.Name, UID: cmp.Or(uid, pod.UID)}, types.StrategicMergePatchType,
				map[string]any{"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []string{"test"}}}, metav1.PatchOptions{})
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			require.NoError(t, annotate(""))
			err := annotate("of-the-one-before")
			require.True(t, apierrors.IsNotFound(err), "%v", err)
			answer := patchtest.AnotherUID("Pod", pod.Name).Status()
			assert.ErrorContains(t, err, answer.Details.Causes[0].Field, "fake clients answer the same")
		})
	}
}
