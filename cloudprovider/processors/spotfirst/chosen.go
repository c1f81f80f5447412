package spotfirst

import (
	"sync/atomic"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
)

// chosenPods are those that the last loop has chosen of the pods without a place. They are safe for concurrent use.
type chosenPods struct {
	uids atomic.Pointer[sets.Set[types.UID]]
}

func (c *chosenPods) has(pod *apiv1.Pod) bool {
	uids := c.uids.Load()
	return uids != nil && uids.Has(pod.UID)
}

// choose returns which of the pods that have no place are chosen.
type choose func(ctx *cacontext.AutoscalingContext, left []*apiv1.Pod) (sets.Set[types.UID], error)

// after returns a processor that calls inner, which places pods on the nodes that there are or that are on their way, and chooses of those that are left.
func (c *chosenPods) after(inner pods.PodListProcessor, choose choose) pods.PodListProcessor {
	return &choosing{inner, choose, c}
}

type choosing struct {
	pods.PodListProcessor
	choose choose
	chosen *chosenPods
}

// Process returns the pods that the inner processor leaves.
func (c *choosing) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	left, err := c.PodListProcessor.Process(ctx, unschedulable)
	if err != nil {
		return nil, err
	}
	uids, err := c.choose(ctx, left)
	if err != nil {
		return nil, err
	}
	c.chosen.uids.Store(&uids)
	return left, nil
}
