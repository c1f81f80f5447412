package ess

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/pricing"
)

// View answers from the last snapshot what core's interfaces do not ask, but its processors and the rest of the autoscaler do.
// It is safe for concurrent use.
type View struct {
	store   *snapshot.Store
	prices  Prices
	penalty *interruptionPenalty
	market  Market
	terms   pricing.Terms
}

// IsReclaiming returns whether the node's instance is being reclaimed. The answer does not change until the next BeginLoop.
func (v *View) IsReclaiming(node *apiv1.Node) bool {
	last := v.store.Last()
	return last.Loop.Reclaiming.Has(last.InstanceID(node))
}

// OutOfService returns whether the node is no capacity though it is not being reclaimed: its instance is being removed, or was
// removed, or is on standby or stopped. The answer does not change until the next BeginLoop, and neither do the targets and
// instances of the node groups: core takes the difference between a target and the Nodes that it sees for what is still to
// come, so an instance that counted on one side only would hide a purchase.
func (v *View) OutOfService(node *apiv1.Node) bool {
	last := v.store.Last()
	return last.Loop.OutOfService.Has(last.InstanceID(node))
}

// Lists returns whether the instance was in a pool at the last refresh. None was before FirstRead.
func (v *View) Lists(instanceID string) bool {
	_, listed := v.store.Last().Instances[instanceID]
	return listed
}

// Serves returns whether the node's instance is in a pool, and is not reclaimed, removed, on standby or stopped.
func (v *View) Serves(node *apiv1.Node) bool { return serves(v.store.Last(), node) }

func serves(last *snapshot.Snapshot, node *apiv1.Node) bool {
	instance, listed := last.Instances[last.InstanceID(node)]
	_, ours := last.GroupOf(node)
	return listed && ours && last.StandingOf(instance) == snapshot.Serving
}

// MayGiveBack returns whether the node's instance is in a pool and may be given back: it serves, nobody has told ESS to keep it,
// and no other Node claims to be the same instance.
func (v *View) MayGiveBack(node *apiv1.Node) bool {
	last := v.store.Last()
	id := last.InstanceID(node)
	return serves(last, node) && !snapshot.IsKept(last.Instances[id]) && !last.Loop.Disputed.Has(id)
}

// PoolStatus is a pool as scale-down and moves have to see it.
type PoolStatus struct {
	ID string
	// Size counts the instances that serve. It leaves out those that are being reclaimed or removed, on standby or stopped, and
	// those that were purchased and are not delivered yet.
	Size int
	// MinSize is the size that scale-down must leave.
	MinSize int
	// Cooldown is how long after LastScaleUp the pool is not scaled down; nil where the pool sets none.
	Cooldown    *time.Duration
	LastScaleUp time.Time
	// MoveToSpot is whether jobs on on-demand instances of the pool are to move to spot ones unless they say otherwise.
	MoveToSpot bool
}

// CoolsDown returns whether the pool is not to be scaled down yet, because something was bought in it. The pool may set no cooldown of its
// own: then the given one counts.
func (s PoolStatus) CoolsDown(otherwise time.Duration, now time.Time) bool {
	cooldown := ptr.Deref(s.Cooldown, otherwise)
	return cooldown > 0 && now.Sub(s.LastScaleUp) < cooldown
}

// PoolOf returns the pool of the node; false for a node of no pool.
func (v *View) PoolOf(node *apiv1.Node) (PoolStatus, bool) {
	id, ours := v.store.Last().GroupOf(node)
	if !ours {
		return PoolStatus{}, false
	}
	return v.PoolOfGroup(id)
}

// PoolOfGroup returns the pool of the node group; false for one of no pool.
func (v *View) PoolOfGroup(groupID string) (PoolStatus, bool) {
	last := v.store.Last()
	known := last.PoolOf(groupID)
	if known == nil {
		return PoolStatus{}, false
	}
	size := last.PoolSize(known.ID)
	return PoolStatus{
		ID: known.ID, Size: size.Live, MinSize: known.MinSize,
		Cooldown: known.Settings.Cooldown, LastScaleUp: size.LastScaleUp, MoveToSpot: known.Settings.MoveToSpot,
	}, true
}

// PoolID returns the pool of the node; false for a node of no pool.
func (v *View) PoolID(node *apiv1.Node) (id string, ours bool) {
	last := v.store.Last()
	group, ours := last.GroupOf(node)
	if !ours {
		return "", false
	}
	return last.Groups[group].PoolID, true
}

// TemplateOf returns the node that the offering of the node promises; nil for a node of no offering. The caller must not
// change it.
func (v *View) TemplateOf(node *apiv1.Node) *apiv1.Node {
	last := v.store.Last()
	id, ours := last.GroupOf(node)
	if !ours {
		return nil
	}
	if offered := last.Offering(id); offered != nil {
		return offered.Template
	}
	return nil
}

// TemplateVersion changes whenever the template of the node group changes. It is empty for a node group that is gone.
func (v *View) TemplateVersion(groupID string) string {
	if offered := v.store.Last().Offering(groupID); offered != nil {
		return offered.TemplateVersion
	}
	return ""
}

// BuysForCPUPods returns whether nodes of the group may be bought for pods that request no GPU.
func (v *View) BuysForCPUPods(groupID string) bool {
	last := v.store.Last()
	known, offered := last.PoolOf(groupID), last.Offering(groupID)
	return known != nil && offered != nil && known.BuysForCPUPods(offered)
}

// OnDemandAfter returns how long pods wait before instances of the node group are bought for them, and whether it is of on-demand instances.
func (v *View) OnDemandAfter(groupID string) (wait time.Duration, onDemand bool) {
	last := v.store.Last()
	known := last.PoolOf(groupID)
	if known == nil || last.Groups[groupID].Offering.Spot {
		return 0, false
	}
	return known.Settings.OnDemandAfter, true
}

// Sold returns what the node group sells, how many GPUs its machines have, for how long a new spot instance of it is protected, and the node that
// it promises, nil for a node group that is gone. The caller must not change it.
func (v *View) Sold(groupID string) (offering pricing.Offering, gpus float64, protected time.Duration, node *apiv1.Node) {
	last := v.store.Last()
	known, offered := last.PoolOf(groupID), last.Offering(groupID)
	if known == nil || offered == nil {
		return offering, 0, 0, nil
	}
	offering = last.Groups[groupID].Offering
	return offering, float64(last.Types[offering.InstanceType].GPUs), known.SpotDuration, offered.Template
}

// Undelivered returns how many instances of the group's pool were bought and are not delivered yet.
func (v *View) Undelivered(groupID string) int {
	last := v.store.Last()
	return last.PoolSize(last.Groups[groupID].PoolID).Purchased
}

// RoomBeside returns how many instances of the group may be bought beside those that are planned, by group.
func (v *View) RoomBeside(groupID string, planned map[string]int) int {
	return v.store.Last().RoomBeside(groupID, planned, v.prices)
}

// NodePrice returns the hourly price of one node of the group, for comparison with others: the market price, raised where
// instances are lost or run short, which costs more the more the time of the pods is worth; nil if they do not say, then the pool or the flag does.
// It is false while the price is unknown.
func (v *View) NodePrice(groupID string, valueOfTime *float64) (float64, bool) {
	last := v.store.Last()
	known := last.PoolOf(groupID)
	if known == nil {
		return 0, false
	}
	terms := v.terms.With(known.Settings.ValueOfTime).With(valueOfTime)
	return known.Price(last.Groups[groupID].Offering, v.prices, func(offering pricing.Offering) float64 { return v.dearness(offering, terms) })
}

// MarketPrice returns the hourly price of one node of the group, that of the dearest offering for a whole pool. It is false while the
// price is unknown.
func (v *View) MarketPrice(groupID string) (float64, bool) {
	last := v.store.Last()
	known := last.PoolOf(groupID)
	if known == nil {
		return 0, false
	}
	return known.Price(last.Groups[groupID].Offering, v.prices, nil)
}

// dearness returns the factor by which the price of the offering counts for more than it is: because instances of it are lost and
// purchases of it refused (pricing.UsefulCost), because instances of it are being reclaimed, and because more of them are asked for than there
// may be in stock.
func (v *View) dearness(offering pricing.Offering, terms pricing.Terms) float64 {
	return v.risk(offering, terms) * v.penalty.Of(offering) * v.store.Last().Crowding(offering)
}

// risk returns how much dearer an hour of useful work is than an hour of an instance.
func (v *View) risk(offering pricing.Offering, terms pricing.Terms) float64 {
	price, known := v.prices.Price(offering)
	if !known || price <= 0 || !offering.Spot {
		return 1
	}
	onDemand := offering
	onDemand.Spot = false
	listed, _ := v.prices.Price(onDemand)
	return pricing.UsefulCost(price, listed, v.market.Of(offering), terms) / price
}

// MostPods returns how many pods with the requests of this one the pools could hold, if each were bought up to its maximum with
// the offering that holds most of them. It is an upper bound: it ignores other pods, and whether the pods may be placed there.
func (v *View) MostPods(pod *apiv1.Pod) int {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	last := v.store.Last()
	most := 0
	for _, known := range last.Pools {
		most += known.MaxPods(requests) * max(known.MaxSize, last.PoolSize(known.ID).Live)
	}
	return most
}

// Pools returns the pools in working order as of the last refresh and the last purchase, by id, and when that refresh was;
// zero before the first.
func (v *View) Pools() (pools []status.Pool, refreshed time.Time) {
	last := v.store.Last()
	pools = last.Status(v.prices)
	for i := range pools {
		terms := v.terms
		if known := last.Pools[pools[i].ID]; known != nil {
			terms = terms.With(known.Settings.ValueOfTime)
		}
		for j := range pools[i].Offerings {
			v.addReliability(&pools[i].Offerings[j], last.Groups[pools[i].Offerings[j].ID].Offering, terms)
		}
	}
	return pools, last.Refreshed
}

// addReliability adds what is known of the market of the offering.
func (v *View) addReliability(to *status.Offering, offering pricing.Offering, terms pricing.Terms) {
	if to.Price != nil {
		to.UsefulCost = ptr.To(*to.Price * v.dearness(offering, terms))
	}
	if known := v.market.Of(offering); known.Life > 0 {
		to.LifeHours, to.Refusal = ptr.To(known.Life.Hours()), ptr.To(known.Refusal)
	}
}

// shape tells the pricing model what an instance type consists of.
func (v *View) shape(instanceType string) (pricing.Shape, bool) {
	t, known := v.store.Last().Types[instanceType]
	return pricing.Shape{VCPU: float64(t.VCPU), MemoryGiB: t.MemoryGiB, GPUs: float64(t.GPUs)}, known
}

// candidates tells the pricing model which offerings the template of a whole pool stands for.
func (v *View) candidates(node *apiv1.Node) []pricing.Offering {
	known := v.store.Last().Pools[node.Annotations[api.AnnotationWholePool]]
	if known == nil {
		return nil
	}
	return priced(known.Offerings)
}

func priced(offerings []*pool.Offering) []pricing.Offering {
	var keys []pricing.Offering
	for _, offered := range offerings {
		keys = append(keys, offered.Offering)
	}
	return keys
}
