package kubelet

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
)

// keepLeases holds a lease for each of our Nodes and lets go of it when the Node is no longer ours, as long as ctx lasts.
// The lease is the Node's heartbeat: the controller-manager calls a Node unreachable that has not renewed it for grace.
func keepLeases(ctx context.Context, client kubernetes.Interface, grace time.Duration) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(corev1.NamespaceNodeLease))
	nodes := factory.Core().V1().Nodes() // has no namespace
	leases := factory.Coordination().V1().Leases().Lister().Leases(corev1.NamespaceNodeLease)
	holder, err := controllers.NewNodeLeaseController(controllers.NodeLeaseControllerConfig{
		HolderIdentity:       "kwok",
		TypedClient:          client,
		LeaseDurationSeconds: uint(max(1, grace/time.Second)),
		LeaseParallelism:     leaseWorkers,
		RenewInterval:        grace / 4, // as a kubelet does
		RenewIntervalJitter:  0.04,
		GetLease: func(node string) (*coordinationv1.Lease, bool) {
			lease, err := leases.Get(node)
			return lease, err == nil
		},
		MutateLeaseFunc: func(lease *coordinationv1.Lease) error {
			node, err := nodes.Lister().Get(lease.Name)
			if err != nil {
				return err
			}
			lease.OwnerReferences = ownedBy(node) // so that it is collected with the Node
			return nil
		},
	})
	if err != nil {
		return err
	}
	follow := func(obj any) {
		if node := obj.(*corev1.Node); fake(node) {
			holder.TryHold(node.Name)
		} else {
			holder.ReleaseHold(node.Name)
		}
	}
	_, err = nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    follow,
		UpdateFunc: func(_, obj any) { follow(obj) },
		DeleteFunc: func(obj any) {
			if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				holder.ReleaseHold(key)
			}
		},
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return holder.Start(ctx)
}

func ownedBy(node *corev1.Node) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
}
