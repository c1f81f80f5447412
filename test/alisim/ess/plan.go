package ess

import (
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// planOnly is the ExecutionMode that buys nothing.
const planOnly = "PlanOnly"

type allocationJSON struct {
	InstanceType, ZoneId, InstanceChargeType, SpotStrategy string

	Amount int
}

// isPlan says whether the request is to be planned only.
func (s *scalingActions) isPlan(r *protocol.Request) bool {
	return r.Get("ExecutionMode") == planOnly && !s.Cloud.Temper.BuysPlans
}

// plan answers with what the adjustment would buy now. It waits for no activity, and a removal has an empty plan.
// Source: alibabacloud-csharp-sdk ess-20220222, ScaleWithAdjustment ExecutionMode and PlanResult.
func (s *scalingActions) plan(g *scaling.Group, delta int, p scaling.Purchase) (protocol.Reply, error) {
	if g.LifecycleState != scaling.GroupActive || g.SystemSuspended {
		return nil, g.Admit(true)
	}
	from := g.Target()
	count := g.Clamp(from+delta) - from
	if count == 0 && s.Cloud.Temper.RefuseNoChange {
		return nil, protocol.BadRequest(scaling.CodeNoChange, "%s", g.WhyUnchanged(delta).Message)
	}
	p.Count = count
	allocations := []allocationJSON{}
	at := map[ecs.OfferKey]int{}
	for _, o := range g.Plan(p, s.Cloud.Clock.Now()) {
		place, known := at[o.Key()]
		if !known {
			place = len(allocations)
			at[o.Key()] = place
			allocations = append(allocations, allocationJSON{
				InstanceType: o.Type.ID, ZoneId: o.Zone, InstanceChargeType: "PostPaid", SpotStrategy: o.Strategy,
			})
		}
		allocations[place].Amount++
	}
	return protocol.Reply{"PlanResult": map[string]any{"ResourceAllocations": allocations}}, nil
}
