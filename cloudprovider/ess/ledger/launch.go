package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

// LaunchListLag is how long after RunInstances its instances may be missing from DescribeInstances. Until it is over an instance that is
// missing counts as on its way. A new process buys nothing for as long, of any pool, if one of them buys by RunInstances: the former
// process may have been killed before it had an answer, and the pods that are pending may be those that it bought for.
//
// How far DescribeInstances lags behind is documented nowhere. An instance that is listed later counts from then on, and may have
// been bought twice.
const LaunchListLag = 30 * time.Second

// shortfallTime is for how long after its launch an instance may vanish for want of stock: it does so before it runs. What a purchase of
// a former process lacks later than that was delivered, and is gone for another reason.
const shortfallTime = 3 * time.Minute

// launch is how a purchase is made by RunInstances.
//
// The purchase counts as an activity whose id is its token. That activity has ended from the start: RunInstances says at once
// what it creates, and later an instance can only vanish, which it does if ECS finds no stock for it. The tags of the instances
// are the note of the purchase, so that a new process finds it.
type launch struct {
	request   alicloud.LaunchRequest
	vswitches []string
	// full are the vSwitches that had no address left, by call. They are not tried again: had the next one an answer that was lost,
	// one of them that has addresses again would be a second purchase.
	full map[int]sets.Set[string]
}

// LaunchCall is one call of RunInstances for a purchase.
type LaunchCall struct {
	// Index is the place of the call among those of the purchase.
	Index int
	// Requests differ in vSwitch and ClientToken only. The next is sent if the vSwitch of one has no address left.
	Requests []alicloud.LaunchRequest
}

func newLaunch(known *pool.Pool, offered *pool.Offering) *launch {
	return &launch{vswitches: offered.VSwitchIDs, full: map[int]sets.Set[string]{}, request: known.LaunchRequest(offered)}
}

// launches returns the calls of RunInstances for the purchase; none if the scaling group is asked. They are the same in each
// attempt, tokens included.
func (p *Purchase) launches() []LaunchCall {
	if p.launch == nil {
		return nil
	}
	var calls []LaunchCall
	for left := p.request.Delta; left > 0; left -= alicloud.MaxLaunch {
		call := LaunchCall{Index: len(calls)}
		for n, vswitch := range p.launch.vswitches {
			if p.launch.full[call.Index].Has(vswitch) {
				continue
			}
			request := p.launch.request
			request.Amount, request.MinAmount, request.VSwitchID = min(left, alicloud.MaxLaunch), 1, vswitch
			if p.atomic {
				request.MinAmount = request.Amount
			}
			request.ClientToken = fmt.Sprintf("%s-%d-%d", p.request.ClientToken, call.Index, n)
			request.Tags = settings.Merge(request.Tags, p.note().tags(p.poolID))
			call.Requests = append(call.Requests, request)
		}
		calls = append(calls, call)
	}
	return calls
}

// action is the API call that makes the purchase.
func (p *Purchase) action() string {
	if p.launch != nil {
		return "RunInstances"
	}
	return "ScaleWithAdjustment"
}

// answered returns whether RunInstances has said what it creates. From then on its answer counts, and not the activity that is made up
// from the listed instances.
func (p *Purchase) answered() bool { return p.launch != nil && p.delivery.activity.ID != "" }

// willLaunchAgain returns whether RunInstances will be called again for the purchase. That is safe, because it is documented to be
// carried out once under a ClientToken, and it may have been carried out for a part of the purchase only.
func (p *Purchase) willLaunchAgain(now time.Time) bool {
	return p.launch != nil && p.queued() && p.attempts.refusal == nil && now.Sub(p.requested) <= sendFor
}

// Launched enters the ids of the instances that RunInstances creates for the purchase. The refusal is why there are not more; nil
// if none was refused.
func (s *Purchases) Launched(p *Purchase, ids []string, refusal error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	p.sending = false
	a, now := s.state.account(p.poolID), s.state.config.Clock.Now()
	a.knownLaunches.Insert(p.request.ClientToken)
	a.accept(p, alicloud.Scaling{ActivityID: p.request.ClientToken})
	activity := launchActivity(p.poolID, p.note(), p.requested)
	activity.CreatedInstances, activity.CreatedCapacity, activity.Ended = ids, len(ids), now
	if refusal != nil {
		activity.ErrorCode, activity.ErrorMessage = codeOf(refusal), refusal.Error()
	}
	p.delivery.lag = LaunchListLag
	p.delivery.setActivity(activity, now)
	for _, id := range ids {
		p.delivery.see(id, s.state.listed(id), false, now)
	}
}

// PartlyLaunched enters that a call of RunInstances failed for a reason that may pass, after others for the same purchase created
// instances.
func (s *Purchases) PartlyLaunched(p *Purchase, err error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	p.sending, p.attempts.uncertain = false, true
	s.state.account(p.poolID).refuse(p, err)
	p.settle()
}

// NoAddress enters that a vSwitch has no address left for the call of the purchase. It is false if the call must not be made in
// another vSwitch: an attempt got no answer, and may have taken the last addresses itself.
func (s *Purchases) NoAddress(p *Purchase, call int, vswitch string) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if p.attempts.uncertain {
		return false
	}
	if p.launch.full[call] == nil {
		p.launch.full[call] = sets.New[string]()
	}
	p.launch.full[call].Insert(vswitch)
	return true
}

// launchActivity returns the activity as which a purchase by RunInstances counts. Its status is Warning, because instances may
// vanish before they run; the error code says why they do.
func launchActivity(poolID string, note Note, started time.Time) alicloud.Activity {
	return alicloud.Activity{
		ID: note.Token, ScalingGroupID: poolID, Status: alicloud.ActivityWarning, Started: started, Metadata: note.encode(),
		ErrorCode:    alicloud.CodeCreationFailed,
		ErrorMessage: "RunInstances created fewer instances than were asked for, or ECS released some again before they ran, as it does if it finds no stock",
	}
}

// tags returns the note as tags of the instances that are bought. The offering is not among them: the instances have it.
func (n Note) tags(poolID string) map[string]string {
	tags := map[string]string{
		api.TagInstancePool: poolID, api.TagInstancePurchase: n.Token, api.TagInstancePurchaseSize: strconv.Itoa(n.Count),
	}
	if n.Atomic {
		tags[api.TagInstanceAtomic] = "true"
	}
	if n.Bundle != "" {
		tags[api.TagInstanceBundle] = n.Bundle
	}
	if n.Owner != "" {
		tags[api.TagInstanceOwner] = n.Owner
	}
	return tags
}

// noteOfTags returns the note of an instance that RunInstances created; false for an instance of anyone else.
func noteOfTags(instance alicloud.Instance) (Note, bool) {
	size, err := strconv.Atoi(instance.Tags[api.TagInstancePurchaseSize])
	offering := snapshot.OfferingOf(ScalingInstance(instance))
	note := Note{
		Token: instance.Tags[api.TagInstancePurchase], Owner: instance.Tags[api.TagInstanceOwner], Targeting: pool.TargetLaunch,
		Count: size, Atomic: instance.Tags[api.TagInstanceAtomic] == "true", Bundle: instance.Tags[api.TagInstanceBundle],
		InstanceType: offering.InstanceType, Zone: offering.Zone, PurchaseOption: offering.PurchaseOption(),
	}
	return note, err == nil && size > 0 && note.Token != "" && instance.Tags[api.TagInstancePool] != ""
}

// ScalingInstance returns an instance that RunInstances created as ESS would list it, if it were in its scaling group.
func ScalingInstance(instance alicloud.Instance) alicloud.ScalingInstance {
	state := alicloud.LifecycleStopped
	switch instance.Status {
	case alicloud.StatusPending, alicloud.StatusStarting:
		state = alicloud.LifecyclePending
	case alicloud.StatusRunning:
		state = alicloud.LifecycleUnattached
	}
	return alicloud.ScalingInstance{
		ID: instance.ID, ScalingGroupID: instance.Tags[api.TagInstancePool], ScalingActivityID: instance.Tags[api.TagInstancePurchase],
		LifecycleState: state, InstanceType: instance.InstanceType, ZoneID: instance.ZoneID, SpotStrategy: instance.SpotStrategy,
		Created: instance.Created, Unattached: true,
	}
}

// mayLaunch returns whether the pool buys by RunInstances.
func (s *state) mayLaunch(poolID string) bool {
	known := s.facts.Pools[poolID]
	return known != nil && known.Targeting == pool.TargetLaunch
}

// IsLaunched returns whether the instance was bought by RunInstances, by this owner if it says by whom.
func IsLaunched(instance alicloud.Instance, owner string) bool {
	note, noted := noteOfTags(instance)
	return noted && !note.IsOfAnother(owner)
}

// LaunchActivities groups instances by the purchase by RunInstances that they are of, and returns each purchase as the activity that
// stands for it.
func LaunchActivities(instances []alicloud.Instance) []alicloud.Activity {
	byToken := map[string]*alicloud.Activity{}
	for _, instance := range instances {
		note, noted := noteOfTags(instance)
		if !noted {
			continue
		}
		activity := byToken[note.Token]
		if activity == nil {
			made := launchActivity(instance.Tags[api.TagInstancePool], note, instance.Created)
			made.CreatedCapacity = note.Count
			activity = &made
			byToken[note.Token] = activity
		}
		activity.CreatedInstances = append(activity.CreatedInstances, instance.ID)
		if instance.Created.After(activity.Ended) {
			activity.Ended = instance.Created
		}
	}
	activities := make([]alicloud.Activity, 0, len(byToken))
	for _, token := range slices.Sorted(maps.Keys(byToken)) {
		activities = append(activities, *byToken[token])
	}
	return activities
}

// Launching returns the pools whose launched instances must be listed now: those of launching, which buy by RunInstances, that may have
// instances of which nothing is known yet, and those with such purchases that are not over. unlisted are the instances of those purchases
// that were promised and have not been listed, each with its pool.
func (l *Ledger) Launching(launching sets.Set[string]) (pools sets.Set[string], unlisted map[string]string) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	pools, unlisted = sets.New[string](), map[string]string{}
	for poolID := range launching {
		if a := l.state.accounts[poolID]; a == nil || !a.historyRead || l.state.config.Clock.Since(l.state.begun) < shortfallTime {
			pools.Insert(poolID)
		}
	}
	for poolID, a := range l.state.accounts {
		for _, p := range a.book {
			if p.launch == nil {
				continue
			}
			pools.Insert(poolID)
			for id := range p.delivery.unlisted {
				unlisted[id] = poolID
			}
		}
	}
	return pools, unlisted
}

// Attachable returns the instances, by pool, that run and have to be put into their scaling groups. While instances wait to be removed
// from a scaling group none are attached to it: it does one thing at a time.
func (l *Ledger) Attachable() map[string][]string {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	givenBack := sets.New[string]()
	for _, a := range l.state.accounts {
		for _, p := range a.book {
			givenBack = givenBack.Union(l.state.noCapacity(p))
		}
	}
	busy := sets.New[string]()
	for id, leaving := range l.state.removals {
		if leaving.accepted.IsZero() && !l.state.facts.Instances[id].Unattached {
			busy.Insert(leaving.poolID)
		}
	}
	attachable := map[string][]string{}
	for id, instance := range l.state.facts.Instances {
		if instance.LifecycleState == alicloud.LifecycleUnattached && !busy.Has(instance.ScalingGroupID) && l.state.facts.StandingOf(instance) == snapshot.Serving && !givenBack.Has(id) {
			attachable[instance.ScalingGroupID] = append(attachable[instance.ScalingGroupID], id)
		}
	}
	for _, ids := range attachable {
		slices.Sort(ids)
	}
	return attachable
}
