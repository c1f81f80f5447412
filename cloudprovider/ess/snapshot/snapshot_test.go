package snapshot

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/pricing"
)

const (
	a10     = "ecs.gn7i-c8g1.2xlarge"
	a10InA  = "asg-1/" + a10 + "/zone-a/spot"
	unknown = "asg-2/" + a10 + "/zone-a/spot"
)

var offering = pricing.Offering{InstanceType: a10, Zone: "zone-a", Spot: true}

// noPrices knows no price.
type noPrices struct{ pool.Prices }

// facts returns a pool of at most eight instances, in a scaling group of at most ten, with one instance in each of these states.
func facts(states ...string) Facts {
	known := &pool.Pool{
		ID: "asg-1", Targeting: pool.TargetRequest, MaxSize: 8, Group: alicloud.ScalingGroup{MaxSize: 10},
		NodeGroups: map[string]*pool.Offering{a10InA: {Offering: offering}},
	}
	f := Facts{
		Region: "cn-test", Pools: map[string]*pool.Pool{"asg-1": known}, Groups: map[string]Group{a10InA: {PoolID: "asg-1", Offering: offering}},
		Instances: map[string]alicloud.ScalingInstance{}, Removing: sets.New[string](),
	}
	for i, state := range states {
		id := "i-" + strconv.Itoa(i)
		f.Instances[id] = alicloud.ScalingInstance{
			ID: id, ScalingGroupID: "asg-1", LifecycleState: state, InstanceType: a10, ZoneID: "zone-a", SpotStrategy: alicloud.SpotAsPriceGo,
		}
	}
	return f
}

func TestAnInstanceCountsOnceInItsPool(t *testing.T) {
	f := facts(alicloud.LifecycleInService, alicloud.LifecycleProtected, alicloud.LifecycleStandby, alicloud.LifecycleStopped,
		alicloud.LifecycleRemoving, alicloud.LifecycleInService, alicloud.LifecycleInService)
	f.Removing.Insert("i-5")
	f.Loop.Reclaiming = sets.New("i-6")
	s := New(f)
	assert.Equal(t, PoolSize{Live: 2, Protected: 1, Standby: 1, Stopped: 1, Removing: 2, Reclaiming: 1}, *s.PoolSize("asg-1"))
	assert.Equal(t, 10-2-1-1-2-1, s.Room(a10InA, noPrices{}), "the scaling group counts every instance until it is gone")
}

func TestTheTargetStaysTheSameFromOneLoopToTheNext(t *testing.T) {
	f := facts(alicloud.LifecycleInService, alicloud.LifecycleInService, alicloud.LifecyclePending)
	f.Removing.Insert("i-0")
	assert.Equal(t, 3, New(f).GroupSize(a10InA).Target(), "core has seen its Node in this loop")
	f.Loop.OutOfService = sets.New("i-0")
	size := New(f).GroupSize(a10InA)
	assert.Equal(t, 2, size.Target())
	states := map[string]cloudprovider.InstanceState{}
	for _, instance := range size.Instances {
		states[instance.Id] = instance.Status.State
	}
	assert.Equal(t, map[string]cloudprovider.InstanceState{
		"cn-test.i-0": cloudprovider.InstanceDeleting, "cn-test.i-1": cloudprovider.InstanceRunning, "cn-test.i-2": cloudprovider.InstanceCreating,
	}, states)
}

func TestAPurchaseCountsUntilItIsOver(t *testing.T) {
	f := facts(alicloud.LifecycleInService)
	requested := time.Now()
	failure := &cloudprovider.InstanceErrorInfo{ErrorCode: "NoStock"}
	f.Purchases = []Purchase{{
		Token: "t", PoolID: "asg-1", Offering: offering, Count: 4, Missing: 2, Requested: requested,
		Placeholders: []string{Placeholder("t", 0), Placeholder("t", 1)}, Failure: failure,
	}}
	s := New(f)
	size := s.GroupSize(a10InA)
	assert.Equal(t, []int{1, 2, 2, 5}, []int{size.Live, size.Purchased, size.Failed, size.Target()})
	assert.Equal(t, 8-1-2, s.Room(a10InA, noPrices{}), "failed instances take no room")
	assert.Equal(t, requested, s.PoolSize("asg-1").LastScaleUp)

	placeholder := &apiv1.Node{Spec: apiv1.NodeSpec{ProviderID: Placeholder("t", 1)}}
	group, ours := s.GroupOf(placeholder)
	assert.True(t, ours)
	assert.Equal(t, a10InA, group)
}

func TestNothingIsKnownOfAGroupThatIsNotManaged(t *testing.T) {
	s := New(facts())
	assert.Nil(t, s.PoolOf(unknown))
	assert.Nil(t, s.Offering(unknown))
	assert.Zero(t, s.GroupSize(unknown).Target())
	assert.Zero(t, s.Room(unknown, noPrices{}))
	_, ours := s.GroupOf(&apiv1.Node{Spec: apiv1.NodeSpec{ProviderID: "cn-test.i-foreign"}})
	assert.False(t, ours)
	_, err := s.InstanceOf(&apiv1.Node{Spec: apiv1.NodeSpec{ProviderID: "cn-elsewhere.i-0"}})
	assert.ErrorContains(t, err, "another region")
}

func TestTheStoreIsEmptyBeforeTheFirstSnapshot(t *testing.T) {
	store := &Store{}
	assert.True(t, store.Last().Refreshed.IsZero())
	published := New(facts(alicloud.LifecycleInService))
	store.Publish(published)
	assert.Same(t, published, store.Last())
}

// running returns facts with n instances in service.
func running(n int) Facts {
	return facts(slices.Repeat([]string{alicloud.LifecycleInService}, n)...)
}

func TestASnapshotOfManyInstancesIsMadeAsFastAsOneOfFew(t *testing.T) {
	few, many := running(1), running(1000)
	assert.Equal(t, testing.AllocsPerRun(10, func() { New(few) }), testing.AllocsPerRun(10, func() { New(many) }))
}

func TestTheSizesAreCountedOnceForAllWhoAsk(t *testing.T) {
	s := New(running(100))
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			assert.Equal(t, 100, s.GroupSize(a10InA).Target())
			assert.Equal(t, 100, s.PoolSize("asg-1").Live)
		})
	}
	asking.Wait()
	assert.Same(t, s.GroupSize(a10InA), s.GroupSize(a10InA))
}

func BenchmarkNew(b *testing.B) {
	f := running(10_000)
	for b.Loop() {
		New(f)
	}
}

func BenchmarkNewAndCount(b *testing.B) {
	f := running(10_000)
	for b.Loop() {
		New(f).PoolSize("asg-1")
	}
}
