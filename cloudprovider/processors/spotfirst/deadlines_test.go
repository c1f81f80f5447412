package spotfirst

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
	"gpu-spot-autoscaler/pricing/market"
)

const restart = 10 * time.Minute

// shop sells an instance with a GPU in each of its node groups.
type shop struct {
	sold   map[string]pricing.Offering
	groups []cloudprovider.NodeGroup
	nodes  map[string]*apiv1.Node
}

func newShop(sold map[string]pricing.Offering) *shop {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	nodes := map[string]*apiv1.Node{}
	for id := range sold {
		provider.AddNodeGroup(id, 0, 10, 0)
		nodes[id] = &apiv1.Node{Status: apiv1.NodeStatus{Allocatable: apiv1.ResourceList{
			"nvidia.com/gpu": resource.MustParse("1"), apiv1.ResourceCPU: resource.MustParse("8"), apiv1.ResourcePods: resource.MustParse("64"),
		}}}
	}
	return &shop{sold: sold, groups: provider.NodeGroups(), nodes: nodes}
}

func (s *shop) NodeGroups() []cloudprovider.NodeGroup { return s.groups }

func (s *shop) Sold(id string) (pricing.Offering, float64, time.Duration, *apiv1.Node) {
	return s.sold[id], 1, 0, s.nodes[id]
}

func (s *shop) OnDemandAfter(id string) (time.Duration, bool) {
	return 0, !s.sold[id].Spot
}

func TestThePartOfANodeThatAPodTakesIsOfItsGPUsOrElseOfItsCPUs(t *testing.T) {
	node := &apiv1.Node{Status: apiv1.NodeStatus{Allocatable: apiv1.ResourceList{
		"nvidia.com/mig-3g.40gb": resource.MustParse("2"), apiv1.ResourceCPU: resource.MustParse("8"),
	}}}
	cpu := resource.MustParse("8")
	assert.Equal(t, .5, partOf(apiv1.ResourceList{"nvidia.com/mig-3g.40gb": resource.MustParse("1"), apiv1.ResourceCPU: cpu}, node, 1))
	assert.Equal(t, 1., partOf(apiv1.ResourceList{apiv1.ResourceCPU: cpu}, node, 1), "without GPUs")
}

var (
	a10Spot     = pricing.Offering{InstanceType: "a10", Zone: "a", Spot: true}
	otherSpot   = pricing.Offering{InstanceType: "a10", Zone: "b", Spot: true}
	a10OnDemand = pricing.Offering{InstanceType: "a10", Zone: "a"}
)

// jobPod is a pod of a job with 24 hours of work in a market that was looked at for two weeks.
type jobPod struct {
	policy *Policy
	pod    *apiv1.Pod
}

// podIn returns the pod of a job with so much slack, in a market whose offering was up in some of the looks, one every ten minutes. It has to be called in a
// bubble of synctest.
func podIn(t *testing.T, up func(look int) bool, looks int, prices map[pricing.Offering]float64, slack time.Duration, options ...testutil.PodOption) jobPod {
	memory, now := market.NewMemory(), time.Now()
	was := false
	for look := range looks {
		at, is := now.Add(-time.Duration(looks-1-look)*10*time.Minute), up(look)
		var living []market.Living
		if is || was {
			living = append(living, market.Living{ID: fmt.Sprint(look), Offering: a10Spot, Lost: !is, Price: prices[a10Spot]})
		}
		memory.Observe(living, at)
		category := alicloud.WithoutStock
		if is {
			category = alicloud.WithStock
		}
		memory.NoteStock([]market.Said{{Offering: a10Spot, Category: category, Price: prices[a10Spot]}}, at)
		was = is
	}
	sold := map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}
	if _, exists := prices[otherSpot]; exists {
		sold["other"] = otherSpot
	}
	shop := newShop(sold)
	desk := deadline.NewDesk(deadline.Config{
		Memory: memory, Clock: clock.RealClock{}, Terms: pricing.Terms{Restart: restart},
		Price: func(o pricing.Offering) (float64, bool) { price, known := prices[o]; return price, known },
	})
	go desk.Run(t.Context())
	pod := testutil.NewPod("p", append([]testutil.PodOption{
		testutil.Annotated(api.AnnotationDeadline, now.Add(24*time.Hour+slack+time.Minute).Format(time.RFC3339)),
		testutil.Annotated(api.AnnotationWork, "24h"),
		func(pod *apiv1.Pod) { pod.CreationTimestamp.Time = now },
	}, options...)...)
	s := jobPod{pod: pod, policy: NewPolicy(Config{
		Offerings: shop, Restart: restart, Clock: clock.RealClock{}, Deadlines: NewDeadlines(shop, desk, clock.RealClock{}),
	})}
	s.wait("od") // the tables are computed from here on
	synctest.Wait()
	time.Sleep(choiceFor)
	return s
}

func (s jobPod) wait(group string) time.Duration { return s.policy.Wait(group, s.pod) }

// down is always up but for so many looks in each so many, and goes down at the last of all looks.
func down(looks, in, all int) func(int) bool {
	return func(look int) bool { return (all-1-look+looks-1)%in >= looks }
}

const twoWeeks = 14 * 24 * 6

func TestAJobWithADeadlineIsBoughtByTheValueTable(t *testing.T) {
	always := func(int) bool { return true }
	cheap := map[pricing.Offering]float64{a10Spot: 1, a10OnDemand: 3}
	dear := map[pricing.Offering]float64{a10Spot: 3.2, a10OnDemand: 3}
	for name, c := range map[string]struct {
		up      func(look int) bool
		looks   int
		prices  map[pricing.Offering]float64
		slack   time.Duration
		options []testutil.PodOption
		// onDemand and spot are whether they may be bought now.
		onDemand, spot bool
	}{
		"spot that lasts is waited for, though on-demand might be bought at once": {always, twoWeeks, cheap, 6 * time.Hour, nil, false, true},
		"so it is in an outage, if outages are short":                             {down(3, 72, twoWeeks), twoWeeks, cheap, 6 * time.Hour, nil, false, true},
		"on-demand is bought in an outage that lasts too long": {
			down(90, 200, twoWeeks), twoWeeks, cheap, 2 * time.Hour, nil, true, true,
		},
		"spot that costs more than on-demand is not bought": {always, twoWeeks, dear, 6 * time.Hour, nil, true, false},
		"unless there is another that nobody has tried": {
			always, twoWeeks, map[pricing.Offering]float64{a10Spot: 3.2, otherSpot: 1, a10OnDemand: 3}, 6 * time.Hour, nil, true, true,
		},
		"a pod that wants no on-demand gets none": {always, twoWeeks, dear, 6 * time.Hour, []testutil.PodOption{wishing("never")}, false, true},
		"nor waits longer than it wants to":       {always, twoWeeks, cheap, 6 * time.Hour, []testutil.PodOption{wishing("1s")}, true, true},
		"without a past both are":                 {always, 1, cheap, 6 * time.Hour, nil, true, true},
		"and after a day, too":                    {always, twoWeeks / 14, cheap, 6 * time.Hour, nil, true, true},
		"unless there is as much slack as work":   {always, 1, cheap, 24 * time.Hour, nil, false, true},
		"a close deadline needs no table":         {always, twoWeeks, cheap, 15 * time.Minute, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := podIn(t, c.up, c.looks, c.prices, c.slack, c.options...)
				assert.Equal(t, c.onDemand, s.wait("od") == 0, "on demand: %s", s.wait("od"))
				assert.Equal(t, c.spot, s.wait("spot") == 0, "spot: %s", s.wait("spot"))
			})
		})
	}
}

func TestWhoeverWaitsForSpotIsOnDemandInTime(t *testing.T) {
	for name, up := range map[string]func(int) bool{"short outages": down(3, 72, twoWeeks), "no outages": func(int) bool { return true }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := podIn(t, up, twoWeeks, map[pricing.Offering]float64{a10Spot: 1, a10OnDemand: 3}, 3*time.Hour)
				assert.Positive(t, s.wait("od"))
				assert.LessOrEqual(t, s.wait("od"), 3*time.Hour-2*restart+time.Minute, "it says until when at the latest")
				waited := time.Duration(0)
				for ; s.wait("od") > 0; waited += time.Minute {
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				assert.LessOrEqual(t, waited, 3*time.Hour-2*restart+time.Minute, "two restarts are left beside the work")
			})
		})
	}
}

func TestAnIdleJobWaitsForSpotToLast(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(testutil.Epoch)
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
	idle := NewIdle(func(*apiv1.Pod) string { return "" }, func(*apiv1.Pod) bool { return false })
	policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Deadlines: NewDeadlines(shop, patient{}, fake), Idle: idle, HasRun: func(*apiv1.Pod) bool { return true }})
	pod := testutil.NewPod("p", until("30h", "24h")...)
	of := func(pods ...*apiv1.Pod) {
		uids := sets.New[types.UID]()
		for _, pod := range pods {
			uids.Insert(pod.UID)
		}
		idle.chosen.uids.Store(&uids)
	}
	assert.Zero(t, policy.Wait("spot", pod), "no loop has looked yet whether others of the job run")
	of(pod)
	assert.Equal(t, untilLasting, policy.Wait("spot", pod))
	assert.Equal(t, 6*time.Hour-2*restart, policy.Wait("od", pod), "and for on-demand as long as in an outage")
	assert.False(t, policy.Allows("spot", []*apiv1.Pod{pod}))
	wishes := testutil.NewPod("p", append(until("30h", "24h"), wishing("30m"))...)
	assert.Zero(t, policy.Wait("spot", wishes), "it says for how long to wait")
	launcher, other := testutil.NewPod("l", testutil.WithoutGPU), testutil.NewPod("q", until("30h", "24h")...)
	assert.False(t, policy.Allows("spot", []*apiv1.Pod{pod, launcher}))
	assert.True(t, policy.Allows("spot", []*apiv1.Pod{pod, other}), "another of its gang does not wait")
	of()
	assert.Zero(t, policy.Wait("spot", pod))
}

// hesitant is still computing what costs least.
type hesitant struct{ *listener }

func (hesitant) Choose(_ *deadline.Offers, job deadline.Job) deadline.Choice {
	if job.Hurries {
		return deadline.Undecided
	}
	return deadline.Learning
}

func TestNothingIsBoughtWhileItIsComputedWhatCostsLeast(t *testing.T) {
	fake := clocktesting.NewFakePassiveClock(testutil.Epoch)
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand})
	policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Deadlines: NewDeadlines(shop, hesitant{}, fake)})
	pod := testutil.NewPod("p", append(until("30h", "24h"), wishing("0s"))...)
	assert.Equal(t, UntilLearnt, policy.Wait("spot", pod))
	assert.Equal(t, UntilLearnt, policy.Wait("od", pod))
	assert.Zero(t, policy.Wait("od", testutil.NewPod("p", until("24h", "24h")...)), "whose deadline is close")
}

// patient waits for spot to last if the job is idle.
type patient struct{ *listener }

func (patient) Choose(_ *deadline.Offers, job deadline.Job) deadline.Choice {
	if job.Idle {
		return deadline.Wait
	}
	return deadline.Spot
}

func TestOnlyOfferingsThatFitThePodCount(t *testing.T) {
	shop := newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand, "other": otherSpot})
	shop.nodes["other"].Labels = map[string]string{"zone": "b"}
	asked := &listener{}
	d := NewDeadlines(shop, asked, clocktesting.NewFakePassiveClock(testutil.Epoch))
	requests := func(gpus string) testutil.PodOption {
		return func(pod *apiv1.Pod) {
			pod.Spec.Containers = []apiv1.Container{{Resources: apiv1.ResourceRequirements{Requests: apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}}}}
		}
	}
	inZoneB := func(pod *apiv1.Pod) { pod.Spec.NodeSelector = map[string]string{"zone": "b"} }
	for n, c := range []struct {
		options []testutil.PodOption
		want    []pricing.Offering
	}{
		{[]testutil.PodOption{requests("1")}, []pricing.Offering{a10OnDemand, a10Spot, otherSpot}},
		{[]testutil.PodOption{requests("1"), inZoneB}, []pricing.Offering{otherSpot}},
		{[]testutil.PodOption{requests("2")}, nil},
	} {
		pod := testutil.NewPod(fmt.Sprint(n), c.options...)
		d.choose(pod, settings{work: time.Hour}, time.Hour, false)
		assert.Equal(t, c.want, asked.last.Offerings())
		before := asked.times
		d.choose(pod, settings{work: time.Hour}, time.Hour, false)
		assert.Equal(t, before, asked.times, "a decision stands for a while")
	}
}

func TestWhatAPodSaysThatItsTimeIsWorthCountsBesideItsDeadline(t *testing.T) {
	asked := &listener{}
	d := NewDeadlines(newShop(map[string]pricing.Offering{"spot": a10Spot, "od": a10OnDemand}), asked, clocktesting.NewFakePassiveClock(testutil.Epoch))
	d.choose(testutil.NewPod("silent"), settings{work: time.Hour}, time.Hour, false)
	assert.Nil(t, asked.job.ValueOfTime)
	d.choose(testutil.NewPod("urgent", testutil.Annotated(api.AnnotationValueOfTime, "4")), settings{work: time.Hour}, time.Hour, true)
	assert.True(t, asked.job.Idle)
	assert.Equal(t, ptr.To(4.), asked.job.ValueOfTime)
	assert.NotEmpty(t, asked.job.Namespace)
}

type listener struct {
	last  *deadline.Offers
	job   deadline.Job
	times int
}

// Better does not know.
func (l *listener) Better(*deadline.Offers, deadline.Job) ([]pricing.Offering, bool) {
	return nil, false
}

func (l *listener) Choose(offers *deadline.Offers, job deadline.Job) deadline.Choice {
	l.last, l.job, l.times = offers, job, l.times+1
	return deadline.Spot
}

// BenchmarkWaitOfAPodWithADeadlineAtAThousandOfferings is a whole decision, with what fits the pod, as often as the loop makes it.
func BenchmarkWaitOfAPodWithADeadlineAtAThousandOfferings(b *testing.B) {
	memory, fake := market.NewMemory(), clocktesting.NewFakeClock(testutil.Epoch)
	sold, prices := map[string]pricing.Offering{}, map[pricing.Offering]float64{}
	for n := range 1000 {
		o := pricing.Offering{InstanceType: fmt.Sprint("type-", n%100), Zone: fmt.Sprint("zone-", n/100%5), Spot: n < 500}
		sold[fmt.Sprint("group-", n)], prices[o] = o, 3
		if o.Spot {
			prices[o] = 1 + float64(n)/1000
		}
	}
	for look := range 4 * 24 * 6 {
		var living []market.Living
		for o := range prices {
			if o.Spot {
				living = append(living, market.Living{ID: o.InstanceType + o.Zone, Offering: o, Price: prices[o]})
			}
		}
		memory.Observe(living, testutil.Epoch.Add(time.Duration(look-4*24*6)*10*time.Minute))
	}
	shop := newShop(sold)
	desk := deadline.NewDesk(deadline.Config{
		Memory: memory, Clock: fake, Terms: pricing.Terms{Restart: restart},
		Price: func(o pricing.Offering) (float64, bool) { price, known := prices[o]; return price, known },
	})
	go desk.Run(b.Context())
	pod := testutil.NewPod("p", until("30h", "24h")...)
	policy := NewPolicy(Config{Offerings: shop, Restart: restart, Clock: fake, Deadlines: NewDeadlines(shop, desk, fake)})
	for policy.Wait("group-999", pod) == 0 { // until the table is there
		time.Sleep(10 * time.Millisecond)
		fake.Step(choiceFor)
	}
	for b.Loop() {
		fake.Step(choiceFor)
		policy.Wait("group-999", pod)
	}
}

func (l *listener) Spot(offers *deadline.Offers, _ *float64) (priced []deadline.Priced) {
	for _, o := range offers.Offerings() {
		if o.Spot {
			priced = append(priced, deadline.Priced{Offer: deadline.Offer{Offering: o, Share: 1}, Cost: 1})
		}
	}
	return priced
}

func (l *listener) Price(pricing.Offering) (float64, bool) { return 3, true }
