package alisim

import (
	"fmt"
	"time"
)

// Lifecycle states of an instance in its scaling group.
const (
	statePending   = "Pending"
	stateInService = "InService"
	stateRemoving  = "Removing"
)

// Status of an ECS instance.
const (
	statusPending = "Pending"
	statusRunning = "Running"
	statusStopped = "Stopped"
	// statusReleased is never shown: a released instance is not listed.
	statusReleased = "Released"
)

// instance is a virtual machine, and at the same time its place in a scaling group.
type instance struct {
	seq     uint64
	id      string
	group   *group
	vsw     *vswitch
	sold    *offering
	typ     Type
	ip      string
	created time.Time

	spotStrategy string
	spotDuration int
	priceLimit   float64
	// protectedUntil is the end of the first hour, during which a spot instance is not reclaimed.
	protectedUntil time.Time
	// deadline is when it will be released; zero without notice.
	deadline time.Time

	activityID string
	configID   string
	// member says whether it belongs to its group; lifecycle is then its state there.
	member    bool
	lifecycle string
	status    string

	// gone is closed on release.
	gone chan struct{}
}

func (i *instance) ordinal() uint64 { return i.seq }

func (i *instance) isSpot() bool { return i.spotStrategy != NoSpot }

func (i *instance) recycling() bool { return !i.deadline.IsZero() && i.status != statusReleased }

func (i *instance) healthy() bool { return i.status == statusPending || i.status == statusRunning }

// launch creates an instance as a pending member of the activity's group.
func (c *cloud) launch(a *activity, o option, now time.Time) *instance {
	g := a.group
	i := &instance{
		seq: c.ordinal(), id: c.newID("i-"), group: g, vsw: o.vsw, sold: o.sold, typ: o.typ, created: now,
		spotStrategy: o.strategy, spotDuration: *g.SpotDuration, activityID: a.id, configID: g.configID,
		member: true, status: statusPending, protectedUntil: now, gone: make(chan struct{}),
	}
	i.ip = fmt.Sprintf("10.%d.%d.%d", i.seq>>16&0xff, i.seq>>8&0xff, i.seq&0xff)
	if i.isSpot() {
		i.protectedUntil = now.Add(time.Duration(i.spotDuration) * c.timeline.Hour())
	}
	if i.spotStrategy == SpotWithPriceLimit {
		i.priceLimit = g.SpotPriceLimits[o.typ.ID]
	}
	i.vsw.used++
	i.sold.take(i)
	c.instanceBy[i.id] = i
	c.machines.add(i)
	c.members.add(i)
	g.members.add(i)
	if i.isSpot() {
		g.spot++
		c.spot++
	}
	i.enter(statePending)
	return i
}

// enter changes the lifecycle state.
func (i *instance) enter(state string) {
	if i.lifecycle != "" {
		i.group.states[i.lifecycle]--
	}
	i.lifecycle = state
	if state != "" {
		i.group.states[state]++
	}
}

// start lets a pending instance run; its Node comes after the boot delay.
func (c *cloud) start(i *instance) {
	if i.status != statusPending {
		return
	}
	i.status = statusRunning
	if i.lifecycle == statePending {
		i.enter(stateInService)
	}
	if i.isSpot() && i.protectedUntil.After(c.clock.Now()) {
		c.at(i.protectedUntil, func(now time.Time) { c.checkOffering(i.sold, now) })
	}
	if c.nodes != nil {
		c.later(c.world.BootDelay.Duration, func(time.Time) {
			if i.status == statusRunning {
				c.nodes.boot(c.machine(i), i.gone)
			}
		})
	}
}

// release ends the machine: it is in no listing of ECS any more, and its Node goes. The scaling group does not know yet.
func (c *cloud) release(i *instance) {
	if i.status == statusReleased {
		return
	}
	i.status = statusReleased
	i.vsw.used--
	i.sold.give(i)
	c.machines.remove(i)
	c.recycling.remove(i)
	close(i.gone)
	c.forget(i)
}

// detach takes the instance off its group's list.
func (c *cloud) detach(i *instance) {
	if !i.member {
		return
	}
	i.enter("")
	i.member = false
	i.group.members.remove(i)
	c.members.remove(i)
	if i.isSpot() {
		i.group.spot--
		c.spot--
	}
	c.forget(i)
}

// forget drops an instance that nobody lists any more.
func (c *cloud) forget(i *instance) {
	if !i.member && i.status == statusReleased {
		delete(c.instanceBy, i.id)
	}
}
