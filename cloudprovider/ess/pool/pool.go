// Package pool turns a scaling group, its scaling configuration and its tags into a pool and its offerings.
//
// A scaling group spreads over instance types and zones, but Cluster Autoscaler assumes that all nodes of a node group are
// alike. So each offering of a pool, which is instance type × zone × purchase option, is a node group of its own.
package pool

import (
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/config/dynamic"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
	"gpu-spot-autoscaler/cloudprovider/ess/template"
	"gpu-spot-autoscaler/pricing"
)

// Targeting is how a pool is made to deliver one particular offering.
type Targeting string

const (
	// TargetSingle: the pool has one offering only, so a request need not name it.
	TargetSingle Targeting = "single"
	// TargetRequest: each request names instance type, zone and purchase option, and what is delivered is compared with it.
	TargetRequest Targeting = "request"
	// TargetWhole: the scaling group chooses what it delivers, and the pool is one node group.
	TargetWhole Targeting = "whole"
	// TargetLaunch: instances are bought by RunInstances, which takes one offering, and put into the scaling group after that.
	TargetLaunch Targeting = "run-instances"
)

// Offering is one way to buy in a pool, with all that is needed to buy it and to simulate its node. It is immutable.
type Offering struct {
	pricing.Offering
	Type         alicloud.InstanceType
	VSwitchIDs   []string
	SpotStrategy string
	// PriceCap is per instance-hour, 0 where there is none.
	PriceCap float64
	// Retired: the scaling configuration does not launch it any more, but instances of it are left.
	Retired bool
	// Template is the node that an instance would become. TemplateVersion changes whenever the template does.
	Template        *apiv1.Node
	TemplateVersion string
}

// HasGPUs returns whether the instance type has GPUs of any vendor, or the tags add some.
func (o *Offering) HasGPUs() bool {
	return o.Type.GPUs > 0 || template.OffersGPUs(o.Template)
}

// OfferingID returns the id of the pool's offering: <scaling-group-id>/<instance-type>/<zone>/<purchase option>. It is that of
// its node group too, unless the pool is one node group: see Pool.GroupID.
func OfferingID(poolID string, o pricing.Offering) string {
	return poolID + "/" + o.InstanceType + "/" + o.Zone + "/" + o.PurchaseOption()
}

// Pool is a scaling group in working order, as one refresh found it. It is immutable.
type Pool struct {
	ID        string
	Group     alicloud.ScalingGroup
	Settings  settings.Settings
	Targeting Targeting
	// Spot is whether the scaling configuration launches spot instances.
	Spot bool
	// SpotDuration is for how long a new spot instance is protected from being reclaimed.
	SpotDuration time.Duration
	// MinSize and MaxSize bound the number of instances that are not being reclaimed or removed. The maximum of the scaling
	// group also counts those.
	MinSize, MaxSize int
	// Unbuyable says why nothing can be bought now; empty where it can.
	Unbuyable string
	// Launch is how instances are bought if Targeting is TargetLaunch.
	Launch LaunchConfig
	// Offerings are what the scaling configuration launches, in order of instance type and zone.
	Offerings []*Offering
	// NodeGroups are by id: the offerings with the retired ones, or the one that stands for the whole pool.
	NodeGroups map[string]*Offering
}

// LaunchConfig is what all purchases by RunInstances in a pool have in common.
type LaunchConfig struct {
	Settings alicloud.LaunchSettings
	Tags     map[string]string
}

// GroupID returns the id of the pool's node group that holds the offering: that of the offering, or of the whole pool.
func (p *Pool) GroupID(o pricing.Offering) string {
	if p.Targeting == TargetWhole {
		return OfferingID(p.ID, p.wholeOffering())
	}
	return OfferingID(p.ID, o)
}

// wholeOffering stands for all offerings of a pool that cannot be targeted.
func (p *Pool) wholeOffering() pricing.Offering {
	return pricing.Offering{InstanceType: pricing.AnyType, Zone: pricing.AnyZone, Spot: p.Spot}
}

// BuysForCPUPods returns whether nodes of the offering may be bought for pods that request no GPU: no node that may be delivered
// has GPUs, or the pool's tags allow it.
func (p *Pool) BuysForCPUPods(o *Offering) bool {
	if p.Settings.BuyForCPUPods {
		return true
	}
	if p.Targeting != TargetWhole {
		return !o.HasGPUs()
	}
	for _, offered := range p.Offerings {
		if offered.HasGPUs() {
			return false
		}
	}
	return true
}

// MaxPods returns how many pods with these requests fit on an empty node of the offering that holds the most of them.
func (p *Pool) MaxPods(requests apiv1.ResourceList) int {
	most := 0
	for _, offered := range p.NodeGroups {
		most = max(most, template.MaxPods(offered.Template, requests))
	}
	for _, offered := range p.Offerings {
		most = max(most, template.MaxPods(offered.Template, requests))
	}
	return most
}

// OutOfOrder returns a copy of the pool that cannot be bought from, for the reason given.
func (p *Pool) OutOfOrder(why string) *Pool {
	kept := *p
	kept.Unbuyable = why
	return &kept
}

// Error says which pool cannot be built, and why.
type Error struct {
	Pool   string
	Reason problem.Reason
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("pool %s: %v", e.Pool, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

// Bounds are the minimum and maximum of the flag --nodes.
type Bounds struct{ Min, Max int }

// ParseBounds parses values of --nodes, each <min>:<max>:<scaling-group-id>. The error names the one that does not parse.
func ParseBounds(specs []string) (map[string]Bounds, error) {
	bounds := make(map[string]Bounds, len(specs))
	for _, text := range specs {
		spec, err := dynamic.SpecFromString(text, true)
		if err != nil {
			return nil, fmt.Errorf("node group spec %q, wanted min:max:<scaling-group-id>: %w", text, err)
		}
		bounds[spec.Name] = Bounds{spec.MinSize, spec.MaxSize}
	}
	return bounds, nil
}

// checkSharedGPUs refuses a pool whose nodes have several GPUs and share them by memory. A pod gets its memory on one of
// them ("the upper limit of the GPU resource requested by the user does not exceed one GPU": docs/designs of
// AliyunContainerService/gpushare-scheduler-extender), but a Node states the sum: two GPUs with 10 GiB left on each look
// like room for a pod of 20 GiB. Cluster Autoscaler would consider such a pod schedulable, and never buy for it.
func (p *Pool) checkSharedGPUs() error {
	for _, offered := range p.Offerings {
		if offered.Type.GPUs > 1 && template.Offers(offered.Template.Status.Allocatable, api.ResourceGPUMemory) {
			return fmt.Errorf("its nodes share GPUs by memory (%s), and a node of %s has %d GPUs: which pods fit cannot be told from "+
				"the sum of their memory. Share GPUs in pools of types with one GPU only, or hand out whole GPUs", api.ResourceGPUMemory, offered.Type.ID, offered.Type.GPUs)
		}
	}
	return nil
}
