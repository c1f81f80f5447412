package ess

import (
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Status codes of a scaling activity.
const (
	activityInProgress = "InProgress"
	activitySuccessful = "Successful"
	activityWarning    = "Warning"
	activityFailed     = "Failed"
	activityRejected   = "Rejected"
)

// activity is a change of a scaling group's size that takes time.
type activity struct {
	seq   uint64
	id    string
	group *group
	cause string
	// parallel activities may run beside each other.
	parallel bool
	metadata string

	// purchase is what a scale-out buys, zero for a scale-in; victims are what a scale-in removes.
	purchase purchase
	victims  []*member
	// replaces is the instance with a notice that leaves the group once its replacement is there.
	replaces *member
	// aged instances have been there since before the world began.
	aged bool
	// stopTimeout is how long a scale-in waits for instances that do not stop; nil waits for ever.
	stopTimeout *time.Duration
	// recycle has a scale-in stop its victims, in economical mode, instead of releasing them.
	recycle bool
	// invalid are the instances that a scale-in was asked to remove and left out.
	invalid []string

	status string
	// failure is why the activity came short, attempts every reason on the way there.
	failure  *protocol.Failure
	attempts []*protocol.Failure
	bought   bool
	created  []*member
	// rolledBack were created and released again, stayed could not be removed.
	rolledBack, stayed, removed []string
	before                      int
	started                     time.Time
	ended                       time.Time
}

func (a *activity) Ordinal() uint64 { return a.seq }

// outstanding is how many instances the activity will still bring.
func (a *activity) outstanding() int {
	if a.bought || a.status != activityInProgress {
		return 0
	}
	return a.purchase.count
}

// newActivity begins a scale-out.
func (g *group) newActivity(p purchase, cause string) *activity {
	s := g.scaling
	a := &activity{
		seq: s.cloud.Ordinal(), id: s.cloud.NewID("asa-"), group: g, cause: cause, purchase: p, status: activityInProgress,
		before: g.capacity(), started: s.cloud.Clock.Now(),
	}
	s.activities[a.id] = a
	g.history = append(g.history, a)
	g.running = append(g.running, a)
	return a
}

// schedule lets a scale-out buy half-way through its time and end at the end of it, unless scaling out is suspended.
func (a *activity) schedule() {
	s := a.group.scaling
	takes := s.cloud.Takes.Activity.Pick(s.cloud.Random)
	s.cloud.Later(takes/2, func(now time.Time) {
		if a.group.suspended(processScaleOut) && a.status == activityInProgress {
			a.reject(protocol.Fail(codeSuspended, "Process ScaleOut of scaling group %q is suspended.", a.group.ID))
			return
		}
		a.buy(now)
	})
	s.cloud.Later(takes, func(now time.Time) { a.finish(now) })
}

// finish starts what a scale-out created and closes it.
func (a *activity) finish(now time.Time) {
	if a.status != activityInProgress {
		return
	}
	a.rollBack()
	for _, i := range a.created {
		i.start()
	}
	if a.replaces != nil && len(a.created) > 0 {
		a.replaces.detach()
	}
	switch {
	case a.failure == nil:
		a.end(activitySuccessful, now)
	case len(a.created) > 0:
		a.end(activityWarning, now)
	default:
		a.end(activityFailed, now)
	}
}

// reject ends an activity before it did anything.
func (a *activity) reject(why *protocol.Failure) {
	s := a.group.scaling
	a.failure = why
	a.end(activityRejected, s.cloud.Clock.Now())
}

func (a *activity) end(status string, now time.Time) {
	a.status, a.ended = status, now
	a.group.running = slices.DeleteFunc(a.group.running, func(other *activity) bool { return other == a })
	a.group.replaceWaiting()
	a.group.lookAfter()
}

func (a *activity) progress() int {
	switch {
	case a.status != activityInProgress:
		return 100
	case a.bought:
		return 50
	}
	return 0
}

func (a *activity) statusMessage() string {
	switch {
	case a.failure != nil:
		return a.failure.Message
	case a.status == activityInProgress:
		return "The scaling activity is in progress."
	}
	return fmt.Sprintf("%d instances were created, %d were removed.", len(a.created), len(a.removed))
}

func (a *activity) description() string {
	if len(a.victims) > 0 {
		return fmt.Sprintf("Remove %d instances.", len(a.victims))
	}
	return fmt.Sprintf("Add %d instances.", a.purchase.count)
}
