package reclaim

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

var (
	_ poll.Listener   = (*Controller)(nil)
	_ fault.Listener  = (*Controller)(nil)
	_ cluster.Handler = (*Controller)(nil)
)

// Announce enters what sources announce, and has the Nodes marked. A source that is added later calls it, too.
func (c *Controller) Announce(ctx context.Context, announcements ...notice.Announcement) {
	c.announce(ctx, announcements)
}

// announce returns whether a Node is reclaiming that was not before, and whether Nodes were queued to be marked.
func (c *Controller) announce(ctx context.Context, announcements []notice.Announcement) (news, queued bool) {
	defer c.notify()
	if len(announcements) == 0 {
		return false, false
	}
	defer c.backlog.Announcing()()
	for _, a := range announcements {
		if a.Source != notice.SourceFault && c.isOnDemand(a.InstanceID) {
			klog.FromContext(ctx).V(2).Info("Ignored a notice for an on-demand instance", "instance", a.InstanceID, "source", a.Source)
			continue
		}
		if held, reason := c.notices.Hold(a); held {
			c.reportHeld(ctx, a.InstanceID, reason)
			continue
		}
		change := c.notices.Add(a)
		if !change.Changed {
			continue
		}
		// The Nodes are looked up after the notice was added. A Node that is added in between finds it in NodeAdded.
		nodes := c.cluster.NodesOf(a.InstanceID)
		klog.FromContext(ctx).Info("Notice", "instance", a.InstanceID, "source", a.Source, "nodes", klog.KObjSlice(nodes))
		for _, node := range nodes {
			c.markSoon(node)
			news, queued = news || change.First, true
			if change.Confirmed {
				c.drain(node)
			}
		}
	}
	if news {
		c.backlog.AddNews()
	}
	return news, queued
}

func (c *Controller) isOnDemand(instanceID string) bool {
	for _, node := range c.cluster.NodesOf(instanceID) {
		if cluster.IsOnDemand(node) {
			return true
		}
	}
	return false
}

func (c *Controller) reportHeld(ctx context.Context, instanceID, reason string) {
	if reason == "" {
		return // it was reported
	}
	klog.FromContext(ctx).Info("A pushed notice is held until another source confirms it", "instance", instanceID, "reason", reason)
	for _, node := range c.cluster.NodesOf(instanceID) {
		c.events.Eventf(node, events.ReasonHeld, "A notice was pushed for spot instance %s. It is not acted upon before ECS or the instance's metadata confirm it: %s",
			instanceID, reason)
	}
}

// markSoon queues the Node. A first mark goes before all drains.
func (c *Controller) markSoon(node *corev1.Node) {
	if !cluster.IsMarked(node) {
		c.backlog.Add(node.Name)
	}
	c.marks.Add(node.Name)
}

// Judged has the Nodes of an instance deleted that was released, or given back whose notice was withdrawn.
func (c *Controller) Judged(instanceID string) { c.syncMarks(instanceID) }

// Listed looks at what changes with time.
func (c *Controller) Listed() {
	for _, id := range c.notices.DropExpiredHeld() {
		c.syncMarks(id)
	}
	c.expose()
	c.handshakes.CheckReplacements()
}

// expose sets the gauges.
func (c *Controller) expose() {
	unconfirmedNotices.Set(float64(c.notices.Unconfirmed().Len()))
	marked, next := 0, int64(0)
	for _, node := range c.cluster.MarkedNodes() {
		n, reclaiming := c.notices.Of(node)
		if n.IsDrill() {
			continue
		}
		marked++
		if reclaiming && (next == 0 || n.Deadline.Unix() < next) {
			next = n.Deadline.Unix()
		}
	}
	underWay.Set(float64(marked))
	nextDeadline.Set(float64(next))
}

// NodeAdded takes up what stands on the Node, and what was announced of its instance before.
func (c *Controller) NodeAdded(ctx context.Context, node *corev1.Node) {
	c.handshakes.NodeAdded(node)
	if news, _ := c.announce(ctx, c.notices.Announcements(node)); news {
		return
	}
	if _, reclaiming := c.notices.Of(node); !reclaiming {
		if c.removals.Has(node) || cluster.IsMarked(node) || notice.HasExpiredPush(node, c.marker.Clock) {
			c.marks.Add(node.Name)
		}
		return
	}
	if !cluster.IsMarked(node) {
		c.backlog.AddNews()
	}
	c.markSoon(node)
}

// NodeUpdated puts back a mark that somebody took off, and begins the drain once the informer shows the marks: drain.Sync reads
// the marks from the informer. Heartbeats change nothing.
func (c *Controller) NodeUpdated(ctx context.Context, old, node *corev1.Node) {
	c.forgetUnmarked(old, node)
	if cluster.IsMarked(old) && !cluster.IsMarked(node) {
		c.notices.Unmarked(c.cluster.InstanceID(node))
	}
	c.handshakes.NodeChanged(old, node)
	_, queued := c.announce(ctx, c.notices.Announcements(node))
	n, reclaiming := c.notices.Of(node)
	if n.IsDrill() && old.Annotations[api.AnnotationDrill] != node.Annotations[api.AnnotationDrill] {
		c.marks.Add(node.Name) // somebody may have ended it
	}
	switch {
	case !reclaiming:
		if cluster.IsMarked(node) {
			c.marks.Add(node.Name)
		}
	case !mark.IsComplete(node, n):
		if !queued {
			c.markSoon(node)
		}
	case !mark.IsComplete(old, n):
		c.drain(node)
	}
}

// NodeDeleted has the jobs looked at that had pods there, and counts the outcome of a reclaim.
func (c *Controller) NodeDeleted(node *corev1.Node) {
	c.handshakes.NodeChanged(node, nil)
	if !cluster.IsMarked(node) || c.cluster.InstanceID(node) == "" {
		return
	}
	n, _ := c.notices.Of(node)
	mark.CountOutcome(cmp.Or(n.Source, notice.SourceUnknown), c.drainer.Outcome(node))
	c.forgetUnmarked(node, nil)
	if c.notices.VerdictOn(n.InstanceID) == notice.Released && len(c.cluster.NodesOf(n.InstanceID)) == 0 {
		c.notices.Forget(n.InstanceID)
		c.removals.Forget(n.InstanceID)
	}
}

func (c *Controller) forgetUnmarked(old, node *corev1.Node) {
	if cluster.IsMarked(old) && (node == nil || !cluster.IsMarked(node)) {
		c.drainer.Forget(old.Name)
	}
}

// PodChanged goes on with the drain of the pod's Node, and with the handshake with its job.
func (c *Controller) PodChanged(pod *corev1.Pod) {
	if node := c.cluster.Node(pod.Spec.NodeName); node != nil && cluster.IsMarked(node) {
		c.drains.Add(node.Name)
	}
	c.handshakes.PodChanged(pod)
}

// BudgetChanged goes on with the drain of the Nodes whose pods wait for the budget.
func (c *Controller) BudgetChanged(budget *policyv1.PodDisruptionBudget) {
	for _, node := range c.drainer.BudgetChanged(budget) {
		c.drains.Add(node)
	}
}
