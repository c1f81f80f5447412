package jobs

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"
)

var epoch = time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)

const epochText = "2026-05-01T08:00:00Z"

// world is a cluster of fakes with a registry on it.
type world struct {
	*testing.T
	dynamic  *dynamicfake.FakeDynamicClient
	metadata *metadatafake.FakeMetadataClient
	kube     *kubefake.Clientset
	recorder *record.FakeRecorder
	clock    *clocktesting.FakeClock
	registry *Registry
}

// newWorld has the objects, which are YAML documents: pods and ConfigMaps, and those of job systems.
func newWorld(t *testing.T, documents ...string) *world {
	t.Helper()
	var typed, loose []runtime.Object
	for _, document := range documents {
		object := parse(t, document)
		switch object.GetKind() {
		case "Pod":
			typed = append(typed, podOf(t, document))
		case "ConfigMap":
			typed = append(typed, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}})
		default:
			loose = append(loose, object)
		}
	}
	scheme := runtime.NewScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	w := &world{
		T: t, kube: kubefake.NewClientset(typed...), recorder: record.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(epoch),
		dynamic:  dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), loose...),
		metadata: metadatafake.NewSimpleMetadataClient(scheme),
	}
	var err error
	w.registry, err = New(Config{Dynamic: w.dynamic, Metadata: w.metadata, Client: w.kube, Recorder: w.recorder, Clock: w.clock})
	require.NoError(t, err)
	return w
}

func listKinds() map[schema.GroupVersionResource]string {
	kinds := map[schema.GroupVersionResource]string{
		scaleIns: "ScaleInList", scaleOuts: "ScaleOutList", trainJobs: "TrainJobList", volcanoCommands: "CommandList", workloads: "WorkloadList",
	}
	for _, adapter := range adapters(&cluster{}) {
		kinds[adapter.Resource()] = adapter.Kind() + "List"
	}
	return kinds
}

func parse(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(document))
	require.NoError(t, err)
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON(text))
	if object.GetNamespace() == "" {
		object.SetNamespace("ml")
	}
	return object
}

func podOf(t *testing.T, document string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), pod))
	if pod.Namespace == "" {
		pod.Namespace = "ml"
	}
	return pod
}

func refOf(system, name string) Ref {
	return Ref{System: system, NamespacedName: types.NamespacedName{Namespace: "ml", Name: name}}
}

// get reads a job that must be there.
func (w *world) get(system, name string) Job {
	w.Helper()
	job, err := w.registry.Get(context.Background(), refOf(system, name))
	require.NoError(w, err)
	return job
}

// object is what is stored.
func (w *world) object(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.Helper()
	object, err := w.dynamic.Resource(resource).Namespace("ml").Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(w, err)
	return object
}

// set changes a field of a stored object, as its operator would.
func (w *world) set(resource schema.GroupVersionResource, name string, value any, path ...string) {
	w.Helper()
	object := w.object(resource, name)
	require.NoError(w, unstructured.SetNestedField(object.Object, value, path...))
	_, err := w.dynamic.Resource(resource).Namespace("ml").Update(context.Background(), object, metav1.UpdateOptions{})
	require.NoError(w, err)
}

// writes are what was sent since the last call, as "<verb> <resource> <body>".
func (w *world) writes() []string {
	w.Helper()
	var writes []string
	for _, action := range append(w.dynamic.Actions(), w.kube.Actions()...) {
		verb, resource := action.GetVerb(), action.GetResource().Resource
		if sub := action.GetSubresource(); sub != "" {
			resource += "/" + sub
		}
		switch action := action.(type) {
		case clienttesting.PatchAction:
			writes = append(writes, verb+" "+resource+" "+string(action.GetPatch()))
		case clienttesting.CreateAction:
			if object, ok := action.GetObject().(*unstructured.Unstructured); ok && verb == "create" {
				body, err := json.Marshal(object.Object["spec"])
				require.NoError(w, err)
				writes = append(writes, verb+" "+resource+" "+object.GetName()+" "+string(body))
			}
		case clienttesting.DeleteAction:
			writes = append(writes, verb+" "+resource+" "+action.GetName())
		}
	}
	w.dynamic.ClearActions()
	w.kube.ClearActions()
	return writes
}

// events are the reasons of those recorded since the last call.
func (w *world) events() []string {
	var reasons []string
	for {
		select {
		case event := <-w.recorder.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

// serve has the API server serve these systems' resources.
func (w *world) serve(systems ...string) {
	lists := map[string]*metav1.APIResourceList{}
	for _, system := range systems {
		resource := w.registry.byName[system].Resource()
		version := resource.GroupVersion().String()
		if lists[version] == nil {
			lists[version] = &metav1.APIResourceList{GroupVersion: version}
		}
		lists[version].APIResources = append(lists[version].APIResources, metav1.APIResource{Name: resource.Resource, Namespaced: true})
	}
	discovery := w.kube.Discovery().(*discoveryfake.FakeDiscovery)
	discovery.Resources = nil
	for _, list := range lists {
		discovery.Resources = append(discovery.Resources, list)
	}
}

// define installs the definition of a resource, undefine removes it.
func (w *world) define(name string) {
	w.Helper()
	definition := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
	}
	require.NoError(w, w.metadata.Tracker().Create(definitions, definition, ""))
}

func (w *world) undefine(name string) {
	w.Helper()
	require.NoError(w, w.metadata.Tracker().Delete(definitions, "", name))
}

// membersOf checks which pod is what of which job.
func membersOf(t *testing.T, want map[string]Membership, pods ...string) {
	t.Helper()
	w := newWorld(t)
	got := map[string]Membership{}
	for _, document := range pods {
		pod := podOf(t, document)
		got[pod.Name] = w.registry.Member(pod)
	}
	require.Equal(t, want, got)
}

// anyRoom is without end.
func anyRoom(*corev1.Pod) int { return math.MaxInt }

// gangOf is the names and roles of a job's pods, with the GPUs they ask for.
func (w *world) gangOf(job Job, workers int) (names []string, gpus int64) {
	w.Helper()
	pods, err := w.registry.Gang(job, workers, anyRoom)
	require.NoError(w, err)
	for _, pod := range pods {
		names = append(names, pod.Name+" "+string(w.registry.Member(pod).Role))
		for _, container := range pod.Spec.Containers {
			gpu := container.Resources.Requests["nvidia.com/gpu"]
			gpus += gpu.Value()
		}
		require.Empty(w, pod.UID)
		require.Empty(w, pod.OwnerReferences)
		require.Equal(w, "ml", pod.Namespace)
	}
	return names, gpus
}

// pruneOnPatch drops a field from what patches make, as the API server does with fields that a definition does not name.
func (w *world) pruneOnPatch(resource schema.GroupVersionResource, path ...string) {
	w.dynamic.PrependReactor("patch", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, stored, err := clienttesting.ObjectReaction(w.dynamic.Tracker())(action)
		if err != nil {
			return true, nil, err
		}
		object := stored.(*unstructured.Unstructured)
		unstructured.RemoveNestedField(object.Object, path...)
		return true, object, w.dynamic.Tracker().Update(resource, object, object.GetNamespace())
	})
}

// obey has Volcano take a Command.
func (w *world) obey(name string) {
	w.Helper()
	require.NoError(w, w.dynamic.Tracker().Delete(volcanoCommands, "ml", name))
}
