package scaleup

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"

	"gpu-spot-autoscaler/pricing"
)

// ranking is offerings in the order of evaluation: by the least that it could cost to place all pods of a scale-up on them,
//
//	total = price × max over resources ⌈requests of all pods ÷ what a new node leaves to pods⌉.
//
// Offerings that cannot take all pods come after those that may, and those without a price last. Of offerings with equal
// totals the one that needs fewer nodes comes first, as in least-price, and then the one whose pool waits for fewer instances:
// several pools can offer the same instance type in the same zone, and a scaling group may do one thing at a time.
type ranking []rankedOffering

type rankedOffering struct {
	group cloudprovider.NodeGroup
	// total is the least price of nodes for all pods, nodes is the least number of them. Both are infinite if the offering
	// cannot take all pods.
	total, nodes float64
	// unitCost is the cost of a full node per unit of the demand; see pricing.Cost.
	unitCost float64
	// undelivered is how many instances the pool waits for.
	undelivered int
	// leastUnitCost is the least unitCost of this and all later offerings.
	leastUnitCost float64
}

func rank(groups []cloudprovider.NodeGroup, nodeInfos map[string]*framework.NodeInfo, demand demand, offerings Offerings) ranking {
	ranked := make(ranking, 0, len(groups))
	for _, group := range groups {
		ranked = append(ranked, rankOne(group, nodeInfos[group.Id()], demand, offerings))
	}
	slices.SortFunc(ranked, func(a, b rankedOffering) int {
		return cmp.Or(cmp.Compare(a.total, b.total), cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.unitCost, b.unitCost),
			cmp.Compare(a.undelivered, b.undelivered), cmp.Compare(a.group.Id(), b.group.Id()))
	})
	return ranked
}

func rankOne(group cloudprovider.NodeGroup, template *framework.NodeInfo, demand demand, offerings Offerings) rankedOffering {
	r := rankedOffering{
		group: group, nodes: demand.nodes(template), total: math.Inf(1), unitCost: math.Inf(1), undelivered: offerings.Undelivered(group.Id()),
	}
	price, known := offerings.NodePrice(group.Id(), demand.valueOfTime)
	if !known {
		return r
	}
	if !math.IsInf(r.nodes, 1) {
		r.total = price * r.nodes
	}
	if free, ok := demand.free(template); ok {
		r.unitCost = pricing.Cost(price, free)
	}
	return r
}

func (r ranking) groups() []cloudprovider.NodeGroup {
	groups := make([]cloudprovider.NodeGroup, len(r))
	for i, offering := range r {
		groups[i] = offering.group
	}
	return groups
}

// withLeastUnitCosts sets leastUnitCost of all offerings, and returns the ranking.
func (r ranking) withLeastUnitCosts() ranking {
	least := math.Inf(1)
	for i := len(r) - 1; i >= 0; i-- {
		least = min(least, r[i].unitCost)
		r[i].leastUnitCost = least
	}
	return r
}
