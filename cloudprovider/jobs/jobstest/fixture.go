// Package jobstest has a fake cluster for tests of job systems, and examples of their objects.
package jobstest

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	discoveryfake "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	kubefake "k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Epoch is the time on the fake clock, EpochText the same in annotations.
var Epoch = time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)

const EpochText = "2026-05-01T08:00:00Z"

// Resources that systems use beside those of their jobs.
var (
	ScaleIns    = schema.GroupVersionResource{Group: "kai.alibabacloud.com", Version: "v1alpha1", Resource: "scaleins"}
	ScaleOuts   = schema.GroupVersionResource{Group: "kai.alibabacloud.com", Version: "v1alpha1", Resource: "scaleouts"}
	TrainJobs   = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
	Commands    = schema.GroupVersionResource{Group: "bus.volcano.sh", Version: "v1alpha1", Resource: "commands"}
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// Fixture is a fake cluster with a Registry on it.
type Fixture struct {
	*testing.T
	Dynamic  *dynamicfake.FakeDynamicClient
	Metadata *metadatafake.FakeMetadataClient
	Kube     *kubefake.Clientset
	Recorder *record.FakeRecorder
	Clock    *clocktesting.FakeClock
	// Config is what the Registry was made of.
	Config   jobs.Config
	Registry *jobs.Registry

	lists, watches atomic.Int32 // of jobs that are held or are to grow, as their informers requested them
}

// New returns a cluster that has the objects of the YAML documents: pods, ConfigMaps and those of job systems. The systems are
// those that the function returns, such as systems.All.
func New(t *testing.T, systems func(jobs.Cluster) []jobs.System, documents ...string) *Fixture {
	t.Helper()
	var typed, untyped []runtime.Object
	for _, document := range documents {
		object := Parse(t, document)
		switch object.GetKind() {
		case "Pod":
			typed = append(typed, ParsePod(t, document))
		case "ConfigMap":
			typed = append(typed, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}})
		default:
			untyped = append(untyped, object)
		}
	}
	scheme := runtime.NewScheme()
	require.NoError(t, metav1.AddMetaToScheme(scheme))
	f := &Fixture{
		T: t, Kube: kubefake.NewClientset(typed...), Recorder: record.NewFakeRecorder(100), Clock: clocktesting.NewFakeClock(Epoch),
		Metadata: metadatafake.NewSimpleMetadataClient(scheme),
	}
	f.Dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(systems(jobs.Cluster{})), untyped...)
	f.countListsAndWatches()
	cluster := jobs.Cluster{Dynamic: f.Dynamic, Client: f.Kube, Clock: f.Clock}
	f.Config = jobs.Config{Cluster: cluster, Systems: systems(cluster), Metadata: f.Metadata, Recorder: f.Recorder}
	f.Renew(f.Config)
	return f
}

// countListsAndWatches has IsWatching know what the informers of jobs have requested.
func (f *Fixture) countListsAndWatches() {
	f.Dynamic.PrependReactor("list", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.(clienttesting.ListAction).GetListRestrictions().Labels.String() {
		case api.LabelHeld, api.LabelGrow:
			f.lists.Add(1)
		}
		return false, nil, nil
	})
	f.Dynamic.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		watcher, err := f.Dynamic.Tracker().Watch(action.GetResource(), action.GetNamespace())
		f.watches.Add(1)
		return true, watcher, err
	})
}

// IsWatching returns whether the informers of jobs hear of changes. The fake client loses what changes between the list and
// the watch of an informer, which has synced by then.
func (f *Fixture) IsWatching() bool { return f.watches.Load() >= f.lists.Load() }

// Renew replaces the Registry by one of another Config.
func (f *Fixture) Renew(config jobs.Config) {
	f.Helper()
	registry, err := jobs.New(config)
	require.NoError(f, err)
	f.Config, f.Registry = config, registry
}

func listKinds(systems []jobs.System) map[schema.GroupVersionResource]string {
	resources := append([]schema.GroupVersionResource{ScaleIns, ScaleOuts, TrainJobs, Commands}, jobs.KueueWorkloads...)
	for _, version := range jobs.KueueWorkloads {
		for _, plural := range []string{"clusterqueues", "localqueues", "resourceflavors"} {
			resources = append(resources, version.GroupVersion().WithResource(plural))
		}
	}
	for _, system := range systems {
		resources = append(resources, system.Resource())
	}
	kinds := map[schema.GroupVersionResource]string{}
	for _, resource := range resources {
		kinds[resource] = resource.Resource + "List"
	}
	return kinds
}

// Parse returns the object of a YAML document, in the namespace ml where it names none.
func Parse(t *testing.T, document string) *unstructured.Unstructured {
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

// Labelled returns the YAML document with a label of its object.
func Labelled(t *testing.T, document, key, value string) string {
	t.Helper()
	object := Parse(t, document)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
	text, err := yaml.Marshal(object.Object)
	require.NoError(t, err)
	return string(text)
}

// ParsePod returns the pod of a YAML document, in the namespace ml where it names none.
func ParsePod(t *testing.T, document string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), pod))
	if pod.Namespace == "" {
		pod.Namespace = "ml"
	}
	return pod
}

// Ref names a job in the namespace ml.
func Ref(system, name string) jobs.Ref { return jobs.NewRef(system, "ml", name) }

// Member is a pod's place in a job in the namespace ml.
func Member(system, name string, role jobs.Role) jobs.Membership {
	return jobs.Membership{Ref: Ref(system, name), Role: role}
}

// CheckMembers checks of which jobs the pods are, by the names of the pods.
func CheckMembers(f *Fixture, want map[string]jobs.Membership, pods ...string) {
	f.Helper()
	got := map[string]jobs.Membership{}
	for _, document := range pods {
		pod := ParsePod(f.T, document)
		got[pod.Name] = f.Registry.Member(pod)
	}
	require.Equal(f, want, got)
}

// System returns the system with the name.
func (f *Fixture) System(name string) jobs.System {
	f.Helper()
	for _, system := range f.Config.Systems {
		if system.Name() == name {
			return system
		}
	}
	require.Failf(f, "no such system", "%s", name)
	return nil
}

// Resource returns that of the system's jobs.
func (f *Fixture) Resource(system string) schema.GroupVersionResource {
	f.Helper()
	return f.System(system).Resource()
}

// Get reads a job that must exist.
func (f *Fixture) Get(system, name string) jobs.Job {
	f.Helper()
	job, err := f.Registry.Get(context.Background(), Ref(system, name))
	require.NoError(f, err)
	return job
}

// Object returns an object as it is stored.
func (f *Fixture) Object(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	f.Helper()
	object, err := f.Dynamic.Resource(resource).Namespace("ml").Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(f, err)
	return object
}

// Set changes a field of a stored object, as its operator would.
func (f *Fixture) Set(resource schema.GroupVersionResource, name string, value any, path ...string) {
	f.Helper()
	object := f.Object(resource, name)
	require.NoError(f, unstructured.SetNestedField(object.Object, value, path...))
	_, err := f.Dynamic.Resource(resource).Namespace("ml").Update(context.Background(), object, metav1.UpdateOptions{})
	require.NoError(f, err)
}

// Writes returns what was written since the last call, as "<verb> <resource> <body>".
func (f *Fixture) Writes() []string {
	f.Helper()
	var writes []string
	for _, action := range append(f.Dynamic.Actions(), f.Kube.Actions()...) {
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
				require.NoError(f, err)
				writes = append(writes, verb+" "+resource+" "+object.GetName()+" "+string(body))
			}
		case clienttesting.DeleteAction:
			writes = append(writes, verb+" "+resource+" "+action.GetName())
		}
	}
	f.Dynamic.ClearActions()
	f.Kube.ClearActions()
	return writes
}

// Events returns the reasons of the Events recorded since the last call.
func (f *Fixture) Events() []string {
	var reasons []string
	for {
		select {
		case event := <-f.Recorder.Events:
			reasons = append(reasons, strings.Fields(event)[1])
		default:
			return reasons
		}
	}
}

// Serve has the API server serve the resources of these systems.
func (f *Fixture) Serve(systems ...string) {
	lists := map[string]*metav1.APIResourceList{}
	for _, system := range systems {
		resource := f.Resource(system)
		version := resource.GroupVersion().String()
		if lists[version] == nil {
			lists[version] = &metav1.APIResourceList{GroupVersion: version}
		}
		lists[version].APIResources = append(lists[version].APIResources, metav1.APIResource{Name: resource.Resource, Namespaced: true})
	}
	discovery := f.Kube.Discovery().(*discoveryfake.FakeDiscovery)
	discovery.Resources = nil
	for _, list := range lists {
		discovery.Resources = append(discovery.Resources, list)
	}
}

// Define installs the definition of a resource.
func (f *Fixture) Define(name string) {
	f.Helper()
	definition := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "1"},
	}
	require.NoError(f, f.Metadata.Tracker().Create(definitions, definition, ""))
}

// DefinitionIsBeingDeleted has the definition wait for the deletion of its objects.
func (f *Fixture) DefinitionIsBeingDeleted(name string) {
	f.Helper()
	object, err := f.Metadata.Tracker().Get(definitions, "", name)
	require.NoError(f, err)
	definition := object.(*metav1.PartialObjectMetadata)
	definition.DeletionTimestamp, definition.Finalizers = new(metav1.Now()), []string{"customresourcecleanup.apiextensions.k8s.io"}
	require.NoError(f, f.Metadata.Tracker().Update(definitions, definition, ""))
}

// Undefine removes the definition of a resource.
func (f *Fixture) Undefine(name string) {
	f.Helper()
	require.NoError(f, f.Metadata.Tracker().Delete(definitions, "", name))
}

// Run runs the Registry until the test ends, and returns once it knows the cluster. Informers do not work in a synctest bubble: wait for
// what they do with Eventually.
func (f *Fixture) Run() {
	f.Helper()
	f.Start()
	f.Eventually(func() bool { return f.Registry.HasSynced() && f.IsWatching() }, "synced")
}

// Start is Run without the wait.
func (f *Fixture) Start() {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Registry.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		assert.NoError(f, <-ended)
	})
}

// Eventually waits until the condition holds.
func (f *Fixture) Eventually(condition func() bool, what string) {
	f.Helper()
	require.Eventually(f, condition, 20*time.Second, 5*time.Millisecond, what)
}

// AnyNumber is a jobs.MostPods without a bound.
func AnyNumber(*corev1.Pod) int { return math.MaxInt }

// GangOf returns the names and roles of a job's pods, and how many GPUs they ask for.
func (f *Fixture) GangOf(job jobs.Job, workers int) (names []string, gpus int64) {
	f.Helper()
	pods, err := f.Registry.Gang(job, workers, AnyNumber)
	require.NoError(f, err)
	for _, pod := range pods {
		names = append(names, pod.Name+" "+string(f.Registry.Member(pod).Role))
		for _, container := range pod.Spec.Containers {
			gpu := container.Resources.Requests["nvidia.com/gpu"]
			gpus += gpu.Value()
		}
		require.Empty(f, pod.UID)
		require.Empty(f, pod.OwnerReferences)
		require.Equal(f, "ml", pod.Namespace)
	}
	return names, gpus
}

// PruneOnPatch drops a field from what patches make, as the API server does with fields that a definition does not name.
func (f *Fixture) PruneOnPatch(resource schema.GroupVersionResource, path ...string) {
	f.Dynamic.PrependReactor("patch", resource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		_, stored, err := clienttesting.ObjectReaction(f.Dynamic.Tracker())(action)
		if err != nil {
			return true, nil, err
		}
		object := stored.(*unstructured.Unstructured)
		unstructured.RemoveNestedField(object.Object, path...)
		return true, object, f.Dynamic.Tracker().Update(resource, object, object.GetNamespace())
	})
}
