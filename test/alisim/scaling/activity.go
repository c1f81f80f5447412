package scaling

import (
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Status codes of a scaling activity.
const (
	ActivityInProgress = "InProgress"
	ActivitySuccessful = "Successful"
	ActivityWarning    = "Warning"
	ActivityFailed     = "Failed"
	ActivityRejected   = "Rejected"
)

// Activity is a change of a scaling group's size that takes time.
type Activity struct {
	seq   uint64
	ID    string
	Group *Group
	Cause string
	// Parallel activities may run beside each other.
	Parallel bool
	Metadata string

	// Purchase is what a scale-out buys, zero for a scale-in; Victims are what a scale-in removes.
	Purchase Purchase
	Victims  []*Member
	// replaces is the instance with a notice that leaves the group once its replacement is there.
	replaces *Member
	// exchanges is the pay-as-you-go instance that is released once its replacement is there.
	exchanges *Member
	// aged instances have been there since before the world began.
	aged bool
	// stopTimeout is how long a scale-in waits for instances that do not stop; nil waits for ever.
	stopTimeout *time.Duration
	// Recycle has a scale-in stop its victims, in economical mode, instead of releasing them.
	Recycle bool
	// Invalid are the instances that a scale-in was asked to remove and left out.
	Invalid []string

	// attaches is how many instances are attached that somebody else created.
	attaches int

	Status string
	// Failure is why the activity came short, attempts every reason on the way there.
	Failure  *protocol.Failure
	attempts []*protocol.Failure
	bought   bool
	Created  []*Member
	// RolledBack were created and released again, Stayed could not be removed.
	RolledBack, Stayed, Removed []string
	// Before is the capacity of the group when the activity began.
	Before         int
	Started, Ended time.Time
}

// Ordinal is its place in the order of making.
func (a *Activity) Ordinal() uint64 { return a.seq }

// outstanding is how many instances the activity will still bring.
func (a *Activity) outstanding() int {
	if a.bought || a.Status != ActivityInProgress {
		return 0
	}
	return a.Purchase.Count
}

// newActivity begins a scale-out.
func (g *Group) newActivity(p Purchase, cause string) *Activity {
	s := g.scaling
	a := &Activity{
		seq: s.Cloud.Ordinal(), ID: s.Cloud.NewID("asa-"), Group: g, Cause: cause, Purchase: p, Status: ActivityInProgress,
		Before: g.Capacity(), Started: s.Cloud.Clock.Now(),
	}
	s.activities[a.ID] = a
	g.History = append(g.History, a)
	g.running = append(g.running, a)
	return a
}

// schedule lets a scale-out buy half-way through its time and end at the end of it, unless scaling out is suspended.
func (a *Activity) schedule() {
	s := a.Group.scaling
	takes := s.Cloud.Takes.Activity.Pick(s.Cloud.Random)
	s.Cloud.Later(takes/2, func(now time.Time) {
		if a.Group.Suspended(ProcessScaleOut) && a.Status == ActivityInProgress {
			a.reject(protocol.Fail(CodeSuspended, "Process ScaleOut of scaling group %q is suspended.", a.Group.ID))
			return
		}
		a.buy(now)
	})
	s.Cloud.Later(takes, func(now time.Time) { a.finish(now) })
}

// finish starts what a scale-out created and closes it.
func (a *Activity) finish(now time.Time) {
	if a.Status != ActivityInProgress {
		return
	}
	a.rollBack()
	for _, i := range a.Created {
		i.start()
	}
	if a.replaces != nil && len(a.Created) > 0 {
		a.replaces.detach()
	}
	if a.exchanges != nil && len(a.Created) > 0 {
		a.Group.Remove([]*Member{a.exchanges}, "A pay-as-you-go instance was replaced by a preemptible one.", nil).Parallel = true
	}
	switch {
	case a.Failure == nil:
		a.end(ActivitySuccessful, now)
	case len(a.Created) > 0:
		a.end(ActivityWarning, now)
	default:
		a.end(ActivityFailed, now)
	}
}

// reject ends an activity before it did anything.
func (a *Activity) reject(why *protocol.Failure) {
	s := a.Group.scaling
	a.Failure = why
	a.end(ActivityRejected, s.Cloud.Clock.Now())
}

func (a *Activity) end(status string, now time.Time) {
	a.Status, a.Ended = status, now
	a.Group.running = slices.DeleteFunc(a.Group.running, func(other *Activity) bool { return other == a })
	a.Group.replaceWaiting()
	a.Group.CheckSoon()
}

// Progress is in percent.
func (a *Activity) Progress() int {
	switch {
	case a.Status != ActivityInProgress:
		return 100
	case a.bought:
		return 50
	}
	return 0
}

// StatusMessage says in a sentence what came of the activity.
func (a *Activity) StatusMessage() string {
	switch {
	case a.Failure != nil:
		return a.Failure.Message
	case a.Status == ActivityInProgress:
		return "The scaling activity is in progress."
	}
	return fmt.Sprintf("%d instances were created, %d were removed.", len(a.Created), len(a.Removed))
}

// Description says what the activity is to do.
func (a *Activity) Description() string {
	if a.attaches > 0 {
		return attachment(a.attaches)
	}
	if len(a.Victims) > 0 {
		return fmt.Sprintf("Remove %d instances.", len(a.Victims))
	}
	return fmt.Sprintf("Add %d instances.", a.Purchase.Count)
}
