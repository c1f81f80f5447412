package ecs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Most instance types that a request names, and that a page has.
const (
	maxTypeIDs  = 10
	maxTypePage = 1600
)

// Type is the shape and, optionally, the price of an instance type. Prices are CNY per instance-hour and hold in every
// zone of the world; where both are 0 the market knows the type already.
type Type struct {
	ID        string  `json:"id"`
	VCPU      int     `json:"vcpu"`
	MemoryGiB float64 `json:"memoryGiB"`
	GPUs      int     `json:"gpus,omitempty"`
	// GPUModel is the bare name, such as "A10".
	GPUModel string `json:"gpuModel,omitempty"`
	// GPUMemGiB is per GPU.
	GPUMemGiB float64 `json:"gpuMemGiB,omitempty"`
	OnDemand  float64 `json:"onDemand,omitempty"`
	Spot      float64 `json:"spot,omitempty"`
}

type instanceTypeJSON struct {
	InstanceTypeId, InstanceTypeFamily, InstanceFamilyLevel, InstanceCategory, CpuArchitecture string

	CpuCoreCount  int
	MemorySize    float64
	GPUAmount     int
	GPUSpec       string
	GPUMemorySize float64
	EniQuantity   int
}

func (t Type) json() instanceTypeJSON {
	return instanceTypeJSON{
		InstanceTypeId: t.ID, InstanceTypeFamily: familyOf(t.ID), InstanceFamilyLevel: "EnterpriseLevel",
		InstanceCategory: "GPU-accelerated", CpuArchitecture: "X86", CpuCoreCount: t.VCPU, MemorySize: t.MemoryGiB,
		GPUAmount: t.GPUs, GPUSpec: t.gpuSpec(), GPUMemorySize: t.GPUMemGiB, EniQuantity: 4,
	}
}

// typeActions answers the requests about instance types and their stock.
type typeActions struct{ *Compute }

func (c typeActions) describeInstanceTypes(r *protocol.Request) (protocol.Reply, error) {
	ids, err := r.List("InstanceTypes", maxTypeIDs)
	if err != nil {
		return nil, err
	}
	size, err := r.Integer("MaxResults", maxTypePage, 1, maxTypePage)
	if err != nil {
		return nil, err
	}
	from := 0
	if r.Has("NextToken") {
		ordinal, err := protocol.ParseToken(r.Get("NextToken"))
		if err != nil {
			return nil, err
		}
		from = int(ordinal)
	}
	if len(ids) == 0 {
		ids = slices.Sorted(maps.Keys(c.types))
	}
	var list []instanceTypeJSON
	family := r.Get("InstanceTypeFamily")
	for n := from; n < len(ids); n++ {
		t, known := c.types[ids[n]]
		if !known || c.retired.Has(t.ID) || family != "" && familyOf(t.ID) != family {
			continue
		}
		if len(list) == size {
			return protocol.Reply{"NextToken": fmt.Sprintf("%016x", n), "InstanceTypes": protocol.Wrap("InstanceType", list)}, nil
		}
		list = append(list, t.json())
	}
	return protocol.Reply{"NextToken": "", "InstanceTypes": protocol.Wrap("InstanceType", list)}, nil
}

type stockZoneJSON struct {
	RegionId, ZoneId, Status, StatusCategory string

	AvailableResources map[string][]stockTypeJSON
}

type stockTypeJSON struct {
	Type               string
	SupportedResources map[string][]stockJSON
}

type stockJSON struct{ Value, Status, StatusCategory string }

const (
	withStock    = "WithStock"
	withoutStock = "WithoutStock"
)

// Retire has an instance type neither described nor sold any more. Its instances run on.
func (c Supply) Retire(instanceType string) { c.retired.Insert(instanceType) }

// describeAvailableResource tells what is in stock. Types that a zone does not sell at all are left out.
func (c typeActions) describeAvailableResource(r *protocol.Request) (protocol.Reply, error) {
	destination, err := r.Required("DestinationResource")
	if err != nil {
		return nil, err
	}
	if destination != "InstanceType" {
		return nil, protocol.Invalid("DestinationResource", destination)
	}
	strategy := cmp.Or(r.Get("SpotStrategy"), NoSpot)
	if err := checkStockQuestion(r, strategy); err != nil {
		return nil, err
	}
	ids := []string{r.Get("InstanceType")}
	if ids[0] == "" {
		ids = slices.Sorted(maps.Keys(c.types))
	}
	var zones []stockZoneJSON
	for _, zone := range zonesNamed(r.Get("ZoneId"), c.Zones) {
		if z, sells := c.stockIn(zone, ids, strategy, r); sells {
			zones = append(zones, z)
		}
	}
	return protocol.Reply{"AvailableZones": protocol.Wrap("AvailableZone", zones)}, nil
}

func (c typeActions) stockIn(zone string, ids []string, strategy string, r *protocol.Request) (stockZoneJSON, bool) {
	z := stockZoneJSON{RegionId: c.cloud.Region, ZoneId: zone, Status: "SoldOut", StatusCategory: withoutStock}
	var list []stockJSON
	for _, id := range ids {
		if c.retired.Has(id) || c.Market.Quote(id, zone, r.Now) == (market.Quote{}) {
			continue
		}
		s := stockJSON{Value: id, Status: "SoldOut", StatusCategory: withoutStock}
		if c.inStock(id, zone, strategy, r) != c.cloud.Temper.IsWrongAbout(r.Action, id, zone, r.Now) {
			s.Status, s.StatusCategory = "Available", withStock
			z.Status, z.StatusCategory = "Available", withStock
		}
		list = append(list, s)
	}
	z.AvailableResources = protocol.Wrap("AvailableResource", []stockTypeJSON{{"InstanceType", protocol.Wrap("SupportedResource", list)}})
	return z, len(list) > 0
}

func (c typeActions) inStock(id, zone, strategy string, r *protocol.Request) bool {
	q, o := c.Market.Quote(id, zone, r.Now), c.offeringOf(id, zone)
	if strategy == NoSpot {
		return q.OnDemand > 0 && o.hasOnDemand()
	}
	return q.Available && o.hasSpot(q.Capacity)
}

// stockWords are the values that DescribeAvailableResource takes. Source: DOC DescribeAvailableResource.
var stockWords = map[string][]string{
	"InstanceChargeType": {"PostPaid", "PrePaid"},
	"SpotStrategy":       {NoSpot, SpotAsPriceGo, SpotWithPriceLimit},
	"IoOptimized":        {"none", "optimized"},
	"NetworkCategory":    {"vpc", "classic"},
	"ResourceType":       {"instance", "disk", "reservedinstance", "ddh"},
}

// checkStockQuestion refuses values that are not documented, and spot instances that are paid for in advance.
func checkStockQuestion(r *protocol.Request, strategy string) error {
	for _, name := range slices.Sorted(maps.Keys(stockWords)) {
		if value := r.Get(name); value != "" && !slices.Contains(stockWords[name], value) {
			return protocol.Invalid(name, value)
		}
	}
	if strategy != NoSpot && r.Get("InstanceChargeType") == "PrePaid" {
		return protocol.Invalid("SpotStrategy", strategy)
	}
	_, err := r.Integer("SpotDuration", 1, 0, 6)
	return err
}
