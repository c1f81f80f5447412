package standin

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// fixture is a cluster in memory with one operator and the operator's definitions, and a kubelet that has every pod run that it is not told to hold.
type fixture struct {
	*Operator
	t    *testing.T
	hold bool
	uids int
}

func newFixture(t *testing.T, kinds func(cluster) []kind) *fixture {
	t.Helper()
	listKinds := map[schema.GroupVersionResource]string{}
	for _, k := range append(kinds(cluster{}), kind{resource: ScaleIns}, kind{resource: ScaleOuts}) {
		listKinds[k.resource] = "List"
	}
	objects := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds)
	requireDefined(t, objects)
	c := cluster{Interface: fake.NewClientset(), objects: objects}
	return &fixture{Operator: &Operator{Name: t.Name(), kinds: kinds(c), cluster: c}, t: t}
}

// submit creates an object from YAML.
func (w *fixture) submit(resource schema.GroupVersionResource, manifest string) {
	w.t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(w.t, yaml.UnmarshalStrict([]byte(manifest), &object.Object))
	object.SetNamespace("default")
	w.uids++
	object.SetUID(types.UID(fmt.Sprint("uid-", w.uids)))
	_, err := w.objects.Resource(resource).Namespace("default").Create(w.t.Context(), object, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

// round has the operator look n times, and the kubelet after each.
func (w *fixture) round(n int) {
	w.t.Helper()
	for range n {
		for _, k := range w.kinds {
			require.NoError(w.t, w.reconcileAll(w.t.Context(), k))
		}
		if w.hold {
			continue
		}
		for _, pod := range w.all() {
			if pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending {
				w.end(pod.Name, corev1.PodRunning, 0)
			}
		}
	}
}

func (w *fixture) all() map[string]*corev1.Pod {
	w.t.Helper()
	pods, err := w.pods(w.t.Context(), "default", nil)
	require.NoError(w.t, err)
	return pods
}

// names of the pods there are.
func (w *fixture) names() []string { return slices.Sorted(maps.Keys(w.all())) }

// end gives the pod a phase, and what its container exited with.
func (w *fixture) end(name string, phase corev1.PodPhase, exit int32) {
	w.t.Helper()
	pod := w.all()[name]
	require.NotNil(w.t, pod, name)
	pod.Status.Phase = phase
	if phase == corev1.PodFailed || phase == corev1.PodSucceeded {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: exit}}}}
	}
	if pod.UID == "" {
		w.uids++
		pod.UID = types.UID(fmt.Sprint("uid-", w.uids))
	}
	_, err := w.CoreV1().Pods("default").Update(w.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// terminate marks a pod as deleted, with a grace period.
func (w *fixture) terminate(name string) {
	w.t.Helper()
	pod := w.all()[name]
	require.NotNil(w.t, pod, name)
	pod.DeletionTimestamp = ptr.To(metav1.Now())
	_, err := w.CoreV1().Pods("default").Update(w.t.Context(), pod, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// lose takes pods away, as an eviction does in the end.
func (w *fixture) lose(names ...string) {
	w.t.Helper()
	for _, name := range names {
		require.NoError(w.t, w.CoreV1().Pods("default").Delete(w.t.Context(), name, metav1.DeleteOptions{}))
	}
}

// patch sets a field of the object.
func (w *fixture) patch(resource schema.GroupVersionResource, name, patch string) {
	w.t.Helper()
	_, err := w.objects.Resource(resource).Namespace("default").Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(w.t, err)
}

// at reads a field of the object, such as status.phase.
func (w *fixture) at(resource schema.GroupVersionResource, name, path string) any {
	w.t.Helper()
	object, err := w.objects.Resource(resource).Namespace("default").Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	value, _, err := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
	require.NoError(w.t, err)
	return value
}

// condition says whether the object has it.
func (w *fixture) condition(resource schema.GroupVersionResource, name, kind string) bool {
	list, _ := w.at(resource, name, "status.conditions").([]any)
	return slices.ContainsFunc(list, func(each any) bool {
		is := each.(map[string]any)
		return is["type"] == kind && is["status"] == "True"
	})
}
