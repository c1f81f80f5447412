package market

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
func Catalogue() map[string]Type { panic("not yet") }

// ZonePrice returns the price of a type in a zone on 9 October 2024; false where the zone did not list it.
func ZonePrice(instanceType, zone string) (Price, bool) { panic("not yet") }
