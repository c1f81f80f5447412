package processors

import (
	"cmp"
	"math"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/processors/binpacking"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
)

// patience bounds how long a scale-up goes on looking for something better once it has something to choose.
const patience = 2 * time.Second

// Prices are what a node of an offering costs.
type Prices interface {
	// NodePrice is per instance-hour; false while no price is known.
	NodePrice(groupID string) (float64, bool)
}

// CheapestFirst keeps scale-up fast over a thousand offerings without making it dearer. It sorts the offerings by a
// lower bound of what placing all pods on them would cost,
//
//	bound(offering) = price × max over resources ⌈requests of all pods ÷ what a new node leaves to pods⌉,
//
// and stops the bin-packing, which takes nearly all the time, as soon as some evaluated offering takes all pods for no
// more than the bound of the next one: no offering after it can be cheaper, since each costs at least its bound. So
// among options that take all pods the least price is exact, even where a dearer node takes more pods. Options that
// take only some of the pods are not waited for.
//
// Where no offering takes all pods it stops when it has some option and its patience is over: then what was not
// evaluated is, pod for pod, about as dear or dearer.
type CheapestFirst struct {
	prices Prices
	clock  clock.PassiveClock

	// The state of the scale-up under way.
	pods      int
	order     []string
	bounds    map[string]float64
	processed sets.Set[string]
	began     time.Time
}

var (
	_ nodegroups.NodeGroupListProcessor = (*CheapestFirst)(nil)
	_ binpacking.BinpackingLimiter      = (*CheapestFirst)(nil)
)

// NewCheapestFirst makes a processor that has to be installed both as NodeGroupListProcessor and as BinpackingLimiter.
func NewCheapestFirst(prices Prices, clk clock.PassiveClock) *CheapestFirst {
	return &CheapestFirst{prices: prices, clock: clk}
}

// Process returns the groups, cheapest bound first, then by price; groups that cannot take all pods or have no price come last.
func (c *CheapestFirst) Process(_ *cacontext.AutoscalingContext, groups []cloudprovider.NodeGroup, nodeInfos map[string]*framework.NodeInfo,
	unschedulable []*apiv1.Pod) ([]cloudprovider.NodeGroup, map[string]*framework.NodeInfo, error) {
	demand := totalRequests(unschedulable)
	prices := make(map[string]float64, len(groups))
	c.bounds = make(map[string]float64, len(groups))
	for _, group := range groups {
		id := group.Id()
		price, known := c.prices.NodePrice(id)
		if !known {
			price = math.Inf(1)
		}
		prices[id] = price
		c.bounds[id] = math.Inf(1)
		if nodes := nodesNeeded(demand, nodeInfos[id]); !math.IsInf(nodes, 1) {
			c.bounds[id] = price * nodes
		}
	}
	sorted := slices.Clone(groups)
	slices.SortFunc(sorted, func(a, b cloudprovider.NodeGroup) int {
		a1, b1 := a.Id(), b.Id()
		return cmp.Or(cmp.Compare(c.bounds[a1], c.bounds[b1]), cmp.Compare(prices[a1], prices[b1]), cmp.Compare(a1, b1))
	})
	c.pods = len(unschedulable)
	c.order = c.order[:0]
	for _, group := range sorted {
		c.order = append(c.order, group.Id())
	}
	return sorted, nodeInfos, nil
}

// InitBinpacking begins the search.
func (c *CheapestFirst) InitBinpacking(*cacontext.AutoscalingContext, []cloudprovider.NodeGroup) {
	c.processed = sets.New[string]()
	c.began = c.clock.Now()
}

// MarkProcessed notes that a group was evaluated or skipped.
func (c *CheapestFirst) MarkProcessed(_ *cacontext.AutoscalingContext, groupID string) {
	c.processed.Insert(groupID)
}

// StopBinpacking says whether no group that is left can be cheaper than the best found.
func (c *CheapestFirst) StopBinpacking(_ *cacontext.AutoscalingContext, options []expander.Option) bool {
	if len(options) == 0 {
		return false
	}
	if c.clock.Since(c.began) > patience {
		klog.V(1).Infof("Choosing between %d options after %v, offerings not evaluated are dearer", len(options), patience)
		return true
	}
	best := math.Inf(1)
	for _, option := range options {
		price, known := c.prices.NodePrice(option.NodeGroup.Id())
		if known && len(option.Pods) == c.pods {
			best = min(best, price*float64(option.NodeCount))
		}
	}
	return !math.IsInf(best, 1) && best <= c.nextBound()
}

// nextBound is the least bound of the groups not yet processed.
func (c *CheapestFirst) nextBound() float64 {
	for len(c.order) > 0 && c.processed.Has(c.order[0]) {
		c.order = c.order[1:]
	}
	if len(c.order) == 0 {
		return math.Inf(1)
	}
	return c.bounds[c.order[0]]
}

// FinalizeBinpacking ends the search.
func (c *CheapestFirst) FinalizeBinpacking(*cacontext.AutoscalingContext, []expander.Option) {
	evaluatedOfferings.Observe(float64(c.processed.Len()))
}

// CleanUp is called when the autoscaler ends.
func (c *CheapestFirst) CleanUp() {}

// totalRequests sums the requests of pods, and the pods themselves under AllowedPodNumber.
func totalRequests(pods []*apiv1.Pod) *schedulerframework.Resource {
	total := &schedulerframework.Resource{AllowedPodNumber: len(pods)}
	for _, pod := range pods {
		total.Add(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	}
	return total
}

// nodesNeeded is the least number of nodes like the template that the demand could do with; infinite where the
// template lacks something or there is none.
func nodesNeeded(demand *schedulerframework.Resource, template *framework.NodeInfo) float64 {
	if template == nil {
		return math.Inf(1)
	}
	node := template.ToScheduler()
	has, taken := node.Allocatable, node.Requested
	nodes := 1.0
	consider := func(want, has, taken int64) {
		switch free := has - taken; {
		case want <= 0:
		case free <= 0:
			nodes = math.Inf(1)
		default:
			nodes = max(nodes, math.Ceil(float64(want)/float64(free)))
		}
	}
	consider(demand.MilliCPU, has.MilliCPU, taken.MilliCPU)
	consider(demand.Memory, has.Memory, taken.Memory)
	consider(demand.EphemeralStorage, has.EphemeralStorage, taken.EphemeralStorage)
	consider(int64(demand.AllowedPodNumber), int64(has.AllowedPodNumber), int64(len(node.Pods)))
	for name, want := range demand.ScalarResources {
		consider(want, has.ScalarResources[name], taken.ScalarResources[name])
	}
	return nodes
}
