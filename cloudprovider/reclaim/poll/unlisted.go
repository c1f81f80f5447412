package poll

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// unlistedPatience is how long ECS may leave out an instance of which another source has a notice.
const unlistedPatience = time.Minute

// noteUnlisted counts an instance that ECS does not list as recycling although another source says that it is, and although it was
// neither released nor kept. It is counted once for each notice that this process was told of: at once if the instance's own lock says
// so too, because then the filter of the list does not work, or else after ECS has had the time to catch up. Faults, moves and drills
// are not counted, because ECS knows nothing of them.
func (p *Poller) noteUnlisted(ctx context.Context, instance alicloud.Instance) {
	n, reclaiming := p.config.Notices.Get(instance.ID)
	announced := p.config.Notices.Announced(n)
	_, polled := announced[notice.SourcePoll]
	if !reclaiming || n.Source == notice.SourceFault || n.Yields() || !p.config.Notices.Heard(instance.ID) || polled || p.reportedUnlisted.Has(instance.ID) {
		return
	}
	if !instance.Recycling() && p.config.Clock.Since(n.FirstSeen) < unlistedPatience {
		return
	}
	p.reportedUnlisted.Insert(instance.ID)
	unlistedNotices.WithLabelValues(string(n.Source)).Inc()
	klog.FromContext(ctx).Info("ECS does not list an instance as recycling that another source has a notice of", "instance", instance.ID,
		"source", n.Source, "since", n.FirstSeen, "status", instance.Status, "locks", instance.LockReasons)
}

// noteStopped writes an Event, once for each instance, that it was stopped instead of released. It still holds room in its
// scaling group, and may be started again. So its Node keeps its marks, and nothing takes the instance for gone.
func (p *Poller) noteStopped(instance alicloud.Instance) {
	if instance.Status != statusStopped || instance.InterruptionBehavior != alicloud.InterruptionStop {
		return
	}
	for _, node := range p.config.Cluster.NodesOf(instance.ID) {
		n, reclaiming := p.config.Notices.Of(node)
		if !reclaiming || p.config.Clock.Since(n.Deadline) < notice.ReleaseGrace || p.reportedStopped.Has(instance.ID) {
			continue
		}
		p.reportedStopped.Insert(instance.ID)
		p.config.Events.Eventf(node, events.ReasonStopped, "Spot instance %s was stopped, not released: its SpotInterruptionBehavior is Stop. "+
			"It holds room in its scaling group; start it to have the node back, or release it", instance.ID)
	}
}
