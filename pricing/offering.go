package pricing

// Offering is one way to buy an instance.
type Offering struct {
	InstanceType string
	// Zone may be "" or AnyZone where it is not known beforehand; then the dearest zone counts.
	Zone string
	// Spot is false for pay-as-you-go.
	Spot bool
}

// AnyZone stands for a zone that is not known beforehand, as AnyType does for an instance type.
const (
	AnyZone = "any"
	AnyType = "any"
)

// The values of the purchase-option label, both on nodes and in metrics.
const (
	purchaseSpot     = "spot"
	purchaseOnDemand = "on-demand"
)

// PurchaseOption is "spot" or "on-demand".
func (o Offering) PurchaseOption() string {
	if o.Spot {
		return purchaseSpot
	}
	return purchaseOnDemand
}

func (o Offering) anyZone() bool { return o.Zone == "" || o.Zone == AnyZone }
