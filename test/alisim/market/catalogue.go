package market

import (
	"cmp"
	"embed"
	"maps"
	"strings"
	"sync"
	"time"
)

//go:embed data/*.csv data/v100-9zone/*.csv
var data embed.FS

// Type is the published shape of a GPU instance type, and the range of its prices over all regions and zones of the
// snapshot. Prices are CNY per instance-hour and 0 where no price was published.
type Type struct {
	// ID is Alibaba's name, such as "ecs.gn7i-c8g1.2xlarge".
	ID        string
	VCPU      int
	MemoryGiB float64
	GPUs      int
	// GPUModel is the bare name: "T4", "V100", "A10", "A100".
	GPUModel string
	// GPUMemGiB is per GPU.
	GPUMemGiB float64
	// OnDemand is the price in cn-hangzhou or cn-beijing, else the lowest of any region.
	OnDemand         float64
	SpotMin, SpotMax float64
}

// Price is what a zone asked for one instance-hour of a type, in CNY.
type Price struct {
	// Spot is 0 where the type was not sold as spot.
	Spot float64
	// OnDemand is 0 where only the spot price was published.
	OnDemand float64
}

// Catalogue returns the GPU instance types by ID. The map is the caller's own.
func Catalogue() map[string]Type { return maps.Clone(catalogue()) }

// ZonePrice returns the price of a type in a zone on 9 October 2024; false where the zone did not list it.
func ZonePrice(instanceType, zone string) (Price, bool) {
	p, ok := zonePrices()[offering{instanceType, zone}]
	return p, ok
}

// OnDemandPrice returns the best published guess at a type's on-demand price, in CNY per instance-hour: that of the
// zone, else of its region in December 2024, else that of the catalogue. It is 0 where no price was ever published.
func OnDemandPrice(instanceType, zone string) float64 {
	return cmp.Or(
		zonePrices()[offering{instanceType, zone}].OnDemand,
		regionPrices()[offering{instanceType, regionOf(zone)}],
		catalogue()[instanceType].OnDemand,
	)
}

// offering is a type in a zone, or in a region.
type offering struct{ instanceType, place string }

// regionOf cuts the zone's letter off: "cn-beijing-k" and "us-east-1a" lie in cn-beijing and us-east-1.
func regionOf(zone string) string {
	return strings.TrimSuffix(strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz"), "-")
}

// Snapshot is the market as it stood on 9 October 2024, for ever: published prices, stock without bound.
type Snapshot struct{}

// Quote implements Market.
func (Snapshot) Quote(instanceType, zone string, _ time.Time) Quote {
	p := zonePrices()[offering{instanceType, zone}]
	return Quote{Capacity: Unlimited, Spot: p.Spot, OnDemand: p.OnDemand}.normalise()
}

// History implements Market.
func (s Snapshot) History(instanceType, zone string, from, to time.Time) []PricePoint {
	return hourly(s, instanceType, zone, from, to)
}

// NextChange implements Market: nothing ever changes.
func (Snapshot) NextChange(time.Time) (time.Time, bool) { return time.Time{}, false }

var catalogue = sync.OnceValue(func() map[string]Type {
	types := map[string]Type{}
	for row := range embedded("gpu_catalogue.csv") {
		t := Type{
			ID:        row.text("instance_type"),
			VCPU:      int(row.number("vcpu")),
			MemoryGiB: row.number("memory_gib"),
			GPUs:      int(row.number("gpu_count")),
			GPUModel:  row.text("gpu_model"),
			GPUMemGiB: row.number("gpu_mem_gib"),
			OnDemand:  cmp.Or(row.number("od_cny_cn_hangzhou_or_cn_beijing_2024-12"), row.number("od_cny_min")),
			SpotMin:   row.number("spot_cny_min_2024-10"),
			SpotMax:   row.number("spot_cny_max_2024-10"),
		}
		types[t.ID] = t
	}
	return types
})

var zonePrices = sync.OnceValue(func() map[offering]Price {
	prices := map[offering]Price{}
	for row := range embedded("gpu_prices_by_zone_2024-10-09.csv") {
		prices[offering{row.text("instance_type"), row.text("zone")}] = Price{
			Spot:     row.number("spot_cny_per_hour"),
			OnDemand: row.number("ondemand_cny_per_hour"),
		}
	}
	return prices
})

var regionPrices = sync.OnceValue(func() map[offering]float64 {
	prices := map[offering]float64{}
	for row := range embedded("gpu_ondemand_by_region_2024-12.csv") {
		prices[offering{row.text("instance_type"), row.text("region")}] = row.number("ondemand_cny_per_hour")
	}
	return prices
})
