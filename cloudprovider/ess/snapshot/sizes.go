package snapshot

import (
	"slices"
	"strings"
	"time"

	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
	"gpu-spot-autoscaler/pricing"
)

// GroupSize is how much there is of one node group.
type GroupSize struct {
	Live int
	// Purchased instances were bought, or are being bought, and are not delivered yet.
	Purchased int
	// Failed instances were not delivered, and core has not deleted them yet.
	Failed    int
	Instances []cloudprovider.Instance
}

// Target is the target size. It counts failed instances too: core lowers it by deleting them, after it has backed off.
func (s *GroupSize) Target() int { return s.Live + s.Purchased + s.Failed }

// PoolSize is how much there is of one pool. No instance counts twice, but Protected and Unattached ones are Live too.
type PoolSize struct {
	Live, Purchased, Reclaiming, Removing, Standby, Stopped int
	// Protected are the live instances that ESS was told to keep.
	Protected int
	// Unattached are the live instances that are not in the scaling group yet.
	Unattached  int
	LastScaleUp time.Time
}

// InGroup is how many instances count for the maximum of the scaling group: every one until it is gone, and those that are bought.
func (s *PoolSize) InGroup() int {
	return s.Live + s.Purchased + s.Reclaiming + s.Removing + s.Standby + s.Stopped
}

// GroupSize returns the size of the node group; zero for an unknown one.
func (s *Snapshot) GroupSize(groupID string) *GroupSize {
	s.counting.Do(s.count)
	if size := s.groups[groupID]; size != nil {
		return size
	}
	return &GroupSize{}
}

// PoolSize returns the size of the pool; zero for an unknown one.
func (s *Snapshot) PoolSize(poolID string) *PoolSize {
	s.counting.Do(s.count)
	if size := s.pools[poolID]; size != nil {
		return size
	}
	return &PoolSize{}
}

// count derives the sizes from instances and purchases.
func (s *Snapshot) count() {
	s.groups, s.pools, s.undelivered = map[string]*GroupSize{}, map[string]*PoolSize{}, map[pricing.Offering]int{}
	for _, instance := range s.Instances {
		s.countInstance(instance)
	}
	for i := range s.Purchases {
		s.countPurchase(&s.Purchases[i])
	}
	for _, group := range s.groups {
		slices.SortFunc(group.Instances, func(a, b cloudprovider.Instance) int { return strings.Compare(a.Id, b.Id) })
	}
}

// sizesOf returns the sizes that count the offering of the pool, to be added to.
func (s *Snapshot) sizesOf(poolID string, offering pricing.Offering) (*GroupSize, *PoolSize) {
	groupID := s.GroupID(poolID, offering)
	if s.groups[groupID] == nil {
		s.groups[groupID] = &GroupSize{}
	}
	if s.pools[poolID] == nil {
		s.pools[poolID] = &PoolSize{}
	}
	return s.groups[groupID], s.pools[poolID]
}

func (s *Snapshot) countInstance(instance alicloud.ScalingInstance) {
	group, pool := s.sizesOf(instance.ScalingGroupID, s.OfferingOf(instance))
	if instance.Created.After(pool.LastScaleUp) {
		pool.LastScaleUp = instance.Created
	}
	s.countInPool(pool, instance)
	state := cloudprovider.InstanceRunning
	switch {
	case s.noCapacity.Has(instance.ID), s.Loop.OutOfService.Has(instance.ID), s.Loop.Reclaiming.Has(instance.ID):
		state = cloudprovider.InstanceDeleting // so that core does not wait for its Node
	default:
		group.Live++
		if strings.HasPrefix(instance.LifecycleState, alicloud.LifecyclePending) {
			state = cloudprovider.InstanceCreating
		}
	}
	group.Instances = append(group.Instances, cloudprovider.Instance{
		Id:     s.providerIDOf(instance.ID),
		Status: &cloudprovider.InstanceStatus{State: state},
	})
}

// countInPool counts the instance as what it is now, not as of the last BeginLoop: core does not look at pools, and the
// bounds of a pool must not wait for the next loop.
func (s *Snapshot) countInPool(pool *PoolSize, instance alicloud.ScalingInstance) {
	standing := s.StandingOf(instance)
	if s.noCapacity.Has(instance.ID) {
		standing = Removing
	}
	switch standing {
	case Removing:
		pool.Removing++
	case Reclaiming:
		pool.Reclaiming++
	case Standby:
		pool.Standby++
	case Stopped:
		pool.Stopped++
	default:
		pool.Live++
		if IsKept(instance) {
			pool.Protected++
		}
		if instance.Unattached {
			pool.Unattached++
		}
	}
}

func (s *Snapshot) countPurchase(bought *Purchase) {
	group, pool := s.sizesOf(bought.PoolID, bought.Offering)
	if bought.Requested.After(pool.LastScaleUp) {
		pool.LastScaleUp = bought.Requested
	}
	s.undelivered[bought.Offering] += bought.Missing
	group.Purchased += bought.Missing
	pool.Purchased += bought.Missing
	group.Failed += len(bought.Placeholders)
	for _, id := range bought.Placeholders {
		group.Instances = append(group.Instances, cloudprovider.Instance{
			Id:     id,
			Status: &cloudprovider.InstanceStatus{State: cloudprovider.InstanceCreating, ErrorInfo: bought.Failure},
		})
	}
}

// providerIDOf returns the providerID in the form that the instance's Node has.
func (s *Snapshot) providerIDOf(instanceID string) string {
	if form, ok := s.Loop.ProviderIDs[instanceID]; ok {
		return form
	}
	return providerid.Format(s.Region, instanceID)
}
