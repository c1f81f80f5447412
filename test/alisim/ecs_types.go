package alisim

import (
	"fmt"
	"maps"
	"slices"

	"gpu-spot-autoscaler/test/alisim/market"
)

// Most instance types that a request names, and that a page has.
const (
	maxTypeIDs  = 10
	maxTypePage = 1600
)

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

func describeInstanceTypes(c *cloud, r *request) (reply, error) {
	ids, err := r.list("InstanceTypes", maxTypeIDs)
	if err != nil {
		return nil, err
	}
	size, err := r.integer("MaxResults", maxTypePage, 1, maxTypePage)
	if err != nil {
		return nil, err
	}
	from := 0
	if r.has("NextToken") {
		ordinal, err := parseToken(r.get("NextToken"))
		if err != nil {
			return nil, err
		}
		from = int(ordinal)
	}
	if len(ids) == 0 {
		ids = slices.Sorted(maps.Keys(c.types))
	}
	var list []instanceTypeJSON
	family := r.get("InstanceTypeFamily")
	for n := from; n < len(ids); n++ {
		t, known := c.types[ids[n]]
		if !known || family != "" && familyOf(t.ID) != family {
			continue
		}
		if len(list) == size {
			return reply{"NextToken": fmt.Sprintf("%016x", n), "InstanceTypes": wrap("InstanceType", list)}, nil
		}
		list = append(list, t.json())
	}
	return reply{"NextToken": "", "InstanceTypes": wrap("InstanceType", list)}, nil
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

// describeAvailableResource tells what is in stock. Types that a zone does not sell at all are left out.
func describeAvailableResource(c *cloud, r *request) (reply, error) {
	destination, err := r.required("DestinationResource")
	if err != nil {
		return nil, err
	}
	if destination != "InstanceType" {
		return nil, invalid("DestinationResource", destination)
	}
	strategy := orElse(r.get("SpotStrategy"), NoSpot)
	ids := []string{r.get("InstanceType")}
	if ids[0] == "" {
		ids = slices.Sorted(maps.Keys(c.types))
	}
	var zones []stockZoneJSON
	for _, zone := range c.zones(r.get("ZoneId")) {
		if z, sells := c.stockIn(zone, ids, strategy, r); sells {
			zones = append(zones, z)
		}
	}
	return reply{"AvailableZones": wrap("AvailableZone", zones)}, nil
}

func (c *cloud) stockIn(zone string, ids []string, strategy string, r *request) (stockZoneJSON, bool) {
	z := stockZoneJSON{RegionId: c.world.Region, ZoneId: zone, Status: "SoldOut", StatusCategory: withoutStock}
	var list []stockJSON
	for _, id := range ids {
		if c.market.Quote(id, zone, r.now) == (market.Quote{}) {
			continue
		}
		s := stockJSON{Value: id, Status: "SoldOut", StatusCategory: withoutStock}
		if c.inStock(id, zone, strategy, r) {
			s.Status, s.StatusCategory = "Available", withStock
			z.Status, z.StatusCategory = "Available", withStock
		}
		list = append(list, s)
	}
	z.AvailableResources = wrap("AvailableResource", []stockTypeJSON{{"InstanceType", wrap("SupportedResource", list)}})
	return z, len(list) > 0
}

func (c *cloud) inStock(id, zone, strategy string, r *request) bool {
	q, o := c.market.Quote(id, zone, r.now), c.offeringOf(id, zone)
	if strategy == NoSpot {
		return q.OnDemand > 0 && o.hasOnDemand()
	}
	return q.Available && o.hasSpot(q.Capacity)
}

// zones returns the one zone asked for, or all.
func (c *cloud) zones(asked string) []string {
	all := c.world.zones()
	if asked == "" {
		return all
	}
	return slices.DeleteFunc(all, func(zone string) bool { return zone != asked })
}
