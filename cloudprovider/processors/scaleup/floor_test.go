package scaleup

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func floor(value string) testutil.PodOption {
	return testutil.Annotated(api.AnnotationOnDemandFloor, value)
}

var onDemandOnly = testutil.Annotated(api.AnnotationCapacity, api.CapacityOnDemand)

// spotAndOnDemand are two offerings of nodes with one GPU. Pods wait for the dearer one.
func spotAndOnDemand() catalogue {
	return catalogue{"spot": offer("spot", 1, "1").in("a", "A10", 10), "od": onDemand("od", 5, time.Hour).in("a", "A10", 10)}
}

// limited returns the offerings with so few nodes of one of them.
func (c catalogue) limited(id string, most int) catalogue {
	of := c[id]
	of.max = most
	c[id] = of
	return c
}

// eightGPUs are two offerings as spotAndOnDemand, of nodes with eight GPUs.
var eightGPUs = catalogue{"spot": offer("spot", 1, "8").in("a", "A10", 10), "od": onDemand("od", 5, time.Hour).with("8").in("a", "A10", 10)}

func TestSoManyPodsOfAJobAreBoughtOnDemandAtOnce(t *testing.T) {
	young := aged(time.Minute)
	trains := func(count int, options ...testutil.PodOption) []*apiv1.Pod {
		return testutil.NewPods(count, "p", append(options, testutil.ReplicatedBy("train"), young)...)
	}
	onNode := func(group string, pod *apiv1.Pod) *apiv1.Pod {
		pod.Name, pod.UID, pod.Spec.NodeName = "running-"+group, "running-"+pod.UID, upcoming(group, 0)
		return pod
	}
	for name, c := range map[string]struct {
		of      catalogue
		running []*apiv1.Pod
		pods    []*apiv1.Pod
		bought  map[string]int
	}{
		"a number":               {pods: trains(4, floor("2")), bought: map[string]int{"od": 2, "spot": 2}},
		"a share, rounded up":    {pods: trains(5, floor("25%")), bought: map[string]int{"od": 2, "spot": 3}},
		"all":                    {pods: trains(3, floor("100%")), bought: map[string]int{"od": 3}},
		"more than all":          {pods: trains(3, floor("9")), bought: map[string]int{"od": 3}},
		"none":                   {pods: trains(3, floor("0")), bought: map[string]int{"spot": 3}},
		"what cannot be read":    {pods: trains(3, floor("half")), bought: map[string]int{"spot": 3}},
		"with spot only, none":   {pods: trains(3, floor("1"), spotOnly), bought: map[string]int{"spot": 3}},
		"those that do not wait": {pods: trains(3, floor("1"), testutil.Annotated(api.AnnotationOnDemandAfter, "0s")), bought: map[string]int{"od": 1, "spot": 2}},
		"of each job": {
			pods:   slices.Concat(trains(2, floor("1")), testutil.NewPods(2, "q", testutil.ReplicatedBy("other"), young, floor("50%"))),
			bought: map[string]int{"od": 2, "spot": 2},
		},
		"of those pods of a job that have it": {
			pods:   append(trains(4), testutil.NewPod("master", testutil.ReplicatedBy("train"), young, floor("1"))),
			bought: map[string]int{"od": 1, "spot": 4},
		},
		"the highest if they differ": {
			pods:   append(trains(2, floor("1")), testutil.NewPod("q", testutil.ReplicatedBy("train"), young, floor("2"))),
			bought: map[string]int{"od": 2, "spot": 1},
		},
		"also if there is no spot for the others": {of: spotAndOnDemand().limited("spot", 0), pods: trains(4, floor("2")), bought: map[string]int{"od": 2}},
		"and if others wait for spot": {
			of:     spotAndOnDemand().limited("spot", 0),
			pods:   append(trains(4, floor("2")), testutil.NewPods(9, "a", testutil.ReplicatedBy("other"), aged(2*time.Minute))...),
			bought: map[string]int{"od": 2},
		},
		"no spot in its place": {of: spotAndOnDemand().limited("od", 0), pods: trains(4, floor("2")), bought: map[string]int{"spot": 2}},
		"less those that run there": {
			running: []*apiv1.Pod{onNode("od", trains(1, floor("2"))[0]), onNode("spot", trains(1, floor("2"))[0])},
			pods:    trains(2, floor("2")), bought: map[string]int{"od": 2, "spot": 2},
		},
		"after a reclaim it still holds": {
			running: []*apiv1.Pod{onNode("od", trains(1, floor("1"))[0])},
			pods:    trains(3, floor("1")), bought: map[string]int{"od": 1, "spot": 3},
		},
		"and after the end of an on-demand node": {
			running: []*apiv1.Pod{onNode("spot", trains(1, floor("1"))[0])},
			pods:    trains(1, floor("1")), bought: map[string]int{"od": 1, "spot": 1},
		},
		"what they leave is for the others": {
			of:   eightGPUs,
			pods: trains(4, floor("2")), bought: map[string]int{"od": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			of := c.of
			if of == nil {
				of = spotAndOnDemand()
			}
			core := newRealCore(t, of, missing{}, true)
			core.running = c.running
			for _, pod := range c.running { // on nodes that there are
				for id := range of {
					if pod.Spec.NodeName == upcoming(id, 0) {
						core.bought[id] = 1
					}
				}
			}
			core.settle(c.pods)
			assert.Equal(t, c.bought, core.boughtOf())
		})
	}
}

// boughtOf returns how many nodes were bought of the offerings of which any were.
func (c *realCore) boughtOf() map[string]int {
	counts := map[string]int{}
	for id, count := range c.bought {
		if count > 0 {
			counts[id] = count
		}
	}
	return counts
}

// with returns the offering with nodes of so many GPUs.
func (o offered) with(gpus string) offered {
	o.node = offer("x", 1, gpus).node
	return o
}

func TestAGangIsBoughtWithItsFloorOnDemandOrNotAtAll(t *testing.T) {
	gang := func(options ...testutil.PodOption) []*apiv1.Pod {
		return testutil.NewPods(4, "p", append([]testutil.PodOption{testutil.InGang("train", 4), aged(time.Minute)}, options...)...)
	}
	for name, c := range map[string]struct {
		of     catalogue
		pods   []*apiv1.Pod
		bought map[string]int
	}{
		"a floor":                             {spotAndOnDemand(), gang(floor("1")), map[string]int{"od": 1, "spot": 3}},
		"a share":                             {spotAndOnDemand(), gang(floor("50%")), map[string]int{"od": 2, "spot": 2}},
		"all of it":                           {spotAndOnDemand(), gang(floor("100%")), map[string]int{"od": 4}},
		"without on-demand there is no plan":  {spotAndOnDemand().limited("od", 0), gang(floor("1")), map[string]int{}},
		"nor without room for the others":     {spotAndOnDemand().limited("spot", 2), gang(floor("1")), map[string]int{}},
		"unless those have waited":            {spotAndOnDemand().limited("spot", 2).limited("od", 2), gang(floor("1"), aged(2*time.Hour)), map[string]int{"od": 2, "spot": 2}},
		"the first of it alone is on demand":  {spotAndOnDemand(), append(gang()[:3], testutil.NewPod("master", testutil.InGang("train", 4), aged(time.Minute), onDemandOnly)), map[string]int{"od": 1, "spot": 3}},
		"the others may take spot only":       {spotAndOnDemand(), append(gang(spotOnly)[:3], testutil.NewPod("master", testutil.InGang("train", 4), aged(time.Hour), onDemandOnly)), map[string]int{"od": 1, "spot": 3}},
		"what the floor leaves is for others": {eightGPUs, gang(floor("1")), map[string]int{"od": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			core := newRealCore(t, c.of, missing{"ml/train": 4}, true)
			core.settle(c.pods)
			assert.Equal(t, c.bought, core.boughtOf())
		})
	}
}

func TestPodsThatAreToBeOnDemandAreBoughtForAtOnceAndOnce(t *testing.T) {
	for spot, want := range map[int]map[string]int{0: {"od": 3}, 2: {"od": 3, "spot": 2}} {
		core := newRealCore(t, spotAndOnDemand().limited("spot", spot), missing{}, true)
		core.settle(slices.Concat(testutil.NewPods(3, "od", onDemandOnly, aged(time.Minute)), testutil.NewPods(5, "any", aged(2*time.Minute)), testutil.NewPods(4, "never", spotOnly, aged(time.Hour))))
		assert.Equal(t, want, core.boughtOf())
	}
}

func TestPodsAreComparedByWhatTheirTimeIsWorth(t *testing.T) {
	of := shop{prices: prices{"a": 1, "b": 2, "a at 16": 3, "b at 16": 2}, gpus: map[string]string{"a": "1", "b": "1"}}
	first := func(options ...testutil.PodOption) string {
		evaluated, _ := of.search(t, testingclock.NewFakePassiveClock(testutil.Epoch), 0, testutil.NewPods(1, "p", options...))
		return evaluated[0]
	}
	assert.Equal(t, "a", first())
	assert.Equal(t, "b", first(valued("16")))
}

func TestAPlanGoesByWhatTheTimeOfTheGangIsWorth(t *testing.T) {
	lost, kept := offer("lost", 1, "1").in("a", "A10", 2), offer("kept", 2, "1").in("b", "A10", 2)
	lost.loss = .1
	for value, want := range map[string]map[string]int{"": {"lost": 2, "other-lost": 2}, "5": {"lost": 2, "other-lost": 2}, "20": {"kept": 2, "other-kept": 2}} {
		core := newRealCore(t, catalogue{"lost": lost, "other-lost": lost, "kept": kept, "other-kept": kept}, missing{"ml/train": 4}, true)
		core.loop(testutil.NewPods(4, "p", testutil.InGang("train", 4), valued(value)))
		assert.Equal(t, want, core.boughtOf(), value)
	}
}
