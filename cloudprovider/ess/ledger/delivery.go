package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/pricing"
)

const (
	// DeliveryLag is how long after the end of an activity its instances may be missing from the list of instances. Whether the
	// list is as recent as the activities is documented nowhere.
	DeliveryLag = 2 * time.Minute
	// RollBackTime is how long after the end of an activity that came short an instance that never was in service may still
	// be released again.
	RollBackTime = 5 * time.Minute
	// shortageTime is how long after a purchase came short no pool asks for more of the offering than seemed to be left. Core backs
	// off the node group of the purchase for as long at first (--initial-node-group-backoff-duration), and no other node group.
	shortageTime = 5 * time.Minute
)

// delivery is what came of a purchase that the cloud accepted.
type delivery struct {
	// activity is the purchase's activity as last read; its ID is empty until it was read.
	activity alicloud.Activity
	// endedAt is when the activity was first seen to have ended.
	endedAt time.Time
	// delivered are the instances that were delivered, whether or not they still exist. served are those of them that were seen in
	// service, or that left for another reason than the failure of their activity.
	delivered, served sets.Set[string]
	// unlisted are instances that the activity created and that are not in the list of instances, with the time of the first
	// refresh that missed them.
	unlisted map[string]time.Time
	// lag is how long after the end of the activity its instances may be missing from the list of instances.
	lag time.Duration
	// rolledBack are instances that were created and that the cloud releases because the activity failed. They do not count as
	// delivered.
	rolledBack sets.Set[string]
}

func newDelivery() delivery {
	return delivery{
		delivered: sets.New[string](), served: sets.New[string](), rolledBack: sets.New[string](),
		unlisted: map[string]time.Time{}, lag: DeliveryLag,
	}
}

// ended returns whether no more instances can come.
func (d *delivery) ended() bool { return !d.endedAt.IsZero() }

func (d *delivery) setActivity(activity alicloud.Activity, now time.Time) {
	d.activity = activity
	if activity.Done() && !d.ended() {
		d.endedAt = now
	}
}

// see accounts for an instance of the activity. listed is whether it is in the list of instances, served whether it is in
// service.
func (d *delivery) see(id string, listed, served bool, now time.Time) {
	switch {
	case slices.Contains(d.activity.FailedInstances, id):
		d.rollBack(id)
	case listed:
		delete(d.unlisted, id)
		d.rolledBack.Delete(id)
		d.delivered.Insert(id)
		if served {
			d.served.Insert(id)
		}
	case d.delivered.Has(id), d.rolledBack.Has(id): // it was listed before
	default:
		if _, known := d.unlisted[id]; !known {
			d.unlisted[id] = now
		}
	}
}

func (d *delivery) rollBack(id string) {
	delete(d.unlisted, id)
	d.delivered.Delete(id)
	d.served.Delete(id)
	d.rolledBack.Insert(id)
}

// checkMissing decides about instances that are not listed, or not any more. An instance that was in service was delivered and left
// again, and so did every instance of an activity that succeeded. An instance of an activity that came short, or is under
// way, was rolled back: "when a scaling activity fails to add one or more ECS instances to a scaling group, the failed ECS
// instances are rolled back" (Auto Scaling documentation, "Instance rollback resulting from a scaling activity failure").
func (d *delivery) checkMissing(listed func(id string) bool, now time.Time) {
	succeeded := d.activity.Status == alicloud.ActivitySuccessful
	for id := range d.delivered.Difference(d.served) {
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
		case d.activity.Status == alicloud.ActivityFailed: // none was added, or all that were added are rolled back
			d.rollBack(id)
		case now.Sub(since) <= d.lag:
		case succeeded:
			delete(d.unlisted, id)
			d.delivered.Insert(id)
			d.served.Insert(id)
		default:
			d.rollBack(id)
		}
	}
}

// stillUnlisted returns how many of those missing after the end of the activity were created, or may have been, and are
// not listed yet.
func (d *delivery) stillUnlisted(missing int, now time.Time) int {
	unlisted := len(d.unlisted)
	added := d.activity.Status == alicloud.ActivitySuccessful || d.activity.Status == alicloud.ActivityWarning
	if added && now.Sub(d.endedAt) <= d.lag {
		switch created := d.activity.CreatedCapacity; {
		case created > 0:
			unlisted = max(unlisted, created-d.delivered.Len()-d.rolledBack.Len())
		case len(d.activity.CreatedInstances) == 0: // the activity does not say what it created
			unlisted = missing
		}
	}
	return min(unlisted, missing)
}

// mayRollBack returns whether the cloud may still take back an instance.
func (d *delivery) mayRollBack(listed func(id string) bool, now time.Time) bool {
	if d.activity.Status == alicloud.ActivitySuccessful || now.Sub(d.endedAt) > RollBackTime {
		return false
	}
	return slices.ContainsFunc(d.delivered.Difference(d.served).Union(d.rolledBack).UnsortedList(), listed)
}

// failure says why the activity came short. The code is CameShort where the activity has none.
func (d *delivery) failure() (class alicloud.Class, code, message string) {
	a := d.activity
	code, message = a.ErrorCode, a.ErrorMessage
	class = alicloud.ClassOfCode(code)
	if code == "" {
		code = codeCameShort
	}
	if message == "" || !strings.Contains(a.StatusDetail, message) {
		message = strings.TrimSpace(message + " " + a.StatusDetail)
	} else {
		message = a.StatusDetail
	}
	message = strings.TrimSpace(fmt.Sprintf("activity %s ended as %s: %s", a.ID, a.Status, message))
	if d.rolledBack.Len() > 0 {
		message += fmt.Sprintf(" (rolled back: %s)", snapshot.Abbreviate(sets.List(d.rolledBack)))
	}
	return class, code, message
}

// countAsked enters that the cloud has accepted the purchase.
func (s *state) countAsked(p *Purchase) {
	purchasedInstances.WithLabelValues(p.poolID, p.offering.PurchaseOption()).Add(float64(p.request.Delta))
	if p.targeting != pool.TargetWhole { // nobody knows which offering the cloud takes
		s.config.Market.Asked(p.offering, p.request.Delta)
	}
}

// noteShortage remembers that so many instances of a purchase will not be delivered because its offering is out of stock, and returns how many
// there may be.
func (s *state) noteShortage(p *Purchase, missing int, code string) (left int) {
	if !alicloud.IsSoldOut(code) || p.targeting == pool.TargetWhole || p.restored.isGuess() {
		return 0
	}
	now, delivered := s.config.Clock.Now(), p.delivery.delivered.Len()
	if p.accepted.IsZero() {
		s.config.Market.Asked(p.offering, p.request.Delta)
	}
	s.config.Market.Refused(p.offering, missing)
	shortage := snapshot.Shortage{
		PoolID: p.poolID, Asked: p.request.Delta, Delivered: delivered, Since: now, Until: now.Add(shortageTime),
	}
	for _, instance := range s.facts.Instances {
		if s.facts.StandingOf(instance) == snapshot.Serving && snapshot.OfferingOf(instance) == p.offering {
			shortage.Held++
		}
	}
	switch {
	case p.launch != nil && delivered == 0:
		shortage.Left = p.request.Delta / 2 // RunInstances is refused as a whole, also if there are enough for a smaller purchase
	case p.broken():
		shortage.Left = delivered // they are given back
	}
	shortages := maps.Clone(s.facts.Shortages)
	if shortages == nil {
		shortages = map[pricing.Offering]snapshot.Shortage{}
	}
	shortages[p.offering] = shortage
	s.facts.Shortages = shortages
	return shortage.Left
}

// forgetShortages drops the shortages that do not count any more.
func (s *state) forgetShortages(now time.Time) {
	left := maps.Clone(s.facts.Shortages)
	maps.DeleteFunc(left, func(_ pricing.Offering, shortage snapshot.Shortage) bool { return !shortage.Until.After(now) })
	s.facts.Shortages = left
}
