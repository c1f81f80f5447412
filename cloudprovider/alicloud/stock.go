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
