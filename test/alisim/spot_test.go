package alisim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
)

// machines lists ECS instances.
func (s *sim) machines(change func(*ecs.DescribeInstancesRequest)) []ecs.Instance {
	s.t.Helper()
	r := ecs.CreateDescribeInstancesRequest()
	r.MaxResults = requests.NewInteger(100)
	if change != nil {
		change(r)
	}
	resp, err := s.ecs.DescribeInstances(r)
	require.NoError(s.t, err)
	return resp.Instances.Instance
}

func recycling(r *ecs.DescribeInstancesRequest) { r.LockReason = "Recycling" }

// protectedHour is how long the first hour lasts in the tests' world.
const protectedHour = time.Minute

func TestTheMarketReclaims(t *testing.T) {
	for _, test := range []struct {
		name   string
		pool   func(*alisim.Pool)
		change func(*sim)
		count  int
		// now and after say how many have their notice before and after the protected hour.
		now, after int
	}{
		{name: "all of an offering that is gone, after the first hour", change: func(s *sim) { s.SetStock(small, zoneA, 0) }, count: 3, now: 0, after: 3},
		{name: "at once where there is no protected hour", pool: func(p *alisim.Pool) { p.SpotDuration = ptr.To(0) },
			change: func(s *sim) { s.SetStock(small, zoneA, 0) }, count: 3, now: 3, after: 3},
		{name: "what is beyond the stock", pool: func(p *alisim.Pool) { p.SpotDuration = ptr.To(0) },
			change: func(s *sim) { s.SetStock(small, zoneA, 2) }, count: 3, now: 1, after: 1},
		{name: "nothing in another zone", change: func(s *sim) { s.SetStock(small, zoneB, 0) }, count: 3},
		{name: "nothing for its price without a limit", change: func(s *sim) { s.SetPrice(small, zoneA, 11, 12) }, count: 1},
		{name: "above the price limit", pool: func(p *alisim.Pool) {
			p.SpotStrategy, p.SpotPriceLimits, p.SpotDuration = alisim.SpotWithPriceLimit, map[string]float64{small: 5, medium: 5}, ptr.To(0)
		}, change: func(s *sim) { s.SetPrice(small, zoneA, 5.1, 12) }, count: 2, now: 2, after: 2},
		{name: "not at the price limit", pool: func(p *alisim.Pool) {
			p.SpotStrategy, p.SpotPriceLimits, p.SpotDuration = alisim.SpotWithPriceLimit, map[string]float64{small: 5, medium: 5}, ptr.To(0)
		}, change: func(s *sim) { s.SetPrice(small, zoneA, 5, 12) }, count: 2},
		{name: "never what is on demand", pool: func(p *alisim.Pool) { p.SpotStrategy = alisim.NoSpot },
			change: func(s *sim) { s.SetStock(small, zoneA, 0) }, count: 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) {
				if test.pool != nil {
					test.pool(&w.Pools[0])
				}
			})
			s.buy(spotGroup, test.count)
			test.change(s)
			assert.Len(t, s.machines(recycling), test.now)
			s.pass(protectedHour)
			assert.Len(t, s.machines(recycling), test.after)
		})
	}
}

func TestTheScriptOfAMarketReclaims(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		w.Market.Script = []alisim.Change{{At: metav1.Duration{Duration: 2 * time.Hour}, Zone: zoneA, Stock: ptr.To(0)}}
	})
	s.buy(spotGroup, 2)
	s.pass(2*time.Minute - activityDelay - time.Second)
	assert.Empty(t, s.machines(recycling), "two market hours are two minutes at this speed")
	s.pass(time.Second)
	assert.Len(t, s.machines(recycling), 2)
}

func TestANoticeIsSeenEverywhereAndThenTheInstanceIsGone(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 2)
	reclaiming := ids(s.members(spotGroup))[0]
	assert.Equal(t, 404, s.metadata(reclaiming, "instance/spot/termination-time").status)
	require.NoError(t, s.Reclaim(reclaiming))

	list := s.machines(recycling)
	require.Len(t, list, 1)
	assert.Equal(t, reclaiming, list[0].InstanceId)
	require.Len(t, list[0].OperationLocks.LockReason, 1)
	assert.Equal(t, "Recycling", list[0].OperationLocks.LockReason[0].LockReason)
	deadline := s.clock.Now().Add(noticeDelay).UTC().Format("2006-01-02T15:04:05Z")
	assert.Equal(t, deadline, s.metadata(reclaiming, "instance/spot/termination-time").body)
	assert.Len(t, s.members(spotGroup), 2, "the scaling group does not care yet")

	s.pass(noticeDelay - time.Second)
	assert.Len(t, s.machines(nil), 2, "it runs until the end of the notice")
	s.pass(time.Second)
	assert.Len(t, s.machines(nil), 1)
	assert.Empty(t, s.machines(recycling))
	assert.Equal(t, 404, s.metadata(reclaiming, "instance-id").status)
	require.Len(t, s.members(spotGroup), 2, "the scaling group has not noticed")
	assert.Equal(t, "Unhealthy", s.members(spotGroup)[0].HealthStatus)
	s.pass(healthCheckDelay)
	assert.NotContains(t, ids(s.members(spotGroup)), reclaiming)
	assert.Len(t, s.Instances(), 1)
}

func TestTheGroupHealsItself(t *testing.T) {
	for _, test := range []struct {
		name string
		pool func(*alisim.Pool)
		// kept says whether the dead instance stays a member, after how many members there are in the end.
		kept  bool
		after int
	}{
		{"not without minimum or desired capacity", func(*alisim.Pool) {}, false, 2},
		{"up to its minimum", func(p *alisim.Pool) { p.MinSize = 3 }, false, 3},
		{"up to its desired capacity", func(p *alisim.Pool) { p.DesiredCapacity = ptr.To(3) }, false, 3},
		{"not while scale-out is suspended", func(p *alisim.Pool) { p.DesiredCapacity, p.SuspendedProcesses = ptr.To(3), []string{"ScaleOut"} }, false, 2},
		{"not without health check", func(p *alisim.Pool) { p.DesiredCapacity, p.HealthCheckType = ptr.To(3), "NONE" }, true, 3},
		{"not while health checks are suspended", func(p *alisim.Pool) { p.DesiredCapacity, p.SuspendedProcesses = ptr.To(3), []string{"HealthCheck"} }, true, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(w *alisim.World) {
				w.Pools[0].Instances = 3
				test.pool(&w.Pools[0])
			})
			s.pass(healthCheckDelay)
			dead := ids(s.members(spotGroup))[1]
			require.NoError(t, s.StopInstance(dead))
			assert.Equal(t, "Unhealthy", s.members(spotGroup)[1].HealthStatus)
			s.pass(2 * (healthCheckDelay + activityDelay))
			assert.Len(t, s.members(spotGroup), test.after)
			assert.Equal(t, test.kept, slices.Contains(ids(s.members(spotGroup)), dead))
		})
	}
}

func TestDesiredCapacityIsTriedAgainUntilThereIsStock(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		w.Pools[0].DesiredCapacity, w.Pools[0].InstanceTypes, w.Pools[0].VSwitches = ptr.To(0), []string{small}, []string{vswA}
	})
	s.SetStock(small, zoneA, 0)
	a := s.buy(spotGroup, 2)
	assert.Equal(t, "Failed", a.StatusCode)
	assert.Equal(t, 2, s.group(spotGroup).DesiredCapacity, "the wish outlives the failure")
	s.SetStock(small, zoneA, 2)
	s.pass(healthCheckDelay + activityDelay)
	assert.Len(t, s.members(spotGroup), 2, "bought without anybody asking")
}

func TestANoticeCanBeWithdrawn(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 1)
	spared := ids(s.members(spotGroup))[0]
	require.Error(t, s.Withdraw(spared), "there is none")
	require.NoError(t, s.Reclaim(spared))
	s.pass(noticeDelay / 2)
	require.NoError(t, s.Withdraw(spared))
	assert.Empty(t, s.machines(recycling))
	assert.Equal(t, 404, s.metadata(spared, "instance/spot/termination-time").status)

	s.pass(noticeDelay / 4)
	require.NoError(t, s.Reclaim(spared), "and given again")
	s.pass(noticeDelay - time.Second)
	assert.Len(t, s.machines(nil), 1, "the first deadline was none")
	s.pass(time.Second)
	assert.Empty(t, s.machines(nil))
	assert.Error(t, s.Withdraw(spared), "it is gone")
}

func TestSpotInstanceRemedyReplacesAtTheNotice(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].SpotInstanceRemedy, w.Pools[0].MaxSize = true, 1 })
	s.buy(spotGroup, 1)
	reclaiming := ids(s.members(spotGroup))[0]
	require.NoError(t, s.Reclaim(reclaiming))
	s.pass(activityDelay / 2)
	assert.Len(t, s.members(spotGroup), 2, "both are there for a moment, above the maximum")
	s.settle()
	require.Len(t, s.members(spotGroup), 1)
	assert.NotEqual(t, reclaiming, ids(s.members(spotGroup))[0])
	assert.Len(t, s.machines(recycling), 1, "the reclaiming one still runs out its notice")
	s.pass(noticeDelay)
	assert.Len(t, s.machines(nil), 1)
}

func TestReclaimingInstancesOccupyTheStock(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		w.Pools[0].InstanceTypes, w.Pools[0].VSwitches = []string{small}, []string{vswA}
	})
	s.SetStock(small, zoneA, 1)
	s.buy(spotGroup, 1)
	require.NoError(t, s.Reclaim(ids(s.members(spotGroup))[0]))
	assert.Equal(t, "Failed", s.buy(spotGroup, 1).StatusCode)
	s.pass(noticeDelay)
	assert.Equal(t, "Successful", s.buy(spotGroup, 1).StatusCode)
}

func TestTheBillOfTheProtectedHourIsThePriceOfThePurchase(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].SpotDuration = ptr.To(1) })
	s.SetPrice(small, zoneA, 6, 12)
	s.buy(spotGroup, 1)
	bought := s.Instances()[0].Created
	s.SetPrice(small, zoneA, 3, 12)
	s.pass(bought.Add(3 * s.MarketHour()).Sub(s.clock.Now()))
	assert.InDelta(t, (6+2*3)*s.MarketHour().Hours(), s.Bill(), .001)
}

func TestTheBillIsTheMarketPriceFromCreationToRelease(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].SpotDuration = ptr.To(0) })
	s.SetPrice(small, zoneA, 6, 12)
	s.buy(spotGroup, 2)
	before := s.Bill()
	s.pass(30 * time.Minute)
	s.SetPrice(small, zoneA, 3, 12)
	s.pass(30 * time.Minute)
	assert.InDelta(t, .9*2*(6*.5+3*.5), s.Bill()-before, .01, "without a protected hour the market is cheaper")

	s.SetStock(small, zoneA, 0)
	s.pass(time.Hour) // the notices run out
	end := s.Bill()
	s.pass(time.Hour)
	assert.Equal(t, end, s.Bill(), "what is released costs nothing")
}
