package ess

import (
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Purchase is how an instance is bought.
type Purchase string

// The purchase options.
const (
	PurchaseSpot     Purchase = "spot"
	PurchaseOnDemand Purchase = "on-demand"
)

// PurchaseOf is the purchase option of a SpotStrategy; empty and NoSpot are on-demand.
func PurchaseOf(spotStrategy string) Purchase {
	if spotStrategy == "" || spotStrategy == alicloud.NoSpot {
		return PurchaseOnDemand
	}
	return PurchaseSpot
}

// TemplateSpec is what a node of an offering will be made of.
type TemplateSpec struct {
	GroupID, PoolID, Region, Zone string
	Type                          alicloud.InstanceType
	Purchase                      Purchase
	SpotStrategy                  string
	SystemDiskGiB                 int
	Settings                      Settings
}

// BuildTemplate makes the Node that an instance of the offering would register.
func BuildTemplate(spec TemplateSpec) *apiv1.Node { return &apiv1.Node{} }
