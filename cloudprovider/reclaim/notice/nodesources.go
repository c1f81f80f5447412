package notice

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// NodeSource reads what a source has written on Nodes.
//
// As long as the source returns an announcement, its notice stands, even if ECS contradicts it, but for a minute after the deadline at
// most. Then the marks are removed, and with them SourceAnnotations. An annotation, a label or a condition that is not removed with them
// would make a notice of the false alarm again, so its source has to return false from then on. For that, something on the Node has to
// say a time:
//   - the deadline: the source returns false if that cannot be read, once it isOver, and if it is more than maxAhead away, because such a
//     deadline is replaced by an estimate, which begins anew each time;
//   - or when it was written: the source returns false unless that is after api.AnnotationReclaimCancelled, as conditionSource does.
type NodeSource interface {
	// Announcement returns what the source says on the Node, and false if it says nothing. The instance is filled in by the caller.
	Announcement(node *corev1.Node) (Announcement, bool)
}

// Announcements returns what stands on the Node, from all sources that write there.
func (s *Store) Announcements(node *corev1.Node) (found []Announcement) {
	id := s.cluster.InstanceID(node)
	if id == "" {
		return nil
	}
	for _, source := range s.nodeSources {
		if a, ok := source.Announcement(node); ok {
			a.InstanceID = id
			found = append(found, a)
		}
	}
	return found
}

// nodeSources are in the order in which they are read. What is only pushed comes after what may confirm it, and drills are last,
// because all others take their place.
func nodeSources(clk clock.PassiveClock, period time.Duration) []NodeSource {
	sources := []NodeSource{agentSource{clk}}
	for _, condition := range conditions {
		condition.clock, condition.period = clk, period
		sources = append(sources, condition)
	}
	return append(sources, pushSource{clk}, drillSource{clk})
}

// conditions are the sources that set a condition of Nodes.
var conditions = []conditionSource{{source: SourceCondition, condition: api.ConditionInstanceExpired}}

// IsNotice returns whether a Node of which the condition is True has a notice.
func IsNotice(condition corev1.NodeConditionType) bool {
	return slices.ContainsFunc(conditions, func(s conditionSource) bool { return s.condition == condition })
}

// SourceAnnotations are the annotations by which sources announce on Nodes. They are removed from a Node whose notice was
// withdrawn. All have api.Prefix, because the admission policies forbid the autoscaler to remove others.
var SourceAnnotations = []string{api.AnnotationNoticeAgent, api.AnnotationNoticePush, api.AnnotationNoticePushReceived}

// ReleaseGrace is how long after its deadline an instance may still be about to go.
const ReleaseGrace = time.Minute

// isOver returns whether the instance has outlived the deadline by so much that the announcement came to nothing.
func isOver(deadline time.Time, clk clock.PassiveClock) bool {
	return !deadline.IsZero() && clk.Since(deadline) >= ReleaseGrace
}

// agentSource is the annotation of the node-agent.
type agentSource struct{ clock clock.PassiveClock }

// Announcement goes by the annotation having a value, readable or not: that there is a notice counts for more than its deadline.
func (s agentSource) Announcement(node *corev1.Node) (Announcement, bool) {
	deadline := cluster.TimeOf(node, api.AnnotationNoticeAgent)
	return Announcement{Source: SourceAgent, Deadline: deadline},
		node.Annotations[api.AnnotationNoticeAgent] != "" && !isOver(deadline, s.clock)
}

// pushSource is the annotation that the handler of package push writes.
type pushSource struct{ clock clock.PassiveClock }

// Announcement leaves out what the handler cannot have written.
func (s pushSource) Announcement(node *corev1.Node) (Announcement, bool) {
	deadline := cluster.TimeOf(node, api.AnnotationNoticePush)
	return Announcement{Source: SourcePush, Deadline: deadline, At: cluster.TimeOf(node, api.AnnotationNoticePushReceived)},
		!deadline.IsZero() && !isOver(deadline, s.clock)
}

// HasExpiredPush returns whether a pushed notice stands on the Node that came to nothing, or that cannot be read.
func HasExpiredPush(node *corev1.Node, clk clock.PassiveClock) bool {
	_, stands := pushSource{clk}.Announcement(node)
	return node.Annotations[api.AnnotationNoticePush] != "" && !stands
}

// conditionSource is a condition that somebody else sets, such as ACK's node-problem-detector.
type conditionSource struct {
	source    Source
	condition corev1.NodeConditionType
	clock     clock.PassiveClock
	period    time.Duration
}

// Announcement leaves out a condition from before the last notice of the Node was withdrawn.
func (s conditionSource) Announcement(node *corev1.Node) (Announcement, bool) {
	_, condition := nodeutil.GetNodeCondition(&node.Status, s.condition)
	if condition == nil || condition.Status != corev1.ConditionTrue {
		return Announcement{}, false
	}
	at, withdrawn := condition.LastTransitionTime.Time, cluster.TimeOf(node, api.AnnotationReclaimCancelled)
	if !withdrawn.IsZero() && !at.After(withdrawn) {
		return Announcement{}, false
	}
	if s.clock.Since(at) > s.period {
		at = time.Time{} // the instance has outlived a deadline estimated from there
	}
	return Announcement{Source: s.source, At: at}, true
}
