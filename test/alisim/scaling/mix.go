package scaling

import "gpu-spot-autoscaler/test/alisim/ecs"

// mix is how many pay-as-you-go instances a group wants among its spot instances, by its OnDemandBaseCapacity and
// OnDemandPercentageAboveBaseCapacity, whatever a request asks for.
// Source: aliyun-openapi-meta and alibabacloud-csharp-sdk ess-20220222, CreateScalingGroup CapacityOptions.
type mix struct {
	base, percent  int
	spot, onDemand int
}

// newMix returns what the group wants and has. Only COST_OPTIMIZED and COMPOSABLE groups want any; the latter want pay-as-you-go
// alone unless told otherwise.
func newMix(g *Group) mix {
	var m mix
	switch g.MultiAZPolicy {
	case PolicyCost:
	case PolicyComposable:
		m.percent = 100
	default:
		return m
	}
	if g.OnDemandBaseCapacity != nil {
		m.base = *g.OnDemandBaseCapacity
	}
	if g.OnDemandPercentageAboveBaseCapacity != nil {
		m.percent = *g.OnDemandPercentageAboveBaseCapacity
	}
	for _, i := range g.Members.Items {
		if i.Lifecycle != StateRemoving {
			m.add(i.SpotStrategy)
		}
	}
	return m
}

// OnDemandMix returns how many pay-as-you-go instances the group wants first, and the percentage of them among the others.
func (g *Group) OnDemandMix() (base, percent int) {
	m := newMix(g)
	return m.base, m.percent
}

// any says whether the group ever wants a pay-as-you-go instance.
func (m *mix) any() bool { return m.base > 0 || m.percent > 0 }

// wantsOnDemand says whether the next instance is to be a pay-as-you-go one.
func (m *mix) wantsOnDemand() bool {
	if m.onDemand < m.base {
		return true
	}
	above := m.spot + m.onDemand - m.base + 1 // with the next one
	return (m.onDemand-m.base)*100 < m.percent*above
}

func (m *mix) add(strategy string) {
	if strategy == ecs.NoSpot {
		m.onDemand++
	} else {
		m.spot++
	}
}
