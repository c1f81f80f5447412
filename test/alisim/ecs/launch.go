package ecs

import (
	"strconv"
	"strings"
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// launchActions answers the requests that create and release instances past Auto Scaling.
type launchActions struct{ *Compute }

const (
	// maxLaunch and maxRelease are how many instances one call creates and releases.
	maxLaunch, maxRelease = 100, 100
	// maxTagLength is how long the value of a tag may be.
	maxTagLength = 128
)

// required are the parameters of RunInstances without which no instance of a cluster could be made here.
var required = []string{"ImageId", "InstanceType", "VSwitchId"}

// runInstances creates as many instances as there are, if that is as many as the request needs at least.
func (c launchActions) runInstances(r *protocol.Request) (protocol.Reply, error) {
	for _, name := range required {
		if _, err := r.Required(name); err != nil {
			return nil, err
		}
	}
	if !r.Has("SecurityGroupId") && !r.Has("SecurityGroupIds.1") {
		return nil, protocol.Missing("SecurityGroupId")
	}
	amount, err := r.Integer("Amount", 1, 1, maxLaunch)
	if err != nil {
		return nil, err
	}
	least, err := r.Integer("MinAmount", 1, 1, amount)
	if err != nil {
		return nil, err
	}
	offer, err := c.offerOf(r)
	if err != nil {
		return nil, err
	}
	launch, err := c.launchOf(r)
	if err != nil {
		return nil, err
	}
	if why := c.WhyNot(offer, r.Now); why != nil {
		return nil, protocol.Refuse(403, why.Code, "%s", why.Message)
	}
	room := c.Room(offer, r.Now)
	if room < least {
		return nil, protocol.Refuse(403, CodeNoStock, "%d instances of %s are left in zone %s.", room, offer.Type.ID, offer.Zone)
	}
	if dry, err := r.Boolean("DryRun", false); err != nil {
		return nil, err
	} else if dry {
		return nil, dryRun()
	}
	var ids []string
	for range min(room, amount) {
		ids = append(ids, c.launch(offer, launch, r.Now).ID)
	}
	return protocol.Reply{"InstanceIdSets": protocol.Wrap("InstanceIdSet", ids)}, nil
}

func (c launchActions) offerOf(r *protocol.Request) (Offer, error) {
	instanceType, vswitch, strategy := r.Get("InstanceType"), r.Get("VSwitchId"), r.Get("SpotStrategy")
	switch {
	case !c.Sells(instanceType):
		return Offer{}, protocol.Invalid("InstanceType", instanceType)
	case !c.HasVSwitch(vswitch):
		return Offer{}, protocol.NotFound("InvalidVSwitchId.NotFound", "vSwitch %q does not exist.", vswitch)
	}
	limit := 0.0
	switch strategy {
	case NoSpot, SpotAsPriceGo:
	case "":
		strategy = NoSpot
	case SpotWithPriceLimit:
		var err error
		if limit, err = strconv.ParseFloat(r.Get("SpotPriceLimit"), 64); err != nil {
			return Offer{}, protocol.Invalid("SpotPriceLimit", r.Get("SpotPriceLimit"))
		}
	default:
		return Offer{}, protocol.Invalid("SpotStrategy", strategy)
	}
	offer := c.Offer(instanceType, vswitch, strategy, limit)
	if zone := r.Get("ZoneId"); zone != "" && zone != offer.Zone {
		return Offer{}, protocol.BadRequest("InvalidParameter", "vSwitch %s is not in zone %s.", vswitch, zone)
	}
	return offer, nil
}

// launchOf reads what the request says about each instance.
func (c launchActions) launchOf(r *protocol.Request) (Launch, error) {
	l := Launch{Name: r.Get("InstanceName"), UserData: r.Get("UserData"), Tags: r.NewTags()}
	var err error
	if l.SpotDuration, err = r.Integer("SpotDuration", 1, 0, 6); err != nil {
		return l, err
	}
	if _, err := r.Tags(); err != nil {
		return l, err // there are too many
	}
	for key, value := range l.Tags {
		if len(key) > maxTagLength || len(value) > maxTagLength || strings.HasPrefix(key, "acs:") || strings.HasPrefix(key, "aliyun") {
			return l, protocol.Invalid("Tag", key)
		}
	}
	return l, nil
}

// launch creates an instance that runs soon, or vanishes before it does.
func (c launchActions) launch(o Offer, l Launch, now time.Time) *Instance {
	i := c.Launch(o, l, now)
	c.launched++
	vanishes := c.cloud.Temper.VanishOneIn > 0 && c.launched%c.cloud.Temper.VanishOneIn == 0
	if c.cloud.Temper.LaunchLags && c.launched%2 == 0 {
		i.unlisted = true
		c.cloud.Later(c.cloud.Takes.ListLag, func(time.Time) { i.unlisted = false })
	}
	c.cloud.Later(c.cloud.Takes.Activity.Pick(c.cloud.Random)/2, func(time.Time) {
		if vanishes {
			c.Release(i)
			return
		}
		c.Start(i)
	})
	return i
}

// deleteInstances releases all of the instances or none.
func (c launchActions) deleteInstances(r *protocol.Request) (protocol.Reply, error) {
	ids, err := r.List("InstanceId", maxRelease)
	if err != nil {
		return nil, err
	}
	force, err := r.Boolean("Force", false)
	if err != nil {
		return nil, err
	}
	var victims []*Instance
	for _, id := range ids {
		i, known := c.Instance(id)
		switch {
		case !known:
			return nil, protocol.NotFound("InvalidInstanceId.NotFound", "The specified instance %q does not exist.", id)
		case i.Status == Pending && c.cloud.Temper.PendingStay:
			return nil, protocol.Refuse(403, "IncorrectInstanceStatus.Initializing", "The specified instance %q is being initialized.", id)
		case i.Status != Stopped && !force:
			return nil, protocol.Refuse(403, "IncorrectInstanceStatus", "The current status of instance %q does not support this action.", id)
		}
		victims = append(victims, i)
	}
	for _, i := range victims {
		c.Release(i)
		c.watcher.Unhealthy(i)
	}
	return protocol.Reply{}, nil
}
