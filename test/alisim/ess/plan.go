package ess

import (
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// planOnly is the ExecutionMode that buys nothing.
const planOnly = "PlanOnly"

type allocationJSON struct {
	InstanceType, ZoneId, InstanceChargeType, SpotStrategy string

	Amount int
}

// isPlan says whether the request is to be planned only.
func (s scalingActions) isPlan(r *protocol.Request) bool {
	return r.Get("ExecutionMode") == planOnly && !s.cloud.Temper.BuysPlans
}

// plan answers with what the adjustment would buy now. It waits for no activity, and a removal has an empty plan.
// Source: alibabacloud-csharp-sdk ess-20220222, ScaleWithAdjustment ExecutionMode and PlanResult.
func (s scalingActions) plan(g *group, delta int, p purchase) (protocol.Reply, error) {
	if g.LifecycleState != groupActive || g.SystemSuspended {
		return nil, g.admit(true)
	}
	from := g.target()
	count := g.clamp(from+delta) - from
	if count == 0 && s.cloud.Temper.RefuseNoChange {
		return nil, protocol.BadRequest(codeNoChange, "%s", g.whyUnchanged(delta).Message)
	}
	store, now := newStore(g, p), s.cloud.Clock.Now()
	store.planned = map[ecs.OfferKey]int{}
	allocations := []allocationJSON{}
	at := map[ecs.OfferKey]int{}
	for range count {
		o, why := store.next(now)
		if why != nil {
			break
		}
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
