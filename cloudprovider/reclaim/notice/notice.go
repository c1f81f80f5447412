// Package notice has the notices: what each source has announced about an instance, kept in memory and read from the Node.
//
// The Store is passive: nothing happens in it by itself, and it calls nobody. Package reclaim adds what sources announce, poll
// what ECS says of it, and mark what was withdrawn. Everybody else reads it, so packages below reclaim may ask it too which
// instances are reclaiming.
package notice

import (
	"cmp"
	"time"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Source says where a notice came from.
type Source string

const (
	// SourcePoll is the poll of DescribeInstances for instances that are locked as recycling. See package poll.
	SourcePoll Source = "ecs-poll"
	// SourcePush is an event of CloudMonitor or EventBridge. See package push and api.AnnotationNoticePush.
	SourcePush Source = "push"
	// SourceAgent is the node-agent, which reads the metadata of its instance. See api.AnnotationNoticeAgent.
	SourceAgent Source = "node-agent"
	// SourceCondition is ACK's node-problem-detector. See api.ConditionInstanceExpired.
	SourceCondition Source = "condition"
	// SourceFault is a condition of the Node that says that it is faulty: its instance is not released by Alibaba Cloud, but given
	// back once the Node is drained. See package fault.
	SourceFault Source = "fault"
	// SourceMove is the move of jobs from on-demand instances to spot ones. The instance is given back once its Node is drained; if the jobs do
	// not leave in time the Node is restored. What any other source announces takes its place. See package move.
	SourceMove Source = api.ReclaimSourceMove
	// SourceDrill is a rehearsal that an operator has started: the instance lives on, and its Node is restored. What any other source
	// announces takes its place. See package drill.
	SourceDrill Source = "drill"
	// SourceUnknown is that of a marked Node on which nothing readable says where its notice came from.
	SourceUnknown Source = "unknown"
)

// Sources are those that a mark may name: all but SourceUnknown.
var Sources = []Source{SourcePoll, SourcePush, SourceAgent, SourceCondition, SourceFault, SourceMove, SourceDrill}

// NeedsConfirmation returns whether nothing is evicted for a notice of the source before another source announces the same.
// Whoever has the token of a sender can push events.
func (s Source) NeedsConfirmation() bool { return s == SourcePush }

// DefaultPeriod is how long an instance lives from the first sight of its notice, if no source states the deadline. Alibaba Cloud
// releases a spot instance five minutes after it enters Recycling.
const DefaultPeriod = 5 * time.Minute

// Announcement is what one source says about one instance.
type Announcement struct {
	InstanceID string
	Source     Source
	// Deadline is zero if the source does not state it.
	Deadline time.Time
	// Within is how long after At the instance goes, for a source that does not state the deadline but knows better than the
	// Store's period. Zero stands for that.
	Within time.Duration
	// Until is how far a drill goes.
	Until Until
	// At is when the source said so; zero means now.
	At time.Time
}

// Notice is the announcement that an instance will be released, as all sources together have made it.
type Notice struct {
	InstanceID string
	// Deadline is when the instance is released, in UTC and whole seconds, because that is what its Node can carry.
	Deadline time.Time
	// Stated is true if a source named the deadline. Otherwise it is an estimate.
	Stated bool
	// Confirmed is true if a source speaks for it that needs no confirmation.
	Confirmed bool
	// Source is the one that announced it first, FirstSeen is when it did.
	Source    Source
	FirstSeen time.Time
	// Until is how far a drill goes. It is empty for what is no drill, and for a drill that is over: its time, or it no longer stands on its
	// Node.
	Until Until
}

const (
	// deleteMargin is how much of a notice is kept for deletions, and deleteMarginFraction the part of a short one.
	deleteMargin         = time.Minute
	deleteMarginFraction = 5
)

// Length is how long the notice is, from the first announcement to the deadline. It is not negative.
func (n Notice) Length() time.Duration { return max(n.Deadline.Sub(n.FirstSeen), 0) }

// DeleteFrom is when evictions end and pods are deleted instead: a minute before the deadline, or the last fifth of a notice that
// is shorter than five minutes.
func (n Notice) DeleteFrom() time.Time {
	return n.Deadline.Add(-min(deleteMargin, n.Length()/deleteMarginFraction))
}

// Merge returns the notice with what another source adds. A stated deadline is preferred to an estimated one, and of two of a
// kind the earlier is taken. A drill or a move adds nothing to what others announce, and what they announce takes its place.
func (n Notice) Merge(other Notice) Notice {
	switch {
	case n.Source == SourceUnknown:
		n.Source, n.FirstSeen, n.Until = other.Source, other.FirstSeen, other.Until
	case n.Yields() && !other.Yields():
		return other
	case other.Yields() && !n.Yields():
		return n
	}
	if other.Stated && !n.Stated || other.Stated == n.Stated && other.Deadline.Before(n.Deadline) {
		n.Deadline, n.Stated = other.Deadline, other.Stated
	}
	n.Confirmed = n.Confirmed || other.Confirmed
	return n
}

// maxAhead is how far ahead a deadline may be. Instances are announced minutes ahead.
const maxAhead = time.Hour

// newNotice returns the notice that the announcement alone makes. A deadline that cannot be right is estimated instead.
func newNotice(a Announcement, now time.Time, period time.Duration) Notice {
	now = now.UTC()
	n := Notice{
		InstanceID: a.InstanceID, Deadline: a.Deadline, Confirmed: !a.Source.NeedsConfirmation(), Source: a.Source, FirstSeen: a.At, Until: a.Until,
	}
	if n.FirstSeen.IsZero() || n.FirstSeen.After(now) {
		n.FirstSeen = now
	}
	n.Stated = !n.Deadline.IsZero() && n.Deadline.Sub(now) <= maxAhead
	if !n.Stated {
		n.Deadline = n.FirstSeen.Add(cmp.Or(a.Within, period))
	}
	n.Deadline = n.Deadline.UTC().Truncate(time.Second)
	return n
}

// Earlier returns the earlier of two times.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
