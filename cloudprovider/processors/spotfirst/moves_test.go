package spotfirst

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// certain knows on which offerings a job costs less than on demand, or not. On demand costs 3, spot 1.
type certain struct {
	listener
	better  []pricing.Offering
	decides bool
	asked   int
}

func (c *certain) Better(_ *deadline.Offers, job deadline.Job) ([]pricing.Offering, bool) {
	c.job, c.asked = job, c.asked+1
	return c.better, c.decides && job.Slack > 0
}

func TestAMovePaysByHowLongTheJobGoesOn(t *testing.T) {
	now := testutil.Epoch
	by := func(d time.Duration) testutil.PodOption {
		return testutil.Annotated(api.AnnotationDeadline, now.Add(d).Format(time.RFC3339))
	}
	work := func(d time.Duration) testutil.PodOption { return testutil.Annotated(api.AnnotationWork, d.String()) }
	unknown := certain{}
	spotIs, spotIsNot := certain{decides: true, better: []pricing.Offering{a10Spot}}, certain{decides: true}
	worth := func(value string) testutil.PodOption { return testutil.Annotated(api.AnnotationValueOfTime, value) }
	for name, c := range map[string]struct {
		ran     time.Duration
		market  certain
		options []testutil.PodOption
		pays    bool
	}{
		"one that has run for long":                             {2 * time.Hour, unknown, nil, true},
		"one that has just begun":                               {10 * time.Minute, unknown, nil, false},
		"one that is almost over":                               {23 * time.Hour, unknown, []testutil.PodOption{work(23*time.Hour + 10*time.Minute)}, false},
		"one with work left":                                    {2 * time.Hour, unknown, []testutil.PodOption{work(24 * time.Hour)}, true},
		"one with time until its deadline":                      {2 * time.Hour, spotIs, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, true},
		"one of which the market is not known":                  {2 * time.Hour, unknown, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, true},
		"one with no time for another reclaim":                  {2 * time.Hour, spotIs, []testutil.PodOption{work(24 * time.Hour), by(22*time.Hour + 2*restart)}, false},
		"one that has just begun, and had better be on spot":    {time.Minute, spotIs, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, true},
		"one that has just begun in a market that is not known": {time.Minute, unknown, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, false},
		"one that had better stay on demand":                    {20 * time.Hour, spotIsNot, []testutil.PodOption{work(24 * time.Hour), by(26 * time.Hour)}, false},
		"one whose time is worth little":                        {2 * time.Hour, unknown, []testutil.PodOption{worth("1")}, true},
		"one whose time is worth a restart":                     {2 * time.Hour, unknown, []testutil.PodOption{worth("64")}, false},
		"one whose work until then is not known":                {2 * time.Hour, unknown, []testutil.PodOption{by(26 * time.Hour)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(now)
			deadlines := NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), &c.market, clock)
			moves := NewMoves(deadlines, nil, pricing.Terms{Restart: restart}, clock)
			plan, pays := moves.Plan(Job{
				Pods: []*apiv1.Pod{gpuPod("p", c.options...), gpuPod("q", c.options...)}, Nodes: []*apiv1.Node{{}, {}}, Since: now.Add(-c.ran),
			})
			assert.Equal(t, c.pays, pays)
			if pays {
				plan.Saved = 0
				assert.Equal(t, Plan{Spot: 2, OnDemand: 6, Offerings: [][]pricing.Offering{{a10Spot}, {a10Spot}}}, plan)
			}
		})
	}
}

func TestAJobOfWhichAPartIsOnSpotMovesOnlyIfTheRestartOfThatPaysToo(t *testing.T) {
	now := testutil.Epoch
	market := certain{decides: true, better: []pricing.Offering{a10Spot}}
	clock := clocktesting.NewFakePassiveClock(now)
	moves := NewMoves(NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), &market, clock), nil, pricing.Terms{Restart: restart}, clock)
	timed := []testutil.PodOption{testutil.Annotated(api.AnnotationDeadline, now.Add(26*time.Hour).Format(time.RFC3339)), testutil.Annotated(api.AnnotationWork, "24h")}
	job := Job{Pods: []*apiv1.Pod{gpuPod("p", timed...)}, Nodes: []*apiv1.Node{{}}, Since: now.Add(-10 * time.Minute), Rest: []*apiv1.Pod{testutil.NewPod("launcher", testutil.WithoutGPU)}}
	_, pays := moves.Plan(job)
	assert.True(t, pays, "a launcher costs nothing")
	assert.Equal(t, deadline.Job{Namespace: "ml", Work: 24 * time.Hour, Whole: 24 * time.Hour, Slack: 2 * time.Hour}, market.job)
	job.Rest = []*apiv1.Pod{gpuPod("q", timed...)}
	_, pays = moves.Plan(job)
	assert.False(t, pays)
	job.Since = now.Add(-10 * time.Hour)
	_, pays = moves.Plan(job)
	assert.True(t, pays)
	market.better = nil
	_, pays = moves.Plan(job)
	assert.False(t, pays, "it had better stay on demand")
}

func TestAJobMovesByTheTableOnlyToWholeInstancesThatCostLess(t *testing.T) {
	offer := func(kind string, share, cost float64) deadline.Priced {
		return deadline.Priced{Offer: deadline.Offer{Offering: pricing.Offering{InstanceType: kind, Zone: "a", Spot: true}, Share: share}, Cost: cost}
	}
	clock := clocktesting.NewFakePassiveClock(testutil.Epoch)
	eight, single, dear := offer("eight", .125, 1), offer("single", 1, 1.2), offer("dear", 1, 2.8)
	market := &priced{offers: []deadline.Priced{eight, single, dear}}
	market.better, market.decides = []pricing.Offering{eight.Offering, single.Offering, dear.Offering}, true
	moves := NewMoves(NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), market, clock), nil, pricing.Terms{Restart: restart}, clock)
	job := Job{Pods: []*apiv1.Pod{gpuPod("p", until("30h", "24h")...)}, Nodes: []*apiv1.Node{{}}, Since: testutil.Epoch}
	plan, pays := moves.Plan(job)
	assert.True(t, pays)
	assert.Equal(t, [][]pricing.Offering{{single.Offering}}, plan.Offerings)
	market.offers = market.offers[:1]
	_, pays = moves.Plan(job)
	assert.False(t, pays)
}

func TestALauncherDoesNotDecideForItsJob(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(testutil.Epoch)
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
	market := &certain{decides: true, better: []pricing.Offering{a10Spot}}
	moves := NewMoves(NewDeadlines(shop, market, clock), nil, pricing.Terms{Restart: restart}, clock)
	launcher := testutil.NewPod("launcher", testutil.WithoutGPU, testutil.Requesting("cpu", "1"))
	_, pays := moves.Plan(Job{Pods: []*apiv1.Pod{gpuPod("p", until("30h", "24h")...), launcher}, Nodes: []*apiv1.Node{{}, {}}, Since: testutil.Epoch})
	assert.True(t, pays, "which states no deadline")
	assert.Equal(t, 1, market.asked)
	worker := testutil.NewPod("worker", append(until("30h", "24h"), testutil.WithoutGPU, testutil.Requesting("cpu", "1"))...)
	_, pays = moves.Plan(Job{Pods: []*apiv1.Pod{worker}, Nodes: []*apiv1.Node{{}}, Since: testutil.Epoch, Rest: []*apiv1.Pod{launcher}})
	assert.False(t, pays, "of a job without GPUs all others restart with it")
}

func gpuPod(name string, options ...testutil.PodOption) *apiv1.Pod {
	pod := testutil.NewPod(name, options...)
	pod.Spec.Containers = []apiv1.Container{{Resources: apiv1.ResourceRequirements{Requests: apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}}}}
	return pod
}

// priced has offers of its own prices. On demand costs 3.
type priced struct {
	certain
	offers      []deadline.Priced
	valueOfTime *float64
}

func (p *priced) Spot(_ *deadline.Offers, valueOfTime *float64) []deadline.Priced {
	p.valueOfTime = valueOfTime
	return p.offers
}

func TestAMoveIsPlannedWithWholeInstancesOnWhichItPays(t *testing.T) {
	offer := func(kind, zone string, share, cost float64) deadline.Priced {
		return deadline.Priced{Offer: deadline.Offer{Offering: pricing.Offering{InstanceType: kind, Zone: zone, Spot: true}, Share: share}, Cost: cost}
	}
	clock := clocktesting.NewFakePassiveClock(testutil.Epoch)
	market := &priced{offers: []deadline.Priced{offer("eight", "a", .125, .3), offer("dear", "a", 1, 2.8), offer("single", "b", 1, 1.2), offer("single", "a", 1, 1)}}
	moves := NewMoves(NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), market, clock), nil, pricing.Terms{Restart: restart}, clock)
	job := Job{Pods: []*apiv1.Pod{gpuPod("p")}, Nodes: []*apiv1.Node{{}}, Since: testutil.Epoch.Add(-3 * time.Hour)}
	plan, pays := moves.Plan(job)
	assert.True(t, pays)
	assert.Equal(t, 1., plan.Spot, "a GPU of an instance of eight costs less, but the others are paid for, too")
	in := func(zone string) pricing.Offering {
		return pricing.Offering{InstanceType: "single", Zone: zone, Spot: true}
	}
	assert.Equal(t, [][]pricing.Offering{{in("a"), in("b")}}, plan.Offerings)
	job.Zone = "b"
	plan, _ = moves.Plan(job)
	assert.Equal(t, [][]pricing.Offering{{in("b")}}, plan.Offerings)
	job.Rest = []*apiv1.Pod{testutil.NewPod("rest", testutil.OnNode("n"), testutil.Annotated(api.AnnotationValueOfTime, "1024"))}
	_, pays = moves.Plan(job)
	assert.False(t, pays, "what time is worth, one of them says for all")
	assert.Equal(t, ptr.To(1024.), market.valueOfTime)
	job.Since, job.Rest = testutil.Epoch.Add(-30*time.Hour), nil
	for i := range 3 {
		job.Rest = append(job.Rest, testutil.NewPod(fmt.Sprint("rest-", i), testutil.OnNode(fmt.Sprint("n", i)), testutil.Annotated(api.AnnotationValueOfTime, "16")))
	}
	_, pays = moves.Plan(job)
	assert.True(t, pays)
	for i := range market.offers {
		market.offers[i].Life = time.Hour
	}
	_, pays = moves.Plan(job)
	assert.False(t, pays, "each loss costs the others time, too")
	for i := range market.offers {
		market.offers[i].Life = 0
	}
	job.Since, job.Rest = testutil.Epoch.Add(-3*time.Hour), nil
	for i := range 63 {
		job.Rest = append(job.Rest, testutil.NewPod(fmt.Sprint("rest-", i), testutil.OnNode(fmt.Sprint("n", i))))
	}
	_, pays = moves.Plan(job)
	assert.False(t, pays, "all others would restart")
	market.offers = nil
	_, pays = moves.Plan(job)
	assert.False(t, pays, "nothing fits")
}

func TestThePodSaysWhetherItMoves(t *testing.T) {
	moves := NewMoves(nil, nil, pricing.Terms{}, nil)
	for value, want := range map[string][2]bool{"true": {true, true}, "false": {false, true}, "maybe": {false, false}} {
		wanted, said := moves.Wanted(testutil.NewPod("p", testutil.Annotated(api.AnnotationMoveToSpot, value)))
		assert.Equal(t, want, [2]bool{wanted, said}, value)
	}
	for key, value := range map[string]string{api.AnnotationCapacity: api.CapacityOnDemand, api.AnnotationOnDemandFloor: "1"} {
		wanted, said := moves.Wanted(testutil.NewPod("p", testutil.Annotated(key, value), testutil.Annotated(api.AnnotationMoveToSpot, "true")))
		assert.Equal(t, [2]bool{false, true}, [2]bool{wanted, said}, key)
	}
	_, said := moves.Wanted(testutil.NewPod("p"))
	assert.False(t, said)
	_, err := settingsOf(testutil.NewPod("p", testutil.Annotated(api.AnnotationMoveToSpot, "maybe")))
	assert.ErrorContains(t, err, api.AnnotationMoveToSpot)
}
