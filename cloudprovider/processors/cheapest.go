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
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// patience bounds how long a scale-up goes on looking for something better once it has something to choose.
const patience = 2 * time.Second

// Prices are what a node of an offering costs.
type Prices interface {
	// NodePrice is per instance-hour; false while no price is known.
	NodePrice(groupID string) (float64, bool)
}

// CheapestFirst keeps scale-up fast over a thousand offerings without making it dearer. It sorts the offerings by the
// least that placing all pods on them could cost,
//
//	total = price × max over resources ⌈requests of all pods ÷ what a new node leaves to pods⌉,
//
// and stops the bin-packing, which takes nearly all the time, as soon as what is left cannot win. What wins is up to the
// expander; least-price takes the lowest price per GPU asked for (per CPU where none is). By that measure
//
//   - an option that takes all pods beats every offering whose total is no less, if that would take all pods too;
//   - any option beats every offering whose unit price, price ÷ GPUs of a node, is no less.
//
// The second rule is exact. It ends the search where no offering suits all pods, say because some want one GPU model
// and some another. The first ends it earlier; all that it can miss is an offering that has room for some of the pods
// only and would fill its nodes better with those than with all. Ties go to fewer nodes, as in least-price.
//
// Both rules apart, the search ends when there is something to choose and patience is over: what was not evaluated by
// then is about as dear, or dearer.
type CheapestFirst struct {
	prices Prices
	clock  clock.PassiveClock

	// Only the offerings ranked from..to are shown to core; ranked is how many there are in all. See StagedOrchestrator.
	from, to, ranked int

	// The state of the scale-up under way.
	demand    demand
	ranking   []ranked
	processed sets.Set[string]
	began     time.Time
	// judged is the number of options looked at; of those, bestTotal is the price of the cheapest that takes all pods,
	// bestUnit the lowest price per GPU, or CPU, asked for.
	judged              int
	bestTotal, bestUnit float64
}

// ranked is an offering in the order of evaluation.
type ranked struct {
	id string
	// total is the least that all pods could cost on nodes, the least number of them; infinite where they cannot all go.
	total, nodes float64
	// unit is the price per GPU, or CPU, of a node.
	unit float64
	// leastUnit is the least unit of this and all offerings after it.
	leastUnit float64
}

var (
	_ nodegroups.NodeGroupListProcessor = (*CheapestFirst)(nil)
	_ binpacking.BinpackingLimiter      = (*CheapestFirst)(nil)
)

// NewCheapestFirst makes a processor that has to be installed both as NodeGroupListProcessor and as BinpackingLimiter.
func NewCheapestFirst(prices Prices, clk clock.PassiveClock) *CheapestFirst {
	return &CheapestFirst{prices: prices, clock: clk, to: math.MaxInt}
}

// show restricts what Process returns to the groups in these places.
func (c *CheapestFirst) show(from, to int) { c.from, c.to, c.ranked = from, to, 0 }

// Process returns the groups in the order of what they would cost. Those that cannot take all pods come after those
// that may, and those without a price last.
func (c *CheapestFirst) Process(_ *cacontext.AutoscalingContext, groups []cloudprovider.NodeGroup, nodeInfos map[string]*framework.NodeInfo,
	unschedulable []*apiv1.Pod) ([]cloudprovider.NodeGroup, map[string]*framework.NodeInfo, error) {
	c.demand = demandOf(unschedulable)
	c.ranking = make([]ranked, 0, len(groups))
	byID := make(map[string]cloudprovider.NodeGroup, len(groups))
	for _, group := range groups {
		byID[group.Id()] = group
		c.ranking = append(c.ranking, c.rank(group.Id(), nodeInfos[group.Id()]))
	}
	slices.SortFunc(c.ranking, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.total, b.total), cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.unit, b.unit), cmp.Compare(a.id, b.id))
	})
	c.ranked = len(c.ranking)
	c.ranking = c.ranking[min(c.from, c.ranked):min(c.to, c.ranked)]
	sorted := make([]cloudprovider.NodeGroup, len(c.ranking))
	least := math.Inf(1)
	for i := len(c.ranking) - 1; i >= 0; i-- {
		least = min(least, c.ranking[i].unit)
		c.ranking[i].leastUnit = least
		sorted[i] = byID[c.ranking[i].id]
	}
	return sorted, nodeInfos, nil
}

func (c *CheapestFirst) rank(id string, template *framework.NodeInfo) ranked {
	r := ranked{id: id, nodes: c.demand.nodes(template), total: math.Inf(1), unit: math.Inf(1)}
	price, known := c.prices.NodePrice(id)
	if !known {
		return r
	}
	if !math.IsInf(r.nodes, 1) {
		r.total = price * r.nodes
	}
	if units := c.demand.units(template); units > 0 {
		r.unit = price / units
	}
	return r
}

// InitBinpacking begins the search.
func (c *CheapestFirst) InitBinpacking(*cacontext.AutoscalingContext, []cloudprovider.NodeGroup) {
	c.processed = sets.New[string]()
	c.began = c.clock.Now()
	c.judged, c.bestTotal, c.bestUnit = 0, math.Inf(1), math.Inf(1)
}

// MarkProcessed notes that a group was evaluated or skipped.
func (c *CheapestFirst) MarkProcessed(_ *cacontext.AutoscalingContext, groupID string) {
	c.processed.Insert(groupID)
}

// StopBinpacking says whether no group that is left can win.
func (c *CheapestFirst) StopBinpacking(_ *cacontext.AutoscalingContext, options []expander.Option) bool {
	if len(options) == 0 {
		return false
	}
	for len(c.ranking) > 0 && c.processed.Has(c.ranking[0].id) {
		c.ranking = c.ranking[1:]
	}
	if len(c.ranking) == 0 {
		return true
	}
	if c.clock.Since(c.began) > patience {
		klog.Infof("Choosing between %d options after %v; %d offerings that promised less were not evaluated", len(options), patience, len(c.ranking))
		return true
	}
	for ; c.judged < len(options); c.judged++ {
		c.judge(options[c.judged])
	}
	next := c.ranking[0]
	return !math.IsInf(c.bestTotal, 1) && c.bestTotal <= next.total ||
		!math.IsInf(c.bestUnit, 1) && c.bestUnit <= next.leastUnit
}

func (c *CheapestFirst) judge(option expander.Option) {
	price, known := c.prices.NodePrice(option.NodeGroup.Id())
	if !known {
		return
	}
	total := price * float64(option.NodeCount)
	if len(option.Pods) == c.demand.pods {
		c.bestTotal = min(c.bestTotal, total)
	}
	if asked := c.demand.unitsOf(option.Pods); asked > 0 {
		c.bestUnit = min(c.bestUnit, total/asked)
	}
}

// FinalizeBinpacking ends the search.
func (c *CheapestFirst) FinalizeBinpacking(*cacontext.AutoscalingContext, []expander.Option) {
	evaluatedOfferings.Observe(float64(c.processed.Len()))
}

// CleanUp is called when the autoscaler ends.
func (c *CheapestFirst) CleanUp() {}
