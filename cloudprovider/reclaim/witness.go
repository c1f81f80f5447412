package reclaim

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	nodeutil "k8s.io/component-helpers/node/util"
)

// witness returns an instance that exists beyond doubt, apart from the given ones: ESS lists it and its Node is ready, for
// longest of all. It is empty where there is none.
//
// An empty answer alone does not say that an instance is gone. Until December 2025 it was also what DescribeInstances
// answered, without an error, to a RAM user who may not call it; Forbidden.RAM has been announced in its place. Source:
// "Announcement of changes to the authentication mechanism for Alibaba Cloud ECS query-type APIs", ECS documentation.
func (c *Controller) witness(others sets.Set[string]) (instanceID string) {
	var oldest *corev1.Node
	for _, object := range c.nodeInformer.GetStore().List() {
		node := object.(*corev1.Node)
		id := c.instanceID(node)
		if id == "" || others.Has(id) || !isReady(node) || isMarked(node) || c.isRemoved(node) || !c.Lists(id) {
			continue
		}
		if oldest == nil || node.CreationTimestamp.Before(&oldest.CreationTimestamp) {
			oldest, instanceID = node, id
		}
	}
	return instanceID
}

func isReady(node *corev1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}
