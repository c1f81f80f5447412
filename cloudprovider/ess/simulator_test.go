package ess_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/problems/problemstest"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

const (
	region       = "ap-southeast-1"
	zoneA, zoneB = "ap-southeast-1a", "ap-southeast-1b"
	small, large = "ecs.test.small", "ecs.test.large"
	// step is how much time passes from one loop to the next.
	step = 5 * time.Second
)

type prices struct{}

func (prices) Currency() string                                  { return "CNY" }
func (prices) SetOfferings([]pricing.Offering, sets.Set[string]) {}
func (prices) Price(o pricing.Offering) (float64, bool) {
	return map[string]float64{small + zoneA: 4, small + zoneB: 5, large + zoneA: 30, large + zoneB: 31}[o.InstanceType+o.Zone], true
}
func (p prices) FreshPrice(o pricing.Offering) (float64, bool) { return p.Price(o) }
func (prices) Known() map[pricing.Offering]float64             { return nil }

// core buys as Cluster Autoscaler does: the difference to the targets, of the first offering that is not backed off, until all
// is there.
type core struct {
	*testing.T
	cloud    *alisim.Server
	clock    *clocktesting.FakeClock
	provider *ess.Provider
	events   *problemstest.Events
	// backedOff is until when, by node group.
	backedOff map[string]time.Time
	bought    int
}

func newCore(t *testing.T, seed uint64, change func(*alisim.World)) *core {
	// Requests are signed with the time of the real clock, and may be 15 minutes off.
	clk := clocktesting.NewFakeClock(time.Now().Add(-14 * time.Minute))
	pool := func(id string) alisim.Pool {
		return alisim.Pool{
			ID: id, MaxSize: 40, InstanceTypes: []string{small, large}, VSwitches: []string{"vsw-a", "vsw-b"},
			SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: ptr.To(false),
			Tags: map[string]string{"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/test": "owned"},
		}
	}
	world := alisim.World{
		Region: region, Seed: seed, Temper: temper.Strict(), RateLimits: map[string]int{"*": 0},
		VSwitches: []alisim.VSwitch{{ID: "vsw-a", Zone: zoneA}, {ID: "vsw-b", Zone: zoneB}},
		Types: []alisim.Type{
			{ID: small, VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "NVIDIA T4", GPUMemGiB: 16, OnDemand: 12, Spot: 4},
			{ID: large, VCPU: 64, MemoryGiB: 512, GPUs: 1, GPUModel: "NVIDIA V100", GPUMemGiB: 32, OnDemand: 100, Spot: 30},
		},
		Pools: []alisim.Pool{pool("asg-1"), pool("asg-2")},
	}
	if change != nil {
		change(&world)
	}
	cloud, err := alisim.Start(t.Context(), world, alisim.Options{Clock: clk})
	require.NoError(t, err)
	t.Cleanup(cloud.Stop)
	c := &core{T: t, cloud: cloud, clock: clk, backedOff: map[string]time.Time{}}
	c.restart()
	return c
}

// restart replaces the provider, as a new leader does.
func (c *core) restart() {
	c.Helper()
	if c.provider != nil {
		require.NoError(c, c.provider.Cleanup())
	}
	key, plenty := c.cloud.AccessKey(), rpc.Limit{PerSecond: 1e6, Burst: 1e6}
	limits := map[string]rpc.Limit{}
	for _, action := range []string{"DescribeScalingGroups", "DescribeScalingInstances", "DescribeScalingActivities", "ScaleWithAdjustment",
		"RemoveInstances", "DescribeScalingConfigurations", "DescribeInstanceTypes", "DescribeVSwitches"} {
		limits[action] = plenty
	}
	client, err := client.New(rpc.Options{
		Region: region, Scheme: "http", Credentials: credentials.NewStaticAKCredentialsProvider(key.ID, key.Secret), RateLimits: limits,
		Endpoints: rpc.Endpoints{ESS: c.cloud.Endpoint(), ECS: c.cloud.Endpoint(), VPC: c.cloud.Endpoint(), STS: c.cloud.STSEndpoint()},
		Retry:     wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 1},
	})
	require.NoError(c, err)
	c.Cleanup(client.Close)
	c.events = &problemstest.Events{}
	c.provider, err = ess.New(ess.Config{
		Cloud: client, Prices: prices{}, Events: c.events, Clock: c.clock, ClusterName: "test", Region: region,
		Occupied: func(*apiv1.Node) bool { return true },
	})
	require.NoError(c, err)
	c.backedOff = map[string]time.Time{}
}

func (c *core) nodes() (nodes []*apiv1.Node) {
	for _, instance := range c.cloud.Instances() {
		if instance.Status == "Running" && c.clock.Since(instance.Created) > time.Minute {
			nodes = append(nodes, &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: instance.ID}, Spec: apiv1.NodeSpec{ProviderID: region + "." + instance.ID}})
		}
	}
	return nodes
}

// loop buys towards wanted.
func (c *core) loop(wanted int) {
	c.Helper()
	c.provider.BeginLoop(c.nodes())
	if err := c.provider.Refresh(); err != nil {
		c.clock.Step(step)
		return
	}
	total := 0
	for _, group := range c.provider.NodeGroups() {
		target, err := group.TargetSize()
		require.NoError(c, err)
		instances, err := group.Nodes()
		require.NoError(c, err)
		var failed []*apiv1.Node
		for _, instance := range instances {
			if instance.Status.ErrorInfo != nil {
				failed = append(failed, &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: instance.Id}, Spec: apiv1.NodeSpec{ProviderID: instance.Id}})
			}
		}
		if len(failed) > 0 {
			c.backedOff[group.Id()] = c.clock.Now().Add(time.Minute)
			require.NoError(c, group.DeleteNodes(failed))
		}
		total += target - len(failed)
	}
	for _, group := range c.provider.NodeGroups() {
		target, _ := group.TargetSize()
		if room := min(wanted-total, group.MaxSize()-target); room > 0 && c.clock.Now().After(c.backedOff[group.Id()]) {
			require.NoError(c, group.IncreaseSize(room))
			c.bought++
			break // one a loop
		}
	}
	c.clock.Step(step)
}

// there counts the instances that stay, and those that activities under way will add.
func (c *core) there() (count int) {
	for _, id := range []string{"asg-1", "asg-2"} {
		view, known := c.cloud.Group(id)
		require.True(c, known)
		for _, activity := range view.Activities {
			left := len(activity.Created)
			if activity.Status == "InProgress" {
				left = max(left, activity.Asked)
			}
			count += left
		}
	}
	return count
}

func TestNothingIsBoughtTwiceOfAStrictCloud(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*alisim.World)
		seeds  []uint64
	}{
		"as it is":                     {nil, []uint64{1, 3, 5}},
		"with desired capacities":      {func(w *alisim.World) { desire(w, ptr.To(0)) }, []uint64{2}},
		"that takes purchases at once": {func(w *alisim.World) { w.Temper.OneAtATime = false }, []uint64{1}},
		"that loses every note":        {func(w *alisim.World) { w.Temper.LoseNoteOf = 1 }, []uint64{1}},
		"that rolls everything back":   {func(w *alisim.World) { w.Temper.RollBack = temper.RollBackAll }, []uint64{1}},
	} {
		for _, seed := range test.seeds {
			t.Run(fmt.Sprint(name, ", seed ", seed), func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 7))
				c := newCore(t, seed+1, test.change)
				wanted := 0
				for n := range 260 {
					switch calm := n > 170; {
					case n == 171:
						c.cloud.ClearFaults()
						c.setStock(func() int { return 1000 })
					case !calm:
						c.disturb(random)
						if random.IntN(12) == 0 {
							wanted = min(30, wanted+1+random.IntN(6))
						}
						if random.IntN(20) == 0 {
							c.restart()
						}
					}
					c.loop(wanted)
					require.LessOrEqual(t, c.there(), wanted, "loop %d: %v", n, c.events.All())
				}
				assert.Equal(t, wanted, c.there(), "%v", c.events.All())
				assert.Positive(t, c.bought)
			})
		}
	}
}

func desire(w *alisim.World, capacity *int) {
	for n := range w.Pools {
		w.Pools[n].DesiredCapacity = capacity
	}
}

func (c *core) setStock(stock func() int) {
	for _, typ := range []string{small, large} {
		for _, zone := range []string{zoneA, zoneB} {
			c.cloud.SetStock(typ, zone, stock())
		}
	}
}

// disturb changes the stock and the faults of the cloud.
func (c *core) disturb(random *rand.Rand) {
	// If a purchase comes short in a group with a desired capacity, ESS goes on to buy the rest, and nobody can undo that.
	if group, _ := c.cloud.Group("asg-1"); random.IntN(10) == 0 && group.DesiredCapacity == nil {
		c.setStock(func() int { return random.IntN(12) })
	}
	if random.IntN(8) == 0 {
		c.cloud.ClearFaults()
		fault := []alisim.Fault{
			{Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply, Times: 1},
			{Action: "ScaleWithAdjustment", Kind: alisim.FaultThrottle, Times: 3},
			{Action: "DescribeScalingActivities", Kind: alisim.FaultThrottle, Times: 4},
			{Action: "DescribeScalingInstances", Kind: alisim.FaultThrottle, Times: 2},
			{Action: "DescribeScalingGroups", Kind: alisim.FaultNotJSON, Times: 2},
		}[random.IntN(5)]
		require.NoError(c, c.cloud.Fault(fault))
	}
}
