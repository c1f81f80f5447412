package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// definitions is the resource that is watched to learn which systems are installed.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// slowestLook is how long the next look waits at most at a definition of which not all is known.
const slowestLook = time.Minute

// installed knows which systems are installed, and watches those of their jobs that carry api.LabelHeld or api.LabelGrow.
type installed struct {
	config Config
	// systems are by the name of the definition of their resource, empty for resources of Kubernetes itself.
	systems map[string][]System
	// definitions has the CustomResourceDefinitions of the cluster.
	definitions cache.SharedIndexInformer

	mu      sync.RWMutex
	watches map[System]*watch
	// unknown are the systems of which it could not be found out yet, or not lately, whether they are installed.
	unknown sets.Set[System]
}

// watch is the informers of the jobs of one system that is installed: those that are held, and those that are to grow.
type watch struct {
	held, growing cache.SharedIndexInformer
	stop          context.CancelFunc
	ended         sync.WaitGroup
}

func (w *watch) informers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{w.held, w.growing}
}

func newInstalled(config Config) *installed {
	in := &installed{
		config: config, systems: map[string][]System{}, watches: map[System]*watch{}, unknown: sets.New(config.Systems...),
		definitions: metadatainformer.NewFilteredMetadataInformer(config.Metadata, definitions, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(),
	}
	for _, system := range config.Systems {
		name := definitionOf(system)
		in.systems[name] = append(in.systems[name], system)
		systemsInstalled.WithLabelValues(system.Name()).Set(0)
	}
	return in
}

// definitionOf returns the name that the API server demands of the definition of the system's resource.
func definitionOf(system System) string {
	resource := system.Resource()
	if resource.Group == batchv1.GroupName {
		return ""
	}
	return resource.GroupResource().String()
}

// hasSynced returns whether it is known which systems are installed, and which of their jobs are held.
func (in *installed) hasSynced() bool {
	in.mu.RLock()
	defer in.mu.RUnlock()
	for _, watch := range in.watches {
		for _, informer := range watch.informers() {
			if !informer.HasSynced() {
				return false
			}
		}
	}
	return in.unknown.Len() == 0
}

// run watches until ctx ends. It is to be called once.
func (in *installed) run(ctx context.Context) error {
	queue := work.NewQueue[string]("job_systems", in.config.Cluster.Clock, slowestLook)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer in.stopAll()
	defer running.Wait()
	defer queue.ShutDown()
	defer cancel()
	if err := in.addEventHandler(queue); err != nil {
		return err
	}
	running.Go(func() { in.definitions.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), in.definitions.HasSynced) {
		return nil
	}
	for name := range in.systems {
		queue.Add(name)
	}
	running.Go(func() { queue.Work(ctx, in.sync) })
	<-ctx.Done()
	return nil
}

// addEventHandler queues the names of definitions that are added, changed or deleted, and drops from the informer's cache
// what is not needed of them.
func (in *installed) addEventHandler(queue work.Queue[string]) error {
	enqueue := func(object any) {
		name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if _, ok := in.systems[name]; ok && err == nil {
			queue.Forget(name) // what was not served so far may be served in a moment
			queue.Add(name)
		}
	}
	_, err := in.definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	})
	return errors.Join(err, in.definitions.SetTransform(dropUnusedMetadata))
}

func dropUnusedMetadata(object any) (any, error) {
	if object, ok := object.(*metav1.PartialObjectMetadata); ok {
		object.ObjectMeta = metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, DeletionTimestamp: object.DeletionTimestamp,
		}
	}
	return object, nil
}

// sync switches the systems of one definition on or off. It returns an error until all is known: work.ErrNotYet where the definition exists but
// none of its versions is served that is known here. Either one will be in a moment, or there are only others.
func (in *installed) sync(ctx context.Context, name string) error {
	isDefined, err := in.isDefined(name)
	if err != nil {
		return err
	}
	var errs []error
	for _, system := range in.systems[name] {
		isServed := isDefined
		if isDefined && name != "" {
			if isServed, err = in.isServed(system.Resource()); err != nil {
				errs = append(errs, err)
				in.doubt(system)
				continue
			}
		}
		in.set(ctx, system, isServed)
	}
	if len(errs) == 0 && isDefined && !in.hasAny(name) {
		return work.ErrNotYet
	}
	return errors.Join(errs...)
}

// isDefined returns whether there is the definition. Kubernetes' own resources need none.
func (in *installed) isDefined(name string) (bool, error) {
	if name == "" {
		return true, nil
	}
	object, exists, err := in.definitions.GetStore().GetByKey(name)
	definition, ok := object.(*metav1.PartialObjectMetadata)
	return exists && ok && definition.DeletionTimestamp == nil, err
}

// isServed asks the API server which resources there are in the version that the system knows.
func (in *installed) isServed(resource schema.GroupVersionResource) (bool, error) {
	isServed, err := discovery.IsResourceEnabled(in.config.Cluster.Client.Discovery(), resource)
	if err != nil {
		return false, fmt.Errorf("discover %s: %w", resource.GroupVersion(), err)
	}
	return isServed, nil
}

// doubt notes that it could not be found out whether a system is installed. One that is on stays so.
func (in *installed) doubt(system System) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.watches[system] == nil {
		in.unknown.Insert(system)
	}
}

// set switches a system on or off.
func (in *installed) set(ctx context.Context, system System, isOn bool) {
	in.mu.Lock()
	in.unknown.Delete(system)
	current := in.watches[system]
	switch {
	case isOn && current == nil:
		in.watches[system] = in.start(ctx, system)
	case !isOn && current != nil:
		delete(in.watches, system)
	}
	in.mu.Unlock()
	if !isOn && current != nil {
		current.stop()
		current.ended.Wait()
		systemsInstalled.WithLabelValues(system.Name()).Set(0)
		klog.FromContext(ctx).Info("Job system is off", "system", system.Name())
	}
}

// start watches the jobs of a system that are held or are to grow. There are few of them, and mostly none.
func (in *installed) start(ctx context.Context, system System) *watch {
	ctx, cancel := context.WithCancel(ctx)
	watch := &watch{held: in.informer(system, api.LabelHeld), growing: in.informer(system, api.LabelGrow), stop: cancel}
	for _, informer := range watch.informers() {
		watch.ended.Go(func() { informer.RunWithContext(ctx) })
	}
	systemsInstalled.WithLabelValues(system.Name()).Set(1)
	klog.FromContext(ctx).Info("Job system is on", "system", system.Name())
	return watch
}

// informer returns the informer of the jobs of a system that have the label.
func (in *installed) informer(system System, label string) cache.SharedIndexInformer {
	informer := dynamicinformer.NewFilteredDynamicInformer(in.config.Cluster.Dynamic, system.Resource(), metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.LabelSelector = label }).Informer()
	_ = informer.SetTransform(dropManagedFields) // fails only once the informer runs
	return informer
}

// dropManagedFields drops what may be half of an object.
func dropManagedFields(object any) (any, error) {
	if object, ok := object.(*unstructured.Unstructured); ok {
		object.SetManagedFields(nil)
	}
	return object, nil
}

func (in *installed) stopAll() {
	for _, system := range in.config.Systems {
		in.set(context.Background(), system, false)
	}
}

// has returns whether the system is installed, or may be.
func (in *installed) has(name string) bool {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return slices.ContainsFunc(in.config.Systems, func(system System) bool {
		return system.Name() == name && (in.watches[system] != nil || in.unknown.Has(system))
	})
}

// hasAny returns whether one of the systems of a definition is installed.
func (in *installed) hasAny(definition string) bool {
	in.mu.RLock()
	defer in.mu.RUnlock()
	return slices.ContainsFunc(in.systems[definition], func(system System) bool { return in.watches[system] != nil })
}

// held returns the jobs with api.LabelHeld, by system.
func (in *installed) held() map[System][]*unstructured.Unstructured {
	return in.labelled(api.LabelHeld, func(w *watch) cache.SharedIndexInformer { return w.held })
}

// growing returns the jobs with api.LabelGrow, by system.
func (in *installed) growing() map[System][]*unstructured.Unstructured {
	return in.labelled(api.LabelGrow, func(w *watch) cache.SharedIndexInformer { return w.growing })
}

func (in *installed) labelled(label string, informer func(*watch) cache.SharedIndexInformer) map[System][]*unstructured.Unstructured {
	in.mu.RLock()
	defer in.mu.RUnlock()
	found := map[System][]*unstructured.Unstructured{}
	for system, watch := range in.watches {
		for _, object := range informer(watch).GetStore().List() {
			if object, ok := object.(*unstructured.Unstructured); ok && object.GetLabels()[label] != "" {
				found[system] = append(found[system], object)
			}
		}
	}
	return found
}
