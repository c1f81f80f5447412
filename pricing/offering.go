package pricing

// Offering is one way to buy an instance.
type Offering struct {
	InstanceType string
	// Zone may be "" or AnyZone if it is not known beforehand. The price is then that of the most expensive zone.
	Zone string
	// Spot is false for pay-as-you-go.
	Spot bool
}

// AnyZone is the zone, and AnyType the instance type, of an offering where they are not known beforehand.
const (
	AnyZone = "any"
	AnyType = "any"
)

// The values of the purchase-option label, both on nodes and in metrics.
const (
	purchaseSpot     = "spot"
	purchaseOnDemand = "on-demand"
)

// PurchaseOption returns "spot" or "on-demand".
func (o Offering) PurchaseOption() string {
	if o.Spot {
		return purchaseSpot
	}
	return purchaseOnDemand
}

func (o Offering) anyZone() bool { return o.Zone == "" || o.Zone == AnyZone }
