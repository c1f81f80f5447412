package reclaim

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// On-demand instances are never reclaimed, so whoever says that one is errs or lies: no notice touches its Node. Where no
// label says what an instance is, ECS does when it is asked after it.

// isOnDemand is false where neither ACK's label nor ours says so.
func isOnDemand(node *corev1.Node) bool {
	if strategy := node.Labels[api.LabelSpotStrategy]; strategy != "" {
		return strategy == alicloud.NoSpot
	}
	return node.Labels[api.LabelPurchaseOption] == api.PurchaseOnDemand
}

// isOnDemandInstance says whether a Node of the instance says that it is on-demand.
func (c *Controller) isOnDemandInstance(id string) bool {
	return slices.ContainsFunc(c.nodesOf(id), isOnDemand)
}

// spare takes the marks off an on-demand Node: its label came after them, or somebody put them on by hand.
func (c *Controller) spare(ctx context.Context, node *corev1.Node) error {
	notice, ok := readMark(node, c.instanceID(node))
	if !ok {
		notice = Notice{InstanceID: c.instanceID(node), Source: SourceUnknown}
	}
	return c.giveBack(ctx, node, notice)
}
