package app

import (
	"context"
	"fmt"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/trim"
)

// ackMeta is the ConfigMap that says which scaling groups ACK's autoscaler manages: in its data is JSON, in which
// "scaling_configurations" has them as keys. Cluster Autoscaler as ACK runs it and its successor GOATScaler have it.
// Source: clusterAutoscalerMeta and autoscalerMeta in resource_alicloud_cs_kubernetes_autoscaler.go of
// aliyun/terraform-provider-alicloud. No document has the form, so that any text that names a group counts.
const ackMeta = "autoscaler-meta"

// rivalsFor is for how many scan intervals a purchase of another autoscaler is told of.
const rivalsFor = 60

// ackAutoscaler knows what ACK's own autoscaler is set up for.
type ackAutoscaler struct {
	informers informers.SharedInformerFactory
	store     cache.Store
}

// newACKAutoscaler watches the ConfigMap, once its informers are started. It is in kube-system; from another namespace the
// roles do not reach it, so that nothing is watched.
func newACKAutoscaler(client kubernetes.Interface, namespace string) *ackAutoscaler {
	if namespace != metav1.NamespaceSystem {
		klog.InfoS("Not looking whether ACK's own autoscaler manages a pool too, because its ConfigMap is in another namespace", "namespace", namespace, "configMapNamespace", metav1.NamespaceSystem)
		return &ackAutoscaler{informers: informers.NewSharedInformerFactory(client, 0)}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTransform(trim.ManagedFields),
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + ackMeta }))
	return &ackAutoscaler{informers: factory, store: factory.Core().V1().ConfigMaps().Informer().GetStore()}
}

// manages says that ACK's autoscaler is set up for the scaling group; it is empty where it is not.
func (a *ackAutoscaler) manages(poolID string) string {
	if a.store == nil {
		return ""
	}
	for _, object := range a.store.List() {
		configMap, ok := object.(*apiv1.ConfigMap)
		if !ok {
			continue
		}
		for _, text := range configMap.Data {
			if strings.Contains(text, `"`+poolID+`"`) {
				return fmt.Sprintf("ACK's own autoscaler is set up for the scaling group too: ConfigMap %s/%s names it", configMap.Namespace, configMap.Name)
			}
		}
	}
	return ""
}

// owner tells this installation from all others: the cluster, by the UID of its namespace kube-system, which lives as long as
// the cluster does, and the lease by which one of its replicas leads. It is empty where the cluster cannot be told.
func owner(ctx context.Context, config *Config) string {
	namespaces, err := config.Kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + metav1.NamespaceSystem})
	if err == nil && len(namespaces.Items) != 1 {
		err = fmt.Errorf("%d namespaces are %s", len(namespaces.Items), metav1.NamespaceSystem)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reading the UID of the cluster failed; purchases of other autoscalers in the same pools will not be noticed")
		return ""
	}
	const enough = 8 // of a UID's hexadecimal digits
	uid := string(namespaces.Items[0].UID)
	return fmt.Sprintf("%s/%s/%s", uid[:min(len(uid), enough)], config.LeaderElection.ResourceNamespace, config.LeaderElection.ResourceName)
}
