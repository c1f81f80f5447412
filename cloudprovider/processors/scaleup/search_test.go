package scaleup

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
)

// prices are those of offerings, which are bought for CPU pods too.
type prices map[string]float64

// NodePrice returns the price under "<id> at <value>" for pods that say what their time is worth.
func (p prices) NodePrice(id string, valueOfTime *float64) (float64, bool) {
	if valueOfTime != nil {
		id = fmt.Sprintf("%s at %g", id, *valueOfTime)
	}
	price, ok := p[id]
	return price, ok
}

func (p prices) BuysForCPUPods(string) bool { return true }

func (p prices) Undelivered(string) int { return 0 }

// shop is a few offerings and the search through them, as core conducts it.
type shop struct {
	prices prices
	gpus   map[string]string // GPUs of a node, by offering
	models map[string]string // GPU model, by offering; pods may select one
	caps   map[string]int    // the most nodes, by offering
	// undelivered is how many instances the pool of an offering waits for.
	undelivered map[string]int
}

func (s shop) NodePrice(id string, value *float64) (float64, bool) {
	return s.prices.NodePrice(id, value)
}

func (s shop) BuysForCPUPods(string) bool { return true }

func (s shop) Undelivered(id string) int { return s.undelivered[id] }

// evaluated are the offerings in the order in which they were, options what they amount to.
func (s shop) search(t *testing.T, clk *testingclock.FakePassiveClock, takes time.Duration, pods []*apiv1.Pod) (evaluated []string, options []expander.Option) {
	t.Helper()
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	infos := map[string]*framework.NodeInfo{}
	var groups []cloudprovider.NodeGroup
	for id, gpus := range s.gpus {
		provider.AddNodeGroup(id, 0, 100, 0)
		groups = append(groups, provider.GetNodeGroup(id))
		infos[id] = framework.NewTestNodeInfo(testutil.NewNode(id, "cpu", "96", "memory", "400Gi", "pods", "64", api.ResourceGPU, gpus))
	}
	c := NewSearch(nil, SearchConfig{Offerings: s, ByPrice: true, MaxBinpackingTime: time.Hour, Clock: clk})
	c.started = clk.Now()
	groups, infos, err := c.Process(nil, groups, infos, pods)
	require.NoError(t, err)
	c.InitBinpacking(nil, groups)
	for _, group := range groups {
		id := group.Id()
		evaluated = append(evaluated, id)
		clk.SetTime(clk.Now().Add(takes))
		if option := s.pack(group, infos[id], pods); option.NodeCount > 0 {
			options = append(options, option)
		}
		c.MarkProcessed(nil, id)
		if c.StopBinpacking(nil, options) {
			break
		}
	}
	c.FinalizeBinpacking(nil, options)
	return evaluated, options
}

// pack fills nodes one after the other with the pods that want the offering's model.
func (s shop) pack(group cloudprovider.NodeGroup, info *framework.NodeInfo, pods []*apiv1.Pod) expander.Option {
	option := expander.Option{NodeGroup: group}
	size := info.ToScheduler().Allocatable.ScalarResources[api.ResourceGPU]
	free := int64(0)
	for _, pod := range pods {
		if model := pod.Spec.NodeSelector["model"]; model != "" && model != s.models[group.Id()] {
			continue
		}
		want := demandOf([]*apiv1.Pod{pod}).requests.ScalarResources[api.ResourceGPU]
		if want > free {
			if most := s.caps[group.Id()]; want > size || most > 0 && option.NodeCount == most {
				continue
			}
			option.NodeCount++
			free = size
		}
		free -= want
		option.Pods = append(option.Pods, pod)
	}
	return option
}

// winner is what least-price would choose.
func (s shop) winner(options []expander.Option) (cost float64) {
	for i, option := range options {
		gpus := pricing.DemandOf(option.Pods...).GPUs
		if own := s.prices[option.NodeGroup.Id()] * float64(option.NodeCount) / gpus; i == 0 || own < cost {
			cost = own
		}
	}
	return cost
}

func TestOfferingsAreEvaluatedByPrice(t *testing.T) {
	eight := testutil.NewPods(8, "p")
	tests := map[string]struct {
		shop
		pods      []*apiv1.Pod
		evaluated []string
	}{
		"the cheapest of alike offerings is enough": {
			shop:      shop{prices: prices{"a": 3, "b": 1, "c": 2}, gpus: map[string]string{"a": "1", "b": "1", "c": "1"}},
			pods:      eight,
			evaluated: []string{"b"},
		},
		"a dearer node that takes more is looked at first": {
			shop:      shop{prices: prices{"small": 1, "big": 6}, gpus: map[string]string{"small": "1", "big": "8"}},
			pods:      eight,
			evaluated: []string{"big"},
		},
		"a big node is not worth it for a small demand": {
			shop:      shop{prices: prices{"small": 1, "big": 6}, gpus: map[string]string{"small": "1", "big": "8"}},
			pods:      eight[:1],
			evaluated: []string{"small"},
		},
		"of equals the one of fewer nodes comes first": {
			shop:      shop{prices: prices{"a": 1, "b": 8}, gpus: map[string]string{"a": "1", "b": "8"}},
			pods:      eight,
			evaluated: []string{"b"},
		},
		"of equals the one whose pool waits for the fewest instances comes first": {
			shop: shop{prices: prices{"a": 1, "b": 1, "c": 1}, gpus: map[string]string{"a": "1", "b": "1", "c": "1"},
				undelivered: map[string]int{"a": 8, "b": 4, "c": 5}},
			pods:      eight,
			evaluated: []string{"b"},
		},
		"a pool that waits for instances is not dearer": {
			shop: shop{prices: prices{"a": 1, "b": 1.01}, gpus: map[string]string{"a": "1", "b": "1"},
				undelivered: map[string]int{"a": 100}},
			pods:      eight,
			evaluated: []string{"a"},
		},
		"goes on where the best promise does not hold": {
			// Three GPUs a pod: a node of eight holds two pods, not the eight thirds that the sum promises.
			shop:      shop{prices: prices{"eight": 8, "three": 3.2}, gpus: map[string]string{"eight": "8", "three": "3"}},
			pods:      testutil.NewPods(8, "p", testutil.Requesting(api.ResourceGPU, "3")),
			evaluated: []string{"eight", "three"},
		},
		"stops at the cheapest per GPU where no offering takes all": {
			shop: shop{prices: prices{"a": 1, "b": 2, "c": 3}, gpus: map[string]string{"a": "1", "b": "1", "c": "1"},
				models: map[string]string{"a": "A10", "b": "V100", "c": "V100"}},
			pods:      append(testutil.NewPods(2, "a", testutil.Selecting("model", "A10")), testutil.NewPods(2, "v", testutil.Selecting("model", "V100"))...),
			evaluated: []string{"a"},
		},
		"goes on past offerings that take nothing": {
			shop: shop{prices: prices{"a": 1, "b": 2, "c": 3}, gpus: map[string]string{"a": "1", "b": "1", "c": "1"},
				models: map[string]string{"a": "A10", "b": "V100", "c": "V100"}},
			pods:      testutil.NewPods(2, "v", testutil.Selecting("model", "V100")),
			evaluated: []string{"a", "b"},
		},
		"an offering without a price is looked at last": {
			shop:      shop{prices: prices{"b": 2}, gpus: map[string]string{"a": "1", "b": "1"}},
			pods:      eight,
			evaluated: []string{"b"},
		},
		"offerings without GPUs come after those that may do": {
			shop:      shop{prices: prices{"cpu": 0, "b": 2}, gpus: map[string]string{"cpu": "0", "b": "1"}},
			pods:      eight,
			evaluated: []string{"b"},
		},
		"a full option does not stop the search before a promise of less": {
			shop: shop{prices: prices{"a": 2, "b": 2.1}, gpus: map[string]string{"a": "1", "b": "1"},
				caps: map[string]int{"a": 1}},
			pods:      eight,
			evaluated: []string{"a"}, // a takes one pod for less than b would any
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			evaluated, _ := test.search(t, testingclock.NewFakePassiveClock(testutil.Epoch), 0, test.pods)
			assert.Equal(t, test.evaluated, evaluated)
		})
	}
}

func TestSearchEndsAfterTwoSecondsOnceThereIsAnOption(t *testing.T) {
	s := shop{prices: prices{}, gpus: map[string]string{}, models: map[string]string{}}
	for i := range 100 {
		id := fmt.Sprintf("g%02d", i)
		s.prices[id], s.gpus[id], s.models[id] = 1+float64(i)/1000, "8", "V100"
	}
	s.models["g00"] = "none"
	// 5 GPUs a pod waste 3 of 8: no option is as cheap as what the next node promises.
	pods := testutil.NewPods(10, "p", testutil.Requesting(api.ResourceGPU, "5"), testutil.Selecting("model", "V100"))
	evaluated, options := s.search(t, testingclock.NewFakePassiveClock(testutil.Epoch), 500*time.Millisecond, pods)
	assert.Len(t, evaluated, 5, "until 2 s are over")
	assert.Len(t, options, 4)
}

// TestPruningDoesNotMakeItDearer compares the search with one through everything, on random shops.
func TestPruningDoesNotMakeItDearer(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pruned := 0
	for round := range 100 {
		s := shop{prices: prices{}, gpus: map[string]string{}, models: map[string]string{}}
		for i := range 20 {
			id := fmt.Sprintf("g%02d", i)
			gpus := []int{1, 2, 4, 8}[random.IntN(4)]
			s.gpus[id] = fmt.Sprint(gpus)
			s.prices[id] = float64(gpus) * (1 + 4*random.Float64())
			s.models[id] = []string{"A10", "V100"}[random.IntN(2)]
		}
		pods := testutil.NewPods(1+random.IntN(20), "p", testutil.Selecting("model", []string{"", "A10"}[random.IntN(2)]))
		var everything []expander.Option
		for id, gpus := range s.gpus {
			info := framework.NewTestNodeInfo(testutil.NewNode(id, api.ResourceGPU, gpus))
			if option := s.pack(testprovider.NewTestNodeGroup(id, 9, 0, 0, true, false, "", nil, nil), info, pods); option.NodeCount > 0 {
				everything = append(everything, option)
			}
		}
		evaluated, options := s.search(t, testingclock.NewFakePassiveClock(testutil.Epoch), 0, pods)
		require.InDelta(t, s.winner(everything), s.winner(options), 1e-9, "round %d: %v of %v", round, evaluated, slices.Sorted(maps.Keys(s.prices)))
		pruned += 20 - len(evaluated)
	}
	assert.Greater(t, pruned, 100*10, "the search should be short")
}

// The first expander decides what is looked at: only least-price is content with the cheapest.
func TestOtherExpandersChooseOfAllOfferings(t *testing.T) {
	of := catalogue{"spot": offer("spot", 1, "1"), "reserved": offer("reserved", 5, "1")}
	for name, test := range map[string]struct {
		byPrice bool
		of      []string
	}{
		"least-price": {true, []string{"spot"}},
		"others, which may prefer the dearer one": {false, []string{"spot", "reserved"}},
	} {
		t.Run(name, func(t *testing.T) {
			core := newRealCore(t, of, missing{}, test.byPrice)
			core.loop(testutil.NewPods(2, "p", testutil.Replicated))
			assert.ElementsMatch(t, test.of, core.expander.of)
		})
	}
}
