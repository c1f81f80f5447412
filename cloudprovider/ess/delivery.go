package ess

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	// arrivalLag is how long after the end of an activity what it created is believed in though it is not listed. That the
	// list of instances is as new as that of activities is documented nowhere.
	arrivalLag = 2 * time.Minute
	// rollBackTime is how long after the end of an activity that came short an instance that never was in service may still
	// be released again.
	rollBackTime = 5 * time.Minute
)

// delivery is what came of a purchase that the cloud accepted.
type delivery struct {
	// activity is what was last heard of the purchase's activity; its ID is empty until then.
	activity alicloud.Activity
	// endedAt is when it was first seen to have ended.
	endedAt time.Time
	// arrived are the instances that came, whether or not they are there still; served those of them that were seen in
	// service, or on their way out for another reason than that their activity failed.
	arrived, served sets.Set[string]
	// unlisted were created, going by the activity, and were not in the list of instances yet, with the time since when.
	unlisted map[string]time.Time
	// rolledBack were created and are released again by the cloud, for the activity failed: they never arrived.
	rolledBack sets.Set[string]
}

func newDelivery() delivery {
	return delivery{
		arrived: sets.New[string](), served: sets.New[string](), rolledBack: sets.New[string](),
		unlisted: map[string]time.Time{},
	}
}

// ended says whether nothing more can come.
func (d *delivery) ended() bool { return !d.endedAt.IsZero() }

func (d *delivery) hear(activity alicloud.Activity, now time.Time) {
	d.activity = activity
	if activity.Done() && !d.ended() {
		d.endedAt = now
	}
}

// take accounts for an instance of the activity; listed is whether it is in the list of instances.
func (d *delivery) take(id string, listed, served bool, now time.Time) {
	switch {
	case slices.Contains(d.activity.FailedInstances, id):
		d.rollBack(id)
	case listed:
		delete(d.unlisted, id)
		d.rolledBack.Delete(id)
		d.arrived.Insert(id)
		if served {
			d.served.Insert(id)
		}
	case d.arrived.Has(id), d.rolledBack.Has(id): // it was listed before
	default:
		if _, known := d.unlisted[id]; !known {
			d.unlisted[id] = now
		}
	}
}

func (d *delivery) rollBack(id string) {
	delete(d.unlisted, id)
	d.arrived.Delete(id)
	d.served.Delete(id)
	d.rolledBack.Insert(id)
}

// miss judges instances that are not listed, or not any more. What was in service came and went, and so did what an
// activity brought that succeeded. Of an activity that came short, or is under way, it was rolled back: "when a scaling
// activity fails to add one or more ECS instances to a scaling group, the failed ECS instances are rolled back" (Auto
// Scaling documentation, "Instance rollback resulting from a scaling activity failure").
func (d *delivery) miss(listed func(id string) bool, now time.Time) {
	succeeded := d.activity.Status == alicloud.ActivitySuccessful
	for id := range d.arrived.Difference(d.served) {
		switch {
		case listed(id):
		case succeeded:
			d.served.Insert(id)
		default:
			d.rollBack(id)
		}
	}
	for id, since := range d.unlisted {
		switch {
		case !d.ended():
		case d.activity.Status == alicloud.ActivityFailed: // none was added, or all that were are rolled back
			d.rollBack(id)
		case now.Sub(since) <= arrivalLag:
		case succeeded:
			delete(d.unlisted, id)
			d.arrived.Insert(id)
			d.served.Insert(id)
		default:
			d.rollBack(id)
		}
	}
}

// unlistedYet is how many of those outstanding after the end were created, or may have been, and are not listed yet.
func (d *delivery) unlistedYet(outstanding int, now time.Time) int {
	unlisted := len(d.unlisted)
	if came := d.activity.Status == alicloud.ActivitySuccessful || d.activity.Status == alicloud.ActivityWarning; came && now.Sub(d.endedAt) <= arrivalLag {
		switch created := d.activity.CreatedCapacity; {
		case created > 0:
			unlisted = max(unlisted, created-d.arrived.Len()-d.rolledBack.Len())
		case len(d.activity.CreatedInstances) == 0: // the activity does not say what it created
			unlisted = outstanding
		}
	}
	return min(unlisted, outstanding)
}

// mayRollBack says whether what came may still be taken back by the cloud.
func (d *delivery) mayRollBack(listed func(id string) bool, now time.Time) bool {
	if d.activity.Status == alicloud.ActivitySuccessful || now.Sub(d.endedAt) > rollBackTime {
		return false
	}
	return slices.ContainsFunc(d.arrived.Difference(d.served).Union(d.rolledBack).UnsortedList(), listed)
}

// failure says why the activity came short: by its code, or as CameShort where there is none in any form.
func (d *delivery) failure() (class alicloud.Class, code, message string) {
	a := d.activity
	code, message = a.ErrorCode, a.ErrorMessage
	class = alicloud.ClassOfCode(code)
	if code == "" {
		code = "CameShort"
	}
	if message == "" || !strings.Contains(a.StatusDetail, message) {
		message = strings.TrimSpace(message + " " + a.StatusDetail)
	} else {
		message = a.StatusDetail
	}
	message = strings.TrimSpace(fmt.Sprintf("activity %s ended as %s: %s", a.ID, a.Status, message))
	if d.rolledBack.Len() > 0 {
		message += fmt.Sprintf(" (rolled back: %s)", some(sets.List(d.rolledBack)))
	}
	return class, code, message
}

// takeStock learns what came of the purchase: from its activity, where that was read, and from the list of instances,
// those of the activity among it. Needs p.mu for writing.
func (p *Provider) takeStock(bought *purchase, activity *alicloud.Activity, listed []string, now time.Time) {
	d := &bought.delivery
	if activity != nil {
		d.hear(*activity, now)
		p.readNote(bought, *activity)
	}
	there := func(id string) bool { _, exists := p.instances[id]; return exists }
	for _, id := range slices.Concat(listed, d.activity.CreatedInstances, d.activity.FailedInstances) {
		if !bought.recalled.spares(id) {
			d.take(id, there(id), p.hasServed(id), now)
		}
	}
	if bought.activityID != "" {
		d.miss(there, now)
	}
}

// hasServed says whether the instance is in service, or leaves it otherwise than by a failed activity. Needs p.mu.
func (p *Provider) hasServed(id string) bool {
	if p.removals[id] != nil || p.doomed.Has(id) {
		return true
	}
	state := p.instances[id].LifecycleState
	return state != "" && !strings.HasPrefix(state, alicloud.LifecyclePending) && !strings.HasPrefix(state, alicloud.LifecycleRemoving)
}

// isBare says whether ESS lists the instance without all that makes its offering, as it may one that it has only just begun.
// (That it does is documented nowhere, and nor is that it does not.)
func isBare(instance alicloud.ScalingInstance) bool {
	return instance.InstanceType == "" || instance.ZoneID == "" || instance.SpotStrategy == ""
}

// offeringOf is what the instance counts as: where it is bare that is the offering of the purchase that brought it. Needs
// p.mu.
func (p *Provider) offeringOf(instance alicloud.ScalingInstance) offering {
	if isBare(instance) && instance.ScalingActivityID != "" {
		for _, bought := range p.purchases {
			if bought.activityID == instance.ScalingActivityID {
				return bought.offering
			}
		}
	}
	return offeringOf(instance)
}

// hasBare says whether the purchase has to tell what some of its instances are. Needs p.mu.
func (p *Provider) hasBare(bought *purchase) bool {
	for id := range bought.delivery.arrived {
		if instance, listed := p.instances[id]; listed && isBare(instance) {
			return true
		}
	}
	return false
}

// mayRollBack needs p.mu.
func (p *Provider) mayRollBack(bought *purchase, now time.Time) bool {
	return bought.delivery.mayRollBack(func(id string) bool { _, exists := p.instances[id]; return exists }, now)
}
