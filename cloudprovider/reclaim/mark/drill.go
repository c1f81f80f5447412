package mark

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/drill"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/nodepatch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// Drills are implemented by *drill.Watcher.
type Drills interface {
	Over(node *corev1.Node, n notice.Notice) (drill.Outcome, bool)
	Refusal(node *corev1.Node) error
}

// endings are what the Event says about each outcome.
var endings = map[drill.Outcome]string{
	drill.Missed:    "an acknowledgement did not come in time",
	drill.Expired:   "its time was over",
	drill.Cancelled: "it was ended early",
	drill.Overtaken: "something else takes the instance, or another node of its jobs",
}

// endDrill gives the Node back. Its instance stays.
func (m *Marker) endDrill(ctx context.Context, node *corev1.Node, n notice.Notice, outcome drill.Outcome) error {
	if changed, err := m.restore(ctx, node, n); err != nil || !changed {
		return err
	}
	d, _, _ := notice.DrillOf(node)
	drill.Count(d.Until, outcome)
	how := endings[outcome]
	if outcome == drill.Completed {
		how = "all work is saved"
		if d.Until == notice.UntilDrain {
			how = "the node was drained"
		}
	}
	left := max(n.Deadline.Sub(m.config.Clock.Now()), 0)
	klog.FromContext(ctx).Info("Took the marks of a drill off", "node", klog.KObj(node), "instance", n.InstanceID, "outcome", outcome)
	m.config.Events.Eventf(node, events.ReasonDrillEnded, "%s%s: %s, %s before its end. The node is restored, and instance %s stays", n.Prefix(), outcome, how,
		events.FormatLeft(left), n.InstanceID)
	if m.config.Removals.Has(node) {
		return m.noteRemoved(ctx, node)
	}
	return nil
}

// restore takes the marks off the Node of an instance that stays.
func (m *Marker) restore(ctx context.Context, node *corev1.Node, n notice.Notice) (changed bool, err error) {
	changed, err = nodepatch.Apply(ctx, m.config.Client, node, func(node *corev1.Node) { Remove(node, m.config.Clock.Now()) })
	if err != nil {
		return false, err
	}
	m.config.Backlog.Done(node.Name)
	if !cluster.IsMarked(node) { // or else it ends when the informer shows that the marks are off
		m.config.Notices.Unmarked(n.InstanceID)
	}
	return changed, nil
}

// refuseDrill takes off a Node without a notice the drill that does not begin.
func (m *Marker) refuseDrill(ctx context.Context, node *corev1.Node, why error) error {
	changed, err := nodepatch.Apply(ctx, m.config.Client, node, func(node *corev1.Node) { delete(node.Annotations, api.AnnotationDrill) })
	if err != nil || !changed {
		return err
	}
	d, _, _ := notice.DrillOf(node)
	drill.Count(d.Until, drill.Refused)
	m.config.Events.Eventf(node, events.ReasonDrillEnded, "%s%s: %v", notice.PrefixOf(true), drill.Refused, why)
	return nil
}

// replaceYielded takes off the Node what stands there of a drill or a move, if the notice is neither.
func replaceYielded(node *corev1.Node, n notice.Notice) {
	if !n.IsDrill() {
		delete(node.Annotations, api.AnnotationDrill)
	}
	if hasYielded(node, n) {
		for _, key := range []string{api.AnnotationReclaimStated, api.AnnotationReclaimDrained, api.AnnotationReclaimForced} {
			delete(node.Annotations, key)
		}
	}
}

// hasYielded returns whether the marks on the Node are those of a drill or a move, and the notice is neither.
func hasYielded(node *corev1.Node, n notice.Notice) bool {
	marked, isMarked := notice.FromMarks(node, n.InstanceID)
	return isMarked && marked.Yields() && !n.Yields()
}

// isOfDrill returns whether the marks on the Node are those of a drill.
func isOfDrill(node *corev1.Node) bool {
	return notice.Source(node.Annotations[api.AnnotationReclaimSource]) == notice.SourceDrill
}

// noticeEvent returns what the Event says of a Node that was marked, of the instance, the deadline, the source, and what comes next.
func noticeEvent(n notice.Notice) (format, next string) {
	format = "Spot instance %s will be released at %s (%s); tainted and cordoned, %s"
	switch {
	case n.IsDrill():
		format = "Spot instance %s is treated as if it were released at %s (%s), and stays; tainted and cordoned, %s"
		next = fmt.Sprintf("until %s", n.Until)
	case n.Source == notice.SourceFault:
		format = "Instance %s will be given back by %s (%s); tainted and cordoned, %s"
		next = "draining"
	case n.IsMove():
		format = "On-demand instance %s is given back once its jobs have moved to spot instances, until %s (%s); tainted and cordoned, %s"
		next = "draining"
	case !n.Confirmed:
		next = "draining once ECS or the instance's metadata confirm it"
	default:
		next = "draining"
	}
	return n.Prefix() + format, next
}
