package scaleup

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
)

// maxSearchTime limits how long bin packing goes on once there is an option.
const maxSearchTime = 2 * time.Second

// evaluation ends the bin packing of a stage when no offering that is left can win. The expander least-price chooses the
// option of the lowest cost per GPU requested, or per CPU if none is. By that measure,
//
//   - an option that takes all pods is at least as good as every offering whose total is no less, if that would take all pods;
//   - any option is at least as good as every offering whose cost per unit of a full node is no less.
//
// The second rule is exact. It ends the evaluation if no offering suits all pods, for example because some select one GPU model
// and some another. The first ends it earlier. It can miss only an offering that has room for some of the pods, and would be
// fuller with those than with all.
//
// Apart from both rules, bin packing ends after two seconds if there is an option: the offerings that are left have at best
// about the same cost.
type evaluation struct {
	ranking   ranking
	demand    demand
	offerings Offerings
	clock     clock.PassiveClock

	began     time.Time
	processed sets.Set[string]
	// compared is the number of options looked at. Of those, bestTotal is the price of the cheapest that takes all pods, and
	// bestUnitCost is the lowest cost per unit of the demand.
	compared                int
	bestTotal, bestUnitCost float64
}

func newEvaluation(ranking ranking, demand demand, offerings Offerings, clk clock.PassiveClock) *evaluation {
	return &evaluation{ranking: ranking.withLeastUnitCosts(), demand: demand, offerings: offerings, clock: clk}
}

// begin starts the evaluation of the first offering.
func (e *evaluation) begin() {
	e.began = e.clock.Now()
	e.processed = sets.New[string]()
	e.compared, e.bestTotal, e.bestUnitCost = 0, math.Inf(1), math.Inf(1)
}

// isOver returns whether no offering that is left can win against the options.
func (e *evaluation) isOver(options []expander.Option) bool {
	if len(options) == 0 {
		return false
	}
	for len(e.ranking) > 0 && e.processed.Has(e.ranking[0].group.Id()) {
		e.ranking = e.ranking[1:]
	}
	if len(e.ranking) == 0 {
		return true
	}
	if spent := e.clock.Since(e.began); spent > maxSearchTime {
		klog.InfoS("Stopping bin packing, the other offerings are ranked lower", "options", len(options), "spent", spent, "notEvaluated", len(e.ranking))
		return true
	}
	for ; e.compared < len(options); e.compared++ {
		e.compare(options[e.compared])
	}
	next := e.ranking[0]
	return !math.IsInf(e.bestTotal, 1) && e.bestTotal <= next.total ||
		!math.IsInf(e.bestUnitCost, 1) && e.bestUnitCost <= next.leastUnitCost
}

func (e *evaluation) compare(option expander.Option) {
	price, known := e.offerings.NodePrice(option.NodeGroup.Id(), e.demand.valueOfTime)
	if !known {
		return
	}
	total := price * float64(option.NodeCount)
	if len(option.Pods) == e.demand.pods {
		e.bestTotal = min(e.bestTotal, total)
	}
	if requested, ok := e.demand.of(option.Pods); ok {
		e.bestUnitCost = min(e.bestUnitCost, pricing.Cost(total, requested))
	}
}
