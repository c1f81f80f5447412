package alisim

import (
	"fmt"
	"slices"
	"time"
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
	victims  []*instance
	// replaces is the doomed instance that leaves the group once its replacement is there.
	replaces *instance

	status  string
	failure *failure
	bought  bool
	created []*instance
	removed []string
	before  int
	started time.Time
	ended   time.Time
}

func (a *activity) ordinal() uint64 { return a.seq }

// failure says why an activity, or a part of it, came to nothing.
type failure struct{ code, message string }

func fail(code, format string, args ...any) *failure {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// outstanding is how many instances the activity will still bring.
func (a *activity) outstanding() int {
	if a.bought || a.status != activityInProgress {
		return 0
	}
	return a.purchase.count
}

// newActivity begins a scale-out.
func (c *cloud) newActivity(g *group, p purchase, cause string) *activity {
	a := &activity{
		seq: c.ordinal(), id: c.newID("asa-"), group: g, cause: cause, purchase: p, status: activityInProgress,
		before: g.capacity(), started: c.clock.Now(),
	}
	c.activities[a.id] = a
	g.history = append(g.history, a)
	g.running = append(g.running, a)
	return a
}

// schedule lets a scale-out buy half-way through its time and end at the end of it, unless scaling out is suspended.
func (c *cloud) schedule(a *activity) {
	half := c.world.ActivityDelay.Duration / 2
	c.later(half, func(now time.Time) {
		if a.group.suspended(processScaleOut) && a.status == activityInProgress {
			c.reject(a, fail(codeSuspended, "Process ScaleOut of scaling group %q is suspended.", a.group.ID))
			return
		}
		c.buy(a, now)
	})
	c.later(c.world.ActivityDelay.Duration, func(now time.Time) { c.finish(a, now) })
}

// finish starts what a scale-out created and closes it.
func (c *cloud) finish(a *activity, now time.Time) {
	if a.status != activityInProgress {
		return
	}
	for _, i := range a.created {
		c.start(i)
	}
	if a.replaces != nil && len(a.created) > 0 {
		c.detach(a.replaces)
	}
	switch {
	case a.failure == nil:
		c.end(a, activitySuccessful, now)
	case len(a.created) > 0:
		c.end(a, activityWarning, now)
	default:
		c.end(a, activityFailed, now)
	}
}

// reject ends an activity before it did anything.
func (c *cloud) reject(a *activity, why *failure) {
	a.failure = why
	c.end(a, activityRejected, c.clock.Now())
}

func (c *cloud) end(a *activity, status string, now time.Time) {
	a.status, a.ended = status, now
	a.group.running = slices.DeleteFunc(a.group.running, func(other *activity) bool { return other == a })
	c.lookAfter(a.group)
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
		return a.failure.message
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
