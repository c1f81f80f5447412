package snapshot

import (
	"strings"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/template"
	"gpu-spot-autoscaler/pricing"
)

// Standing is what an instance counts as.
type Standing int

const (
	// Serving: it runs pods, or soon will.
	Serving Standing = iota
	// Removing: it is being removed, by this process or by anyone else.
	Removing
	// Reclaiming: it has a reclaim notice.
	Reclaiming
	// Standby and Stopped: it stays in its scaling group, costs money or takes up room there, and runs nothing.
	// Source: "Standby" and "Stopped" (economical mode) of the lifecycle of ECS instances in the ESS documentation.
	Standby
	Stopped
)

// StandingOf returns what the instance counts as now.
func (f *Facts) StandingOf(instance alicloud.ScalingInstance) Standing {
	switch {
	case f.IsLeaving(instance):
		return Removing
	case f.Loop.Reclaiming.Has(instance.ID):
		return Reclaiming
	case instance.LifecycleState == alicloud.LifecycleStandby:
		return Standby
	case instance.LifecycleState == alicloud.LifecycleStopped:
		return Stopped
	}
	return Serving
}

// IsLeaving returns whether the instance is being removed, by this process or by anyone else.
func (f *Facts) IsLeaving(instance alicloud.ScalingInstance) bool {
	return f.Removing.Has(instance.ID) || strings.HasPrefix(instance.LifecycleState, alicloud.LifecycleRemoving)
}

// IsKept returns whether somebody has told ESS to keep the instance as it is. RemoveInstances would remove it all the same.
// Source: SetInstancesProtection of the ESS documentation; it holds for activities of ESS itself.
func IsKept(instance alicloud.ScalingInstance) bool {
	if instance.Unattached {
		return false // ESS does not know it
	}
	switch instance.LifecycleState {
	case alicloud.LifecycleProtected, alicloud.LifecycleStandby, alicloud.LifecycleStopped:
		return true
	}
	return false
}

// IsIncomplete returns whether ESS lists the instance without all that makes its offering, as it may do at the beginning.
// (Neither that it does so nor that it does not is documented.)
func IsIncomplete(instance alicloud.ScalingInstance) bool {
	return instance.InstanceType == "" || instance.ZoneID == "" || instance.SpotStrategy == ""
}

// OfferingOf returns the offering that the instance was launched as.
func OfferingOf(instance alicloud.ScalingInstance) pricing.Offering {
	return pricing.Offering{InstanceType: instance.InstanceType, Zone: instance.ZoneID, Spot: template.IsSpot(instance.SpotStrategy)}
}

// Abbreviate names the first few of the instances.
func Abbreviate(ids []string) string {
	const most = 5
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return strings.Join(ids[:most], ", ") + ", …"
}
