package ecs

import (
	"cmp"
	"fmt"
	"time"
)

// Status of an ECS instance.
const (
	Pending = "Pending"
	Running = "Running"
	Stopped = "Stopped"
	// Released is never shown: a released instance is not listed.
	Released = "Released"
)

// Spot strategies, as Alibaba spells them.
const (
	NoSpot             = "NoSpot"
	SpotAsPriceGo      = "SpotAsPriceGo"
	SpotWithPriceLimit = "SpotWithPriceLimit"
)

// Instance is a virtual machine.
type Instance struct {
	Launch
	ID      string
	Type    Type
	VSwitch VSwitch
	IP      string
	Created time.Time
	Status  string

	SpotStrategy string
	// PriceLimit is CNY per hour, 0 without one.
	PriceLimit float64
	// ProtectedUntil is the end of the first hour, during which a spot instance is not reclaimed.
	ProtectedUntil time.Time
	// Deadline is when it will be released; zero without notice.
	Deadline time.Time
	// Gone is closed on release.
	Gone chan struct{}

	seq uint64
	// bought is the price at its purchase, in CNY an hour, and billedUntil until when the Meter has counted it.
	bought      float64
	billedUntil time.Time
	// unlisted: DescribeInstances does not show it yet.
	unlisted bool
	vsw      *vswitch
	sold     *offering
}

// Launch is what the buyer of an instance says about it.
type Launch struct {
	// Aged has it boot, and its driver start, in no time, as if it had been there for long.
	Aged bool
	// Name of the instance.
	Name string
	// GroupID is the scaling group that buys it, empty for none.
	GroupID string
	// SpotDuration is the protected time of a spot instance in market hours.
	SpotDuration int
	// UserData is what the instance runs when it boots, and Tags are those that it was bought with.
	UserData string
	Tags     map[string]string
}

// Ordinal is its place in the order of making.
func (i *Instance) Ordinal() uint64 { return i.seq }

// IsSpot says whether it was bought as a spot instance.
func (i *Instance) IsSpot() bool { return i.SpotStrategy != NoSpot }

// Recycling says whether it has its notice and still runs.
func (i *Instance) Recycling() bool { return !i.Deadline.IsZero() && i.Status != Released }

// Healthy says whether it runs, or is about to.
func (i *Instance) Healthy() bool { return i.Status == Pending || i.Status == Running }

// Launch creates a pending instance. The offer has to be available.
func (c *Compute) Launch(o Offer, l Launch, now time.Time) *Instance {
	i := &Instance{
		Launch: l, ID: c.cloud.NewID("i-"), Type: o.Type, VSwitch: o.vsw.VSwitch, Created: now, Status: Pending,
		SpotStrategy: o.Strategy, ProtectedUntil: now, Gone: make(chan struct{}),
		seq: c.cloud.Ordinal(), billedUntil: now, vsw: o.vsw, sold: o.sold,
	}
	i.Name = cmp.Or(i.Name, i.ID)
	i.IP = fmt.Sprintf("10.%d.%d.%d", i.seq>>16&0xff, i.seq>>8&0xff, i.seq&0xff)
	if i.IsSpot() {
		i.ProtectedUntil = now.Add(time.Duration(i.SpotDuration) * c.Timeline.Hour())
		i.bought = c.Market.Quote(o.Type.ID, o.vsw.Zone, now).Spot
	}
	if i.SpotStrategy == SpotWithPriceLimit {
		i.PriceLimit = o.PriceLimit
	}
	i.vsw.used++
	i.sold.take(i)
	c.byID[i.ID] = i
	c.machines.Add(i)
	return i
}

// Start lets a pending instance run; it has booted after the boot delay.
func (c *Compute) Start(i *Instance) {
	if i.Status != Pending {
		return
	}
	i.Status = Running
	if i.IsSpot() && i.ProtectedUntil.After(c.cloud.Clock.Now()) {
		c.cloud.At(i.ProtectedUntil, func(now time.Time) { c.checkOffering(i.sold, now) })
	}
	if c.Booted != nil {
		boot := c.cloud.Takes.Boot
		if i.Aged {
			boot = 0
		}
		c.cloud.Later(boot, func(time.Time) {
			if i.Status == Running {
				c.Booted(i)
			}
		})
	}
}

// Stop stops an instance.
func (c *Compute) Stop(i *Instance) {
	i.Status = Stopped
	c.watcher.Unhealthy(i)
}

// Pause stops an instance that is to be started again, and Resume starts it: nobody is told.
func (c *Compute) Pause(i *Instance) {
	if i.Status == Running {
		i.Status = Stopped
	}
}

// Resume is the reverse of Pause.
func (c *Compute) Resume(i *Instance) {
	if i.Status == Stopped {
		i.Status = Running
	}
}

// Release ends an instance: it is in no listing any more. Its scaling group is not told.
func (c *Compute) Release(i *Instance) {
	if i.Status == Released {
		return
	}
	c.Meter.add(i, c.cloud.Clock.Now())
	i.Status = Released
	i.vsw.used--
	i.sold.give(i)
	c.machines.Remove(i)
	c.recycling.Remove(i)
	close(i.Gone)
	delete(c.byID, i.ID)
}

// Instance returns one that is not released.
func (c *Compute) Instance(id string) (*Instance, bool) {
	i, known := c.byID[id]
	return i, known
}

// Instances returns all that are not released, oldest first. The list is the service's own.
func (c *Compute) Instances() []*Instance { return c.machines.Items }
