package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// definitions is what is watched to learn which systems are installed.
var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// services are the systems that are on, and what is watched of each: its jobs that carry api.LabelHeld.
type services struct {
	config  Config
	systems map[string][]Adapter // by the name of the definition of their resource
	queue   workqueue.TypedRateLimitingInterface[string]

	mu      sync.RWMutex
	known   bool // what is installed
	running map[Adapter]*service
}

// service is the informer of one system that is on.
type service struct {
	informer cache.SharedIndexInformer
	stop     context.CancelFunc
	ended    chan struct{}
}

func newServices(config Config, systems []Adapter) *services {
	s := &services{config: config, systems: map[string][]Adapter{}, running: map[Adapter]*service{}}
	for _, adapter := range systems {
		name := definitionOf(adapter)
		s.systems[name] = append(s.systems[name], adapter)
		systemsOn.WithLabelValues(adapter.System()).Set(0)
	}
	return s
}

// definitionOf is the name that the API server demands of it. Kubernetes' own resources have none.
func definitionOf(adapter Adapter) string {
	resource := adapter.Resource()
	if resource.Group == batchGroup {
		return ""
	}
	return resource.GroupResource().String()
}

// HasSynced says whether it is known which systems are installed, and which of their jobs are held.
func (s *services) HasSynced() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, service := range s.running {
		if !service.informer.HasSynced() {
			return false
		}
	}
	return s.known
}

func (s *services) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	informer := metadatainformer.NewFilteredMetadataInformer(s.config.Metadata, definitions, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	s.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](100*time.Millisecond, time.Minute))
	if err := s.listen(informer); err != nil {
		cancel()
		return err
	}
	var group sync.WaitGroup
	defer s.stopAll()
	defer group.Wait()
	defer s.queue.ShutDown()
	defer cancel()
	group.Go(func() { informer.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil
	}
	for name := range s.systems {
		s.work(ctx, informer, name)
	}
	s.mu.Lock()
	s.known = true
	s.mu.Unlock()
	group.Go(func() {
		for s.next(ctx, informer) {
		}
	})
	<-ctx.Done()
	return nil
}

// listen queues the names of definitions that come, change or go, and keeps no more of them than that takes.
func (s *services) listen(informer cache.SharedIndexInformer) error {
	enqueue := func(object any) {
		name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
		if _, ours := s.systems[name]; ours && err == nil {
			s.queue.Forget(name) // what was unknown so far may be served in a moment
			s.queue.Add(name)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }, DeleteFunc: enqueue,
	})
	return errors.Join(err, informer.SetTransform(slim))
}

func slim(object any) (any, error) {
	if object, ok := object.(*metav1.PartialObjectMetadata); ok {
		object.ObjectMeta = metav1.ObjectMeta{
			Name: object.Name, UID: object.UID, ResourceVersion: object.ResourceVersion, DeletionTimestamp: object.DeletionTimestamp,
		}
	}
	return object, nil
}

func (s *services) next(ctx context.Context, informer cache.SharedIndexInformer) bool {
	name, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(name)
	s.work(ctx, informer, name)
	return true
}

// work brings the systems of one definition to what the cluster serves.
func (s *services) work(ctx context.Context, informer cache.SharedIndexInformer, name string) {
	settled, err := s.sync(ctx, informer, name)
	if err != nil {
		klog.ErrorS(err, "Cannot tell whether a job system is installed", "definition", name)
	}
	if settled {
		s.queue.Forget(name)
	} else {
		s.queue.AddRateLimited(name)
	}
}

// sync says whether all is known. It is not where a definition is there, but none of its versions: then it is not served
// yet, which is a matter of moments, or it is of versions unknown here.
func (s *services) sync(ctx context.Context, informer cache.SharedIndexInformer, name string) (settled bool, err error) {
	installed := name == "" // Kubernetes' own
	if !installed {
		object, exists, err := informer.GetStore().GetByKey(name)
		if err != nil {
			return false, err
		}
		definition, ok := object.(*metav1.PartialObjectMetadata)
		installed = exists && ok && definition.DeletionTimestamp == nil
	}
	var pending error
	for _, adapter := range s.systems[name] {
		served := name == ""
		if installed && !served {
			var err error
			if served, err = s.served(adapter.Resource()); err != nil {
				pending = errors.Join(pending, err)
				continue
			}
		}
		s.set(ctx, adapter, served)
	}
	return pending == nil && (!installed || name == "" || s.anyOn(name)), pending
}

// served asks which resources there are in the version that the adapter knows.
func (s *services) served(resource schema.GroupVersionResource) (bool, error) {
	list, err := s.config.Client.Discovery().ServerResourcesForGroupVersion(resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("discovering %s: %w", resource.GroupVersion(), err)
	}
	for _, served := range list.APIResources {
		if served.Name == resource.Resource {
			return true, nil
		}
	}
	return false, nil
}

// set switches a system on or off.
func (s *services) set(ctx context.Context, adapter Adapter, on bool) {
	s.mu.Lock()
	running := s.running[adapter]
	switch {
	case on && running == nil:
		s.running[adapter] = s.start(ctx, adapter)
	case !on && running != nil:
		delete(s.running, adapter)
	}
	s.mu.Unlock()
	if !on && running != nil {
		running.stop()
		<-running.ended
		systemsOn.WithLabelValues(adapter.System()).Set(0)
		klog.InfoS("Job system is off", "system", adapter.System())
	}
}

// start watches the jobs of a system that are held: few, and none at most times.
func (s *services) start(ctx context.Context, adapter Adapter) *service {
	ctx, cancel := context.WithCancel(ctx)
	informer := dynamicinformer.NewFilteredDynamicInformer(s.config.Dynamic, adapter.Resource(), metav1.NamespaceAll, 0, cache.Indexers{},
		func(options *metav1.ListOptions) { options.LabelSelector = api.LabelHeld }).Informer()
	service := &service{informer: informer, stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(service.ended)
		informer.RunWithContext(ctx)
	}()
	systemsOn.WithLabelValues(adapter.System()).Set(1)
	klog.InfoS("Job system is on", "system", adapter.System())
	return service
}

func (s *services) stopAll() {
	for _, systems := range s.systems {
		for _, adapter := range systems {
			s.set(context.Background(), adapter, false)
		}
	}
}

// on says whether the system is installed, or may be.
func (s *services) on(system string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if !s.known {
		return true
	}
	for adapter := range s.running {
		if adapter.System() == system {
			return true
		}
	}
	return false
}

// anyOn says whether one of the systems of a definition is on.
func (s *services) anyOn(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.ContainsFunc(s.systems[name], func(adapter Adapter) bool { return s.running[adapter] != nil })
}

// heldObjects are the jobs with api.LabelHeld, by system.
func (s *services) heldObjects() map[Adapter][]*unstructured.Unstructured {
	s.mu.RLock()
	defer s.mu.RUnlock()
	held := map[Adapter][]*unstructured.Unstructured{}
	for adapter, service := range s.running {
		for _, object := range service.informer.GetStore().List() {
			if object, ok := object.(*unstructured.Unstructured); ok && object.GetLabels()[api.LabelHeld] != "" {
				held[adapter] = append(held[adapter], object)
			}
		}
	}
	return held
}
