package pricing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// LeastPriceName is the name of the expander, for --expander.
const LeastPriceName = "least-price"

// Decision explains why an option was chosen.
type Decision struct {
	Chosen Candidate
	// RunnerUp is the second best option. It is nil if there was one option only.
	RunnerUp *Candidate
	// Alternatives is the number of options that were not chosen.
	Alternatives int
}

// Candidate is an option with its cost.
type Candidate struct {
	// NodeGroup is the id of the group that would grow by Nodes, for so many Pods.
	NodeGroup   string
	Nodes, Pods int
	// GPUs and CPUs are what the pods request together.
	GPUs, CPUs float64
	// Price is the market price of all the nodes together per hour. It is 0 if Priced is false.
	Price  float64
	Priced bool
	// Currency is that of Price, or "" if it is not known.
	Currency string
	// Dearness is the factor on the price in comparisons, because instances of the offering are lost, purchases of it are refused, instances are
	// being reclaimed, or more of them are asked for than there may be in stock. It is 0 if there is none.
	Dearness float64
}

// Cost returns the price per GPU-hour requested; see the function Cost.
func (c Candidate) Cost() float64 { return Cost(c.Price, Demand{GPUs: c.GPUs, CPUs: c.CPUs}) }

// comparedCost returns the cost by which candidates are compared.
func (c Candidate) comparedCost() float64 { return c.Cost() * max(1, c.Dearness) }

// String returns a line for logs and Events.
func (c Candidate) String() string {
	line := fmt.Sprintf("%s: %d nodes", c.NodeGroup, c.Nodes)
	if c.Pods > 0 { // a pool is bought up to its minimum size without pods
		line += fmt.Sprintf(" for %d pods", c.Pods)
	}
	switch {
	case !c.Priced:
		return line + ", price unknown"
	case c.Pods == 0:
		line += fmt.Sprintf(", %s per hour", Amount(c.Price, c.Currency))
	case c.GPUs == 0:
		line += fmt.Sprintf(", %s per hour, %s per CPU-hour", Amount(c.Price, c.Currency), Amount(c.Cost(), c.Currency))
	default:
		line += fmt.Sprintf(", %s per hour, %s per GPU-hour", Amount(c.Price, c.Currency), Amount(c.Cost(), c.Currency))
	}
	if c.Dearness >= tellDearness {
		line += fmt.Sprintf(" (counts %.3g times: often lost, refused, reclaimed or short)", c.Dearness)
	}
	return line
}

// tellDearness is from which dearness on it is told: every spot instance may be lost, which is worth some percent.
const tellDearness = 1.2

// Amount returns a sum of money as text for logs and Events.
func Amount(amount float64, currency string) string {
	if currency == "" {
		return fmt.Sprintf("%.3f", amount)
	}
	return fmt.Sprintf("%.3f %s", amount, currency)
}

// marketPricer is a PricingModel that knows the price without its dearness, its currency, and the price with its dearness for some pods. Model is
// one.
type marketPricer interface {
	GroupPrice(groupID string, pods []*apiv1.Pod) (perHour float64, known bool)
	MarketPrice(node *apiv1.Node) (perHour float64, known bool)
	Currency() string
}

// LeastPrice is an expander for Cluster Autoscaler. It chooses the option of the lowest cost for its pods, and among equals the one
// with fewer nodes, then with more pods, then the first by id, so that equal input gives equal decisions. An option without a
// known price is chosen only if there is no other.
type LeastPrice struct {
	model   cloudprovider.PricingModel
	clock   clock.PassiveClock
	explain func(Decision)
}

var (
	_ expander.Filter   = (*LeastPrice)(nil)
	_ expander.Strategy = (*LeastPrice)(nil)
)

// NewLeastPrice returns the expander. It calls explain with each decision; explain may be nil.
func NewLeastPrice(model cloudprovider.PricingModel, clk clock.PassiveClock, explain func(Decision)) *LeastPrice {
	if explain == nil {
		explain = func(Decision) {}
	}
	return &LeastPrice{model: model, clock: clk, explain: explain}
}

// BestOptions returns the best option alone, or nil if there are no options.
func (l *LeastPrice) BestOptions(options []expander.Option, nodeInfos map[string]*framework.NodeInfo) []expander.Option {
	if best := l.BestOption(options, nodeInfos); best != nil {
		return []expander.Option{*best}
	}
	return nil
}

// BestOption returns the best option, or nil if there are none.
func (l *LeastPrice) BestOption(options []expander.Option, nodeInfos map[string]*framework.NodeInfo) *expander.Option {
	if len(options) == 0 {
		return nil
	}
	type ranked struct {
		Candidate
		option expander.Option
	}
	ranking := make([]ranked, len(options))
	for i, option := range options {
		ranking[i] = ranked{l.candidate(option, nodeInfos), option}
	}
	slices.SortStableFunc(ranking, func(a, b ranked) int { return better(a.Candidate, b.Candidate) })

	decision := Decision{Chosen: ranking[0].Candidate, Alternatives: len(ranking) - 1}
	if len(ranking) > 1 {
		decision.RunnerUp = &ranking[1].Candidate
	}
	l.explain(decision)
	best := ranking[0].option
	best.Debug = fmt.Sprintf("%s | %s: %s", best.Debug, LeastPriceName, decision.Chosen)
	return &best
}

func (l *LeastPrice) candidate(option expander.Option, nodeInfos map[string]*framework.NodeInfo) Candidate {
	demand := DemandOf(option.Pods...)
	c := Candidate{NodeGroup: option.NodeGroup.Id(), Nodes: option.NodeCount, Pods: len(option.Pods), GPUs: demand.GPUs, CPUs: demand.CPUs}
	info := nodeInfos[c.NodeGroup]
	if info == nil || info.Node() == nil {
		klog.V(2).InfoS("Option has no node template and is ranked last", "nodeGroup", c.NodeGroup)
		return c
	}
	now := l.clock.Now()
	price, err := l.model.NodePrice(info.Node(), now, now.Add(time.Hour))
	if err != nil {
		klog.V(2).InfoS("Option has no price and is ranked last", "nodeGroup", c.NodeGroup, "err", err)
		return c
	}
	c.Price, c.Priced = price*float64(option.NodeCount), true
	if model, ok := l.model.(marketPricer); ok {
		if own, known := model.GroupPrice(c.NodeGroup, option.Pods); known {
			price = own
			c.Price = price * float64(option.NodeCount)
		}
		c.Currency = model.Currency()
		if market, known := model.MarketPrice(info.Node()); known && market > 0 {
			c.Price = market * float64(option.NodeCount)
			if price > market {
				c.Dearness = price / market
			}
		}
	}
	return c
}

// better orders candidates, the best first. Options for GPU pods come before those for other pods: their costs cannot be compared,
// and the other pods are bought for in the next loop.
func better(a, b Candidate) int {
	return cmp.Or(
		first(a.Priced, b.Priced),
		first(a.GPUs > 0, b.GPUs > 0),
		cmp.Compare(rounded(a.comparedCost()), rounded(b.comparedCost())),
		cmp.Compare(a.Nodes, b.Nodes),
		cmp.Compare(b.Pods, a.Pods),
		cmp.Compare(a.NodeGroup, b.NodeGroup),
	)
}

// rounded removes rounding errors of floating-point sums, so that equal costs are equal.
func rounded(cost float64) float64 { return math.Round(cost * 1e6) }

func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
