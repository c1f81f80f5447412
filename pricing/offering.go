package pricing

import "gpu-spot-autoscaler/cloudprovider/api"

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

// PurchaseOption returns "spot" or "on-demand", as the label of a Node and metrics have it.
func (o Offering) PurchaseOption() string {
	if o.Spot {
		return api.PurchaseSpot
	}
	return api.PurchaseOnDemand
}

func (o Offering) anyZone() bool { return o.Zone == "" || o.Zone == AnyZone }
