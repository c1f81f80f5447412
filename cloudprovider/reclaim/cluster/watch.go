package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Handler is told of changes. Its methods are called one at a time for objects of one kind, and must not block.
type Handler interface {
	NodeAdded(ctx context.Context, node *corev1.Node)
	NodeUpdated(ctx context.Context, old, node *corev1.Node)
	NodeDeleted(node *corev1.Node)
	// PodChanged is called for each pod on a Node that was added, updated or deleted.
	PodChanged(pod *corev1.Pod)
	// PDBChanged is called for each PodDisruptionBudget that was added, updated or deleted.
	PDBChanged(pdb *policyv1.PodDisruptionBudget)
}

// Watch has the handler told of changes until the caller calls stop. It returns once the handler was told of everything that
// there is, or with an error if ctx ends before.
func (c *Cluster) Watch(ctx context.Context, handler Handler) (stop func(), err error) {
	nodes, nodesErr := c.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { handler.NodeAdded(ctx, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) { handler.NodeUpdated(ctx, old.(*corev1.Node), obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) {
			if node := lastState[corev1.Node](obj); node != nil {
				handler.NodeDeleted(node)
			}
		},
	})
	podChanged := func(pod *corev1.Pod) {
		if pod != nil && pod.Spec.NodeName != "" {
			handler.PodChanged(pod)
		}
	}
	pods, podsErr := c.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { podChanged(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { podChanged(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) { podChanged(lastState[corev1.Pod](obj)) },
	})
	pdbChanged := func(pdb *policyv1.PodDisruptionBudget) {
		if pdb != nil {
			handler.PDBChanged(pdb)
		}
	}
	pdbs, pdbsErr := c.pdbs.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { pdbChanged(obj.(*policyv1.PodDisruptionBudget)) },
		UpdateFunc: func(_, obj any) { pdbChanged(obj.(*policyv1.PodDisruptionBudget)) },
		DeleteFunc: func(obj any) { pdbChanged(lastState[policyv1.PodDisruptionBudget](obj)) },
	})
	if err := errors.Join(nodesErr, podsErr, pdbsErr); err != nil {
		return nil, fmt.Errorf("watch nodes, pods and PodDisruptionBudgets: %w", err)
	}
	stop = func() {
		if err := errors.Join(c.nodes.RemoveEventHandler(nodes), c.pods.RemoveEventHandler(pods), c.pdbs.Informer().RemoveEventHandler(pdbs)); err != nil {
			klog.FromContext(ctx).Error(err, "Could not remove the event handlers")
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced, pdbs.HasSynced) {
		stop()
		return nil, fmt.Errorf("watch nodes, pods and PodDisruptionBudgets: the caches did not fill: %w", context.Cause(ctx))
	}
	return stop, nil
}

// lastState returns the last known state of an object that was deleted, nil if that is not known.
func lastState[T any](obj any) *T {
	if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = deleted.Obj
	}
	object, _ := obj.(*T)
	return object
}
