// Package overrides reads settings of pools from ConfigMaps.
package overrides

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/trim"
)

// Overrides are the settings of pools in ConfigMaps, which take precedence over tags.
type Overrides struct {
	// Informers are to be started.
	Informers informers.SharedInformerFactory
	byPool    cache.Indexer
}

// New returns Overrides that watch the labelled ConfigMaps of the namespace once their informers are started.
func New(client kubernetes.Interface, namespace string) (*Overrides, error) {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTransform(trim.ManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = api.LabelPool }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	err := informer.AddIndexers(cache.Indexers{api.LabelPool: func(object any) ([]string, error) {
		configMap, ok := object.(*apiv1.ConfigMap)
		if !ok {
			return nil, fmt.Errorf("index ConfigMaps by pool: got a %T", object)
		}
		return []string{configMap.Labels[api.LabelPool]}, nil
	}})
	if err != nil {
		return nil, fmt.Errorf("index ConfigMaps by pool: %w", err)
	}
	return &Overrides{Informers: factory, byPool: informer.GetIndexer()}, nil
}

// Of returns the annotations of the pool's ConfigMap, or nil if it has none. If there are several, it returns those of the first by
// name.
func (o *Overrides) Of(poolID string) map[string]string {
	objects, err := o.byPool.ByIndex(api.LabelPool, poolID)
	if err != nil {
		klog.ErrorS(err, "Cannot look up the ConfigMap of a pool", "pool", poolID)
		return nil
	}
	var chosen *apiv1.ConfigMap
	for _, object := range objects {
		if configMap := object.(*apiv1.ConfigMap); chosen == nil || configMap.Name < chosen.Name {
			chosen = configMap
		}
	}
	if chosen == nil {
		return nil
	}
	if len(objects) > 1 {
		klog.InfoS("A pool has several ConfigMaps, taking the first by name", "pool", poolID, "configMaps", len(objects), "taken", klog.KObj(chosen))
	}
	return chosen.Annotations
}
