package ess

import (
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	costs "gpu-spot-autoscaler/pricing/ledger"
)

// Instances returns the instances of all pools that are paid for, and as of when; zero before the first refresh. One that is stopped in
// economical mode is not paid for.
// Source: "Economical mode" of ECS, which releases the computing resources, and Stopped in the lifecycle of instances in the ESS documentation.
func (v *View) Instances() ([]costs.Instance, time.Time) {
	last := v.store.Last()
	instances := make([]costs.Instance, 0, len(last.Instances))
	for id, instance := range last.Instances {
		if instance.LifecycleState == alicloud.LifecycleStopped {
			continue
		}
		offering := last.OfferingOf(instance)
		protected := time.Duration(0)
		if pool := last.Pools[instance.ScalingGroupID]; pool != nil {
			protected = pool.SpotDuration
		}
		instances = append(instances, costs.Instance{
			Protected: protected, ID: id, Pool: instance.ScalingGroupID, Offering: offering, GPUs: float64(last.Types[offering.InstanceType].GPUs),
			Created: instance.Created, Reclaiming: last.Loop.Reclaiming.Has(id), Lost: last.Loop.Lost.Has(id),
		})
	}
	return instances, last.Refreshed
}

// SpotPools returns the ids of the pools that buy spot instances, in order.
func (p *Provider) SpotPools() (ids []string) {
	for id, known := range p.store.Last().Pools {
		if known.Spot {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
