package alicloud

// StockCategory is what ECS says of the stock of an instance type in a zone. It is a hint: what can be bought a purchase tells.
// Source: StatusCategory of DescribeAvailableResource, ECS 2014-05-26,
// https://www.alibabacloud.com/help/en/ecs/developer-reference/api-ecs-2014-05-26-describeavailableresource
type StockCategory string

// Categories, from the best to the worst.
const (
	WithStock StockCategory = "WithStock"
	// ClosedWithStock: there is some, but it is not going to be replenished.
	ClosedWithStock    StockCategory = "ClosedWithStock"
	WithoutStock       StockCategory = "WithoutStock"
	ClosedWithoutStock StockCategory = "ClosedWithoutStock"
)

// StockCategories are all of them.
var StockCategories = []StockCategory{WithStock, ClosedWithStock, WithoutStock, ClosedWithoutStock}

// Stock is what ECS says of an instance type in a zone.
type Stock struct {
	ZoneID   string
	Category StockCategory
}

// Strength is how well ESS expects an instance type to be had in a zone, by the health of its inventory and by what is in stock now. It is a
// hint: what can be bought a purchase tells.
// Source: ElasticStrength of ResourcePools, DescribeElasticStrength, doc comments of ESS 2022-02-22 (alibabacloud-csharp-sdk), and
// https://www.alibabacloud.com/help/en/auto-scaling/developer-reference/api-ess-2014-08-28-describeelasticstrength
type Strength string

// Strengths.
const (
	Strong Strength = "Strong"
	Medium Strength = "Medium"
	Weak   Strength = "Weak"
)

// Strengths are all of them, from the best to the worst.
var Strengths = []Strength{Strong, Medium, Weak}

// OfferingStrength is what ESS says of an instance type in a zone.
type OfferingStrength struct {
	InstanceType, ZoneID string
	Strength             Strength
}
