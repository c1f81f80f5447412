package reclaim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Removed is told which instances ESS has accepted to remove, since they were given back. Each of their Nodes is deleted
// once neither ESS nor ECS lists the instance, and never before. Left alone it would stay for minutes, even as a Ready one:
// the cloud controller looks at Nodes every five minutes, and deletes one only if its Ready is Unknown by then.
// Source: node_controller.go of kubernetes/cloud-provider-alibaba-cloud.
//
// It is written on the Nodes, so that a new leader goes on. Removed does not block.
func (c *Controller) Removed(instanceIDs []string) {
	c.mu.Lock()
	c.removed.Insert(instanceIDs...)
	c.mu.Unlock()
	for _, id := range instanceIDs {
		for _, node := range c.nodesOf(id) {
			c.marks.Add(node.Name)
		}
	}
}

// isRemoved says whether the Node's instance was given back, by this leader or a former one.
func (c *Controller) isRemoved(node *corev1.Node) bool {
	if _, noted := node.Annotations[api.AnnotationRemoved]; noted {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed.Has(c.instanceID(node))
}

// syncRemoved notes on the Node that its instance was given back, and deletes the Node once the instance is gone.
func (c *Controller) syncRemoved(ctx context.Context, node *corev1.Node) error {
	if !c.isRemoved(node) {
		return nil
	}
	id := c.instanceID(node)
	if c.verdictOf(id) != released {
		now := c.Clock.Now().UTC().Format(time.RFC3339)
		_, err := patchNode(ctx, c.MarkClient, node, func(node *corev1.Node) nodePatch {
			patch := nodePatch{}
			if _, noted := node.Annotations[api.AnnotationRemoved]; !noted {
				patch.annotate(api.AnnotationRemoved, now)
			}
			return patch
		})
		return err
	}
	deleted, err := c.deleteNode(ctx, node)
	if deleted {
		removedNodes.Inc()
		klog.FromContext(ctx).Info("Removed the node of an instance that was given back", "node", klog.KObj(node), "instance", id)
		c.event(node, ReasonRemoved, "Instance %s was given back and is gone; the node is removed", id)
	}
	return err
}

// removedAndUnlisted are the instances that were given back and that ESS lists no more, whose Nodes may still be there.
func (c *Controller) removedAndUnlisted() sets.Set[string] {
	c.mu.Lock()
	found := c.removed.Clone()
	c.mu.Unlock()
	for _, node := range indexed[*corev1.Node](c.nodeInformer, byMark, givenBack) {
		found.Insert(c.instanceID(node))
	}
	for id := range found {
		if c.Lists(id) {
			found.Delete(id)
		}
	}
	return found
}

// deleteNode deletes the Node of an instance that is no more, and what is left of its pods. The cloud controller does so
// too: whoever comes second finds it done.
func (c *Controller) deleteNode(ctx context.Context, node *corev1.Node) (deleted bool, err error) {
	c.bury(ctx, node)
	err = c.Client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &node.UID},
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
