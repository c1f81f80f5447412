package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ack"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/trim"
)

// reportOthersFor is for how many scan intervals a purchase of another autoscaler is reported as a problem.
const reportOthersFor = 60

// ackAutoscaler knows which scaling groups ACK's own autoscaler manages.
type ackAutoscaler struct {
	informers informers.SharedInformerFactory
	store     cache.Store
}

// newACKAutoscaler watches the ConfigMap in kube-system once its informers are started. If this process runs in another
// namespace, its roles do not cover the ConfigMap, and nothing is watched.
func newACKAutoscaler(client kubernetes.Interface, namespace string) *ackAutoscaler {
	if namespace != metav1.NamespaceSystem {
		klog.InfoS("Not checking whether ACK's own autoscaler manages a pool too, its ConfigMap is in another namespace",
			"namespace", namespace, "configMap", klog.KRef(metav1.NamespaceSystem, ack.Meta))
		return &ackAutoscaler{informers: informers.NewSharedInformerFactory(client, 0)}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTransform(trim.ManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + ack.Meta }))
	return &ackAutoscaler{informers: factory, store: factory.Core().V1().ConfigMaps().Informer().GetStore()}
}

// manages returns a sentence for a problem if ACK's autoscaler manages the scaling group, and "" if it does not.
func (a *ackAutoscaler) manages(poolID string) string {
	if a.store == nil {
		return ""
	}
	for _, object := range a.store.List() {
		if meta, ok := object.(*apiv1.ConfigMap); ok {
			if cause := ack.Manages(meta, poolID); cause != "" {
				return cause
			}
		}
	}
	return ""
}

// ownerBackoff is how the UID is asked for again. A role that was made a moment before this process counts in the API server only
// once its authorizer has seen it.
var ownerBackoff = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Steps: 5}

// owner returns a text that distinguishes this installation from all others. It consists of the UID of the namespace kube-system,
// which exists as long as the cluster does, and the name of the lease. It is "" if the namespace cannot be read within
// ownerBackoff.
func owner(ctx context.Context, config *Config) string {
	var uid string
	var refused error
	err := wait.ExponentialBackoffWithContext(ctx, ownerBackoff, func(ctx context.Context) (bool, error) {
		uid, refused = clusterUID(ctx, config.Kube)
		return refused == nil, nil
	})
	if err != nil {
		klog.FromContext(ctx).Error(cmp.Or(refused, err), "Cannot identify this cluster: purchases of other autoscalers in our pools will not be noticed")
		return ""
	}
	const enough = 8 // hexadecimal digits of the UID
	return fmt.Sprintf("%s/%s/%s", uid[:min(len(uid), enough)], config.LeaderElection.ResourceNamespace, config.LeaderElection.ResourceName)
}

func clusterUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
	if err != nil {
		return "", err
	}
	if len(namespaces.Items) != 1 {
		return "", fmt.Errorf("%d namespaces are %s", len(namespaces.Items), metav1.NamespaceSystem)
	}
	return string(namespaces.Items[0].UID), nil
}
