package ess

import (
	"slices"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// Most elements of the lists of DescribeElasticStrength.
const maxStrengthList = 50

// Elastic strengths.
const (
	strong = "Strong"
	medium = "Medium"
	weak   = "Weak"
)

type strengthJSON struct {
	ScalingGroupId, ElasticStrength string

	ResourcePools []resourcePoolJSON
}

type resourcePoolJSON struct {
	InstanceType, ZoneId, Status, ElasticStrength string
	Code, Msg                                     string
	VSwitchIds                                    []string
	InventoryHealth                               healthJSON
}

// healthJSON is the health of a stock: HealthScore is AdequacyScore + SupplyScore - HotScore.
type healthJSON struct{ HealthScore, AdequacyScore, SupplyScore, HotScore int }

// strengthActions answers DescribeElasticStrength.
type strengthActions struct{ *scaling.Engine }

// describeElasticStrength tells how likely instances can be had, by type and zone: of one group, of several, or of types
// and vSwitches that are in none.
// Source: alibabacloud-csharp-sdk ess-20220222, DescribeElasticStrength.
func (s strengthActions) describeElasticStrength(r *protocol.Request) (protocol.Reply, error) {
	if _, err := r.Required("RegionId"); err != nil {
		return nil, err
	}
	types, err := r.List("InstanceTypes", maxStrengthList)
	if err != nil {
		return nil, err
	}
	vswitches, err := r.List("VSwitchIds", maxStrengthList)
	if err != nil {
		return nil, err
	}
	ids, err := r.List("ScalingGroupIds", maxESSList)
	if err != nil {
		return nil, err
	}
	strategy := r.Get("SpotStrategy")
	if len(ids) > 0 {
		models := []strengthJSON{}
		for _, g := range groupsNamed(s.Engine, ids) {
			pools := s.resourcePools(g.Pool, types, vswitches, strategy)
			models = append(models, strengthJSON{g.ID, strongest(pools), pools})
		}
		return protocol.Reply{"ElasticStrengthModels": models}, nil
	}
	var pool scaling.Pool
	if id := r.Get("ScalingGroupId"); id != "" {
		g, err := lookup(s.Engine, r)
		if err != nil {
			return nil, err
		}
		pool = g.Pool
	} else if len(vswitches) == 0 {
		return nil, protocol.Missing("VSwitchIds.1")
	}
	pools := s.resourcePools(pool, types, vswitches, strategy)
	return protocol.Reply{"ElasticStrength": strongest(pools), "ResourcePools": pools}, nil
}

// resourcePools are those of the pool, or of what overrides its types, vSwitches and strategy.
func (s strengthActions) resourcePools(p scaling.Pool, types, vswitches []string, strategy string) []resourcePoolJSON {
	if len(types) == 0 {
		types = p.InstanceTypes
	}
	if len(vswitches) == 0 {
		vswitches = p.VSwitches
	}
	if strategy == "" {
		strategy = p.SpotStrategy
	}
	if strategy == "" {
		strategy = ecs.NoSpot
	}
	list := []resourcePoolJSON{}
	for _, t := range types {
		for _, v := range vswitches {
			if s.Compute.Sells(t) && s.Compute.HasVSwitch(v) {
				list = s.addResourcePool(list, s.Compute.Offer(t, v, strategy, p.SpotPriceLimits[t]), v)
			}
		}
	}
	return list
}

// addResourcePool adds an offer, or its vSwitch to the offer of the same type and zone.
func (s strengthActions) addResourcePool(list []resourcePoolJSON, o ecs.Offer, vswitchID string) []resourcePoolJSON {
	at := slices.IndexFunc(list, func(p resourcePoolJSON) bool { return p.InstanceType == o.Type.ID && p.ZoneId == o.Zone })
	if at >= 0 {
		list[at].VSwitchIds = append(list[at].VSwitchIds, vswitchID)
		return list
	}
	now := s.Cloud.Clock.Now()
	p := resourcePoolJSON{InstanceType: o.Type.ID, ZoneId: o.Zone, VSwitchIds: []string{vswitchID}}
	why, room := s.Compute.WhyNot(o, now), s.Compute.Room(o, now)
	if s.Cloud.Temper.IsWrongAbout("DescribeElasticStrength", o.Type.ID, o.Zone, now) {
		why, room = opposite(why, o), strongRoom
	}
	if why != nil {
		p.Status, p.ElasticStrength, p.Code, p.Msg = "Unavailable", weak, why.Code, why.Message
		p.InventoryHealth = healthJSON{HealthScore: -3, HotScore: 3}
		return append(list, p)
	}
	p.Status = "Available"
	p.ElasticStrength, p.InventoryHealth = strengthOf(room)
	return append(list, p)
}

// opposite is a stockout of what can be had, and nothing of what is sold out. Other reasons stay what they are.
func opposite(why *protocol.Failure, o ecs.Offer) *protocol.Failure {
	switch {
	case why == nil:
		return protocol.Fail(ecs.CodeNoStock, "%s is sold out in zone %s.", o.Type.ID, o.Zone)
	case why.Code == ecs.CodeNoStock:
		return nil
	}
	return why
}

// Rooms, in instances, from which an offer is called strong or medium. Alibaba does not say where it draws the line.
const (
	strongRoom = 10
	mediumRoom = 3
)

func strengthOf(room int) (string, healthJSON) {
	switch {
	case room >= strongRoom:
		return strong, healthJSON{HealthScore: 6, AdequacyScore: 3, SupplyScore: 3}
	case room >= mediumRoom:
		return medium, healthJSON{HealthScore: 3, AdequacyScore: 2, SupplyScore: 2, HotScore: 1}
	}
	return weak, healthJSON{HealthScore: 0, AdequacyScore: 1, SupplyScore: 1, HotScore: 2}
}

// strongest is what a group is called: as strong as the best that it may buy.
func strongest(pools []resourcePoolJSON) string {
	for _, strength := range []string{strong, medium} {
		if slices.ContainsFunc(pools, func(p resourcePoolJSON) bool { return p.ElasticStrength == strength }) {
			return strength
		}
	}
	return weak
}
