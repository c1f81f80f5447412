package reclaim

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/drain"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
	"gpu-spot-autoscaler/cloudprovider/work"
)

var (
	_ poll.Listener   = (*listener)(nil)
	_ fault.Listener  = (*listener)(nil)
	_ cluster.Handler = (*listener)(nil)
)

// listener hears of notices from sources, and of Nodes, pods and PodDisruptionBudgets from the informers, and has the parts of a reclaim
// do what follows. Its exported methods are safe for concurrent use.
type listener struct {
	cluster    *cluster.Cluster
	notices    *notice.Store
	removals   *notice.Removals
	events     *events.Recorder
	clock      clock.PassiveClock
	backlog    *mark.Backlog
	handshakes *handshake.Controller
	drainer    *drain.Drainer
	onNotice   func()

	// marks and drains hold names of Nodes. They are two queues so that no mark waits for a drain.
	marks, drains work.Queue[string]
}

// Announce enters what sources announce, and has the Nodes marked.
func (l *listener) Announce(ctx context.Context, announcements ...notice.Announcement) {
	l.enter(ctx, announcements)
}

// enter enters the announcements, and returns whether a Node is reclaiming that was not before, and whether Nodes were queued to be marked.
func (l *listener) enter(ctx context.Context, announcements []notice.Announcement) (news, queued bool) {
	defer l.notify()
	if len(announcements) == 0 {
		return false, false
	}
	defer l.backlog.Announcing()()
	for _, a := range announcements {
		if a.Source != notice.SourceFault && a.Source != notice.SourceMove && l.isOnDemand(a.InstanceID) {
			klog.FromContext(ctx).V(2).Info("Ignored a notice for an on-demand instance", "instance", a.InstanceID, "source", a.Source)
			continue
		}
		if l.hold(ctx, a) {
			continue
		}
		change := l.notices.Add(a)
		if !change.Changed {
			continue
		}
		// The Nodes are looked up after the notice was added. A Node that is added in between finds it in NodeAdded.
		nodes := l.cluster.NodesOf(a.InstanceID)
		klog.FromContext(ctx).Info("Notice", "instance", a.InstanceID, "source", a.Source, "nodes", klog.KObjSlice(nodes))
		for _, node := range nodes {
			l.markSoon(node)
			news, queued = news || change.First, true
			if change.Confirmed {
				l.drain(node)
			}
		}
	}
	if news {
		l.backlog.AddNews()
	}
	return news, queued
}

func (l *listener) isOnDemand(instanceID string) bool {
	for _, node := range l.cluster.NodesOf(instanceID) {
		if cluster.IsOnDemand(node) {
			return true
		}
	}
	return false
}

// hold holds the announcement if it is a pushed notice that is not to be acted upon, and reports that once. It returns whether it is held.
func (l *listener) hold(ctx context.Context, a notice.Announcement) (held bool) {
	if l.notices.IsHeld(a) {
		return true
	}
	reason := l.notices.ReasonToHold(a)
	if reason == "" || !l.notices.Hold(a) {
		return false
	}
	l.reportHeld(ctx, a.InstanceID, reason)
	return true
}

func (l *listener) reportHeld(ctx context.Context, instanceID, reason string) {
	klog.FromContext(ctx).Info("A pushed notice is held until another source confirms it", "instance", instanceID, "reason", reason)
	for _, node := range l.cluster.NodesOf(instanceID) {
		l.events.Eventf(node, events.ReasonHeld, "A notice was pushed for spot instance %s. It is not acted upon before ECS or the instance's metadata confirm it: %s",
			instanceID, reason)
	}
}

// markSoon queues the Node. A first mark goes before all drains.
func (l *listener) markSoon(node *corev1.Node) {
	if !cluster.IsMarked(node) {
		l.backlog.Add(node.Name)
	}
	l.marks.Add(node.Name)
}

// Judged has the Nodes of a released instance deleted, and the marks taken off those of one whose notice was withdrawn.
func (l *listener) Judged(instanceID string) { l.syncMarks(instanceID) }

// Listed looks at what changes with time.
func (l *listener) Listed() {
	for _, id := range l.notices.ForgetExpiredHeld() {
		l.syncMarks(id)
	}
	l.expose()
	l.handshakes.CheckReplacements()
}

// expose sets the gauges.
func (l *listener) expose() {
	unconfirmedNotices.Set(float64(l.notices.Unconfirmed().Len()))
	marked, next := 0, int64(0)
	for _, node := range l.cluster.MarkedNodes() {
		n, reclaiming := l.notices.Of(node)
		if n.Yields() {
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
func (l *listener) NodeAdded(ctx context.Context, node *corev1.Node) {
	l.handshakes.NodeAdded(node)
	if news, _ := l.enter(ctx, l.notices.Announcements(node)); news {
		return
	}
	if _, reclaiming := l.notices.Of(node); !reclaiming {
		if l.removals.Has(node) || cluster.IsMarked(node) || notice.HasExpiredPush(node, l.clock) {
			l.marks.Add(node.Name)
		}
		return
	}
	if !cluster.IsMarked(node) {
		l.backlog.AddNews()
	}
	l.markSoon(node)
}

// NodeUpdated puts back a mark that somebody took off, and begins the drain once the informer shows the marks: drain.Sync reads
// the marks from the informer. Heartbeats change nothing.
func (l *listener) NodeUpdated(ctx context.Context, old, node *corev1.Node) {
	if old.UID != node.UID { // a watch that was interrupted has missed the end of the one and the beginning of the other
		l.NodeDeleted(old)
		l.NodeAdded(ctx, node)
		return
	}
	l.forgetUnmarked(old, node)
	if cluster.IsMarked(old) && !cluster.IsMarked(node) {
		l.notices.Unmarked(l.cluster.InstanceID(node))
	}
	l.handshakes.NodeChanged(old, node)
	_, queued := l.enter(ctx, l.notices.Announcements(node))
	n, reclaiming := l.notices.Of(node)
	if n.IsDrill() && old.Annotations[api.AnnotationDrill] != node.Annotations[api.AnnotationDrill] {
		l.marks.Add(node.Name) // somebody may have ended it
	}
	switch {
	case !reclaiming:
		if cluster.IsMarked(node) {
			l.marks.Add(node.Name)
		}
	case !mark.IsComplete(node, n):
		if l.cluster.InstanceID(old) == "" && !cluster.IsMarked(node) {
			l.backlog.AddNews() // it has a notice that came before its providerID
		}
		if !queued {
			l.markSoon(node)
		}
	case !mark.IsComplete(old, n):
		l.drain(node)
	}
}

// NodeDeleted has the jobs looked at that had pods there, and counts the outcome of a reclaim.
func (l *listener) NodeDeleted(node *corev1.Node) {
	l.handshakes.NodeChanged(node, nil)
	if !cluster.IsMarked(node) || l.cluster.InstanceID(node) == "" {
		return
	}
	n, _ := l.notices.Of(node)
	if !n.IsMove() {
		mark.CountOutcome(cmp.Or(n.Source, notice.SourceUnknown), l.drainer.Outcome(node))
	}
	l.forgetUnmarked(node, nil)
	if l.notices.Verdicts.On(n.InstanceID) == notice.Released && len(l.cluster.NodesOf(n.InstanceID)) == 0 {
		l.notices.Forget(n.InstanceID)
		l.removals.Forget(n.InstanceID)
	}
}

func (l *listener) forgetUnmarked(old, node *corev1.Node) {
	if cluster.IsMarked(old) && (node == nil || !cluster.IsMarked(node)) {
		l.drainer.Forget(old.Name)
	}
}

// PodChanged goes on with the drain of the pod's Node, and with the handshake with its job.
func (l *listener) PodChanged(pod *corev1.Pod) {
	if node := l.cluster.Node(pod.Spec.NodeName); node != nil && cluster.IsMarked(node) {
		l.drains.Add(node.Name)
	}
	l.handshakes.PodChanged(pod)
}

// PDBChanged goes on with the drain of the Nodes whose pods wait for the PodDisruptionBudget.
func (l *listener) PDBChanged(pdb *policyv1.PodDisruptionBudget) {
	for _, node := range l.drainer.PDBChanged(pdb) {
		l.drains.Add(node)
	}
}

// notify calls onNotice and writes Events once the Nodes of all notices are marked, or have waited long enough.
func (l *listener) notify() {
	if l.backlog.TakeNews() {
		l.onNotice()
	}
	for _, do := range l.backlog.TakeAfterwards() {
		do()
	}
}

// drain begins or goes on with the drain of a marked Node.
func (l *listener) drain(node *corev1.Node) {
	if !l.handshakes.NodeMarked(node) {
		l.drainer.LookAtJobs(node.Name)
	}
	l.drains.Add(node.Name)
}

// syncMarks has the marks on the Nodes of the instance brought in line.
func (l *listener) syncMarks(instanceID string) {
	for _, node := range l.cluster.NodesOf(instanceID) {
		l.marks.Add(node.Name)
	}
}
