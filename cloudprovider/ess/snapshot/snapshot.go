// Package snapshot is what the provider knows at one moment: pools, instances, and how much there is of each node group. A
// Snapshot is immutable, so that core and its processors read it without a lock while the next one is made.
package snapshot

import (
	"sync"
	"sync/atomic"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
	"gpu-spot-autoscaler/pricing"
)

// Facts are what a Snapshot is derived from. Maps and sets are replaced as a whole, never changed.
type Facts struct {
	Region string

	// The following are of the last refresh.

	// Refreshed is when it was; zero before the first.
	Refreshed time.Time
	// Pools are by scaling group. A pool that is out of order stays as it last was in order, with Unbuyable set.
	Pools map[string]*pool.Pool
	// Groups are all node groups that there were lately, by id, because core keeps node groups across loops.
	Groups map[string]Group
	// Instances are those of all pools, by id.
	Instances map[string]alicloud.ScalingInstance
	// Seen are the instances that are or were in a pool, to tell instances that are gone from those of others. Of those that
	// are gone it keeps only the ones that had a Node in the last loop.
	Seen  sets.Set[string]
	Types map[string]alicloud.InstanceType

	// Loop is of the last BeginLoop.
	Loop Loop

	// The following are as of now.

	Purchases []Purchase
	// Shortages are the offerings of which a purchase came short lately. An instance type in a zone is one market, so they hold
	// for all pools.
	Shortages map[pricing.Offering]Shortage
	// Removing are the instances that this process removes.
	Removing sets.Set[string]
}

// Loop is what stays the same from one BeginLoop to the next. Core asks about nodes before Refresh and about instances after
// it, and the two answers have to fit together.
type Loop struct {
	// Reclaiming are the instances with a reclaim notice.
	Reclaiming sets.Set[string]
	// Lost are those of them that the market takes away.
	Lost sets.Set[string]
	// OutOfService are the instances that are no capacity, though they are not being reclaimed.
	OutOfService sets.Set[string]
	// Disputed are the instances that several Nodes claim to be.
	Disputed sets.Set[string]
	// ProviderIDs are in the form in which each Node has it, by instance: core compares them as strings.
	ProviderIDs map[string]string
}

// Group is what a node group stands for.
type Group struct {
	PoolID   string
	Offering pricing.Offering
	// Seen is when a pool last had it.
	Seen time.Time
}

// Purchase is a request for instances that is not over.
type Purchase struct {
	Token, PoolID string
	Offering      pricing.Offering
	// Count is how many were asked for, Missing how many of them are not delivered yet.
	Count, Missing int
	// Expected is how many it takes of the stock: what is not delivered any more, or given back, is left out.
	Expected  int
	Requested time.Time
	// Accepted is when the cloud accepted it; zero before that.
	Accepted time.Time
	// ActivityID is empty where the cloud named no activity.
	ActivityID string
	// Placeholders are the providerIDs of failed instances that core has not deleted yet, Failure is why they failed.
	Placeholders []string
	Failure      *cloudprovider.InstanceErrorInfo
	// NoCapacity are instances that were created and are given back or rolled back.
	NoCapacity sets.Set[string]
}

// Snapshot answers from its Facts. It is immutable, and so are the objects that it returns.
type Snapshot struct {
	Facts
	purchases  map[string]*Purchase // by token
	noCapacity sets.Set[string]

	// counting makes the sizes when somebody first asks for one: the ledger publishes many more snapshots than are asked, and
	// counting 10 000 instances takes about ten milliseconds.
	counting sync.Once
	groups   map[string]*GroupSize
	pools    map[string]*PoolSize
	// undelivered counts what all pools wait for.
	undelivered map[pricing.Offering]int
}

// New returns the snapshot of these facts.
func New(facts Facts) *Snapshot {
	s := &Snapshot{Facts: facts, purchases: make(map[string]*Purchase, len(facts.Purchases)), noCapacity: sets.New[string]()}
	for i := range facts.Purchases {
		bought := &facts.Purchases[i]
		s.purchases[bought.Token] = bought
		s.noCapacity.Insert(bought.NoCapacity.UnsortedList()...)
	}
	return s
}

// Store holds the last snapshot. It is safe for concurrent use.
type Store struct{ last atomic.Pointer[Snapshot] }

// Last returns the last snapshot; an empty one before the first.
func (s *Store) Last() *Snapshot {
	if last := s.last.Load(); last != nil {
		return last
	}
	return New(Facts{})
}

// Publish makes this the last snapshot.
func (s *Store) Publish(next *Snapshot) { s.last.Store(next) }

// InstanceOf returns the id of the instance that the node claims to be. The error says why it can be none of ours.
func (f *Facts) InstanceOf(node *apiv1.Node) (string, error) {
	region, id, err := providerid.Parse(node.Spec.ProviderID)
	if err == nil && f.Region != "" && region != f.Region {
		err = &providerid.Error{ProviderID: node.Spec.ProviderID, Reason: "is of another region than " + f.Region}
	}
	return id, err
}

// InstanceID is InstanceOf with an empty id in place of the error.
func (f *Facts) InstanceID(node *apiv1.Node) string {
	id, err := f.InstanceOf(node)
	if err != nil {
		return ""
	}
	return id
}

// GroupID returns the id of the node group that holds the offering of the pool.
func (f *Facts) GroupID(poolID string, offering pricing.Offering) string {
	if known := f.Pools[poolID]; known != nil {
		return known.GroupID(offering)
	}
	return pool.OfferingID(poolID, offering)
}

// GroupOf returns the id of the node group of the node's instance, or of the failed purchase that the node stands for. It is
// false for nodes of no pool, and where the pool is not under management any more.
func (s *Snapshot) GroupOf(node *apiv1.Node) (string, bool) {
	if token, ok := PlaceholderToken(node.Spec.ProviderID); ok {
		if bought := s.purchases[token]; bought != nil {
			return s.groupOf(bought.PoolID, bought.Offering)
		}
		return "", false
	}
	if instance, ok := s.Instances[s.InstanceID(node)]; ok {
		return s.groupOf(instance.ScalingGroupID, s.OfferingOf(instance))
	}
	return "", false
}

func (s *Snapshot) groupOf(poolID string, offering pricing.Offering) (string, bool) {
	if s.Pools[poolID] == nil {
		return "", false
	}
	id := s.GroupID(poolID, offering)
	_, known := s.Groups[id]
	return id, known
}

// PoolOf returns the pool of the node group; nil where it is not under management any more.
func (f *Facts) PoolOf(groupID string) *pool.Pool {
	group, known := f.Groups[groupID]
	if !known {
		return nil
	}
	return f.Pools[group.PoolID]
}

// Offering returns the offering of the node group; nil where there is no such offering any more.
func (f *Facts) Offering(groupID string) *pool.Offering {
	if known := f.PoolOf(groupID); known != nil {
		return known.NodeGroups[groupID]
	}
	return nil
}

// OfferingOf returns what the instance counts as. An instance that ESS lists incompletely counts as what was bought by the
// purchase that it came from.
func (s *Snapshot) OfferingOf(instance alicloud.ScalingInstance) pricing.Offering {
	if IsIncomplete(instance) && instance.ScalingActivityID != "" {
		for _, bought := range s.Purchases {
			if bought.ActivityID == instance.ScalingActivityID {
				return bought.Offering
			}
		}
	}
	return OfferingOf(instance)
}
