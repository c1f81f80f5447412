package reclaim

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// unseenPatience is how long the poll may be silent about an instance of which another source has a notice.
const unseenPatience = time.Minute

// noteUnseen counts, once for each notice, that ECS does not list an instance as recycling though another source says that
// it is, and though it has neither been released nor taken back: at once where its own lock says so too, so that the
// filter does not find it, else when the API has had the time to catch up.
func (c *Controller) noteUnseen(ctx context.Context, instance alicloud.Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	heard, known := c.notices[instance.ID]
	_, polled := heard.spoke[SourcePoll]
	if !known || polled || heard.unseen {
		return
	}
	if !instance.Recycling() && c.Clock.Since(heard.notice.FirstSeen) < unseenPatience {
		return
	}
	heard.unseen = true
	c.notices[instance.ID] = heard
	unseenByPoll.WithLabelValues(string(heard.notice.Source)).Inc()
	klog.FromContext(ctx).Info("ECS does not list an instance as recycling that another source has a notice of", "instance", instance.ID,
		"source", heard.notice.Source, "since", heard.notice.FirstSeen, "status", instance.Status, "locks", instance.LockReasons)
}

// overdue is how long after its deadline an instance that still exists is no reason any more to poll more often.
const overdue = 5 * time.Minute

// noteStopped tells, once for each instance, that it was stopped instead of released. That is no end: it holds room in its
// scaling group, and may be started again. So its Node keeps its marks, and nothing takes the instance for gone.
func (c *Controller) noteStopped(instance alicloud.Instance) {
	if instance.Status != statusStopped || instance.InterruptionBehavior != alicloud.InterruptionStop {
		return
	}
	for _, node := range c.nodesOf(instance.ID) {
		notice, doomed := c.noticeOf(node)
		if !doomed || c.Clock.Since(notice.Deadline) < releaseGrace || !c.firstStopped(instance.ID) {
			continue
		}
		c.event(node, ReasonStopped, "Spot instance %s was stopped, not released: its SpotInterruptionBehavior is Stop. "+
			"It holds room in its scaling group; start it to have the node back, or release it", instance.ID)
	}
}

// firstStopped says whether that was not yet told of the instance, and remembers it.
func (c *Controller) firstStopped(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.Has(id) {
		return false
	}
	c.stopped.Insert(id)
	return true
}

func (c *Controller) pruneStopped(doomed sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = c.stopped.Intersection(doomed)
}
