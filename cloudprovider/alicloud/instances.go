package alicloud

import (
	"slices"
	"strings"
	"time"
)

// InstanceType is the published shape of an ECS instance type.
// Source: ECS 2014-05-26, DescribeInstanceTypes.
type InstanceType struct {
	ID        string
	VCPU      int
	MemoryGiB float64
	GPUs      int
	// GPUModel is Alibaba Cloud's GPUSpec, such as "NVIDIA A10" or "NVIDIA V100".
	GPUModel string
	// GPUMemoryGiB is per GPU; 0 if unknown.
	GPUMemoryGiB float64
	// Arch is "amd64" or "arm64".
	Arch string
}

// Instance is an ECS instance.
// Source: ECS 2014-05-26, DescribeInstances.
type Instance struct {
	ID           string
	Status       string
	InstanceType string
	ZoneID       string
	SpotStrategy string
	// LockReasons say why the instance is locked; see Recycling.
	LockReasons []string
	// InterruptionBehavior is what happens to a spot instance that is reclaimed: "Terminate" or InterruptionStop.
	// Scaling configurations allow only the first. An instance that was attached to a scaling group by hand may have either.
	// Source: SpotInterruptionBehavior, ECS and ESS (aliyun-openapi-meta).
	InterruptionBehavior string
	Created              time.Time
	Tags                 map[string]string
}

// Values of Instance.Status.
const (
	StatusPending  = "Pending"
	StatusStarting = "Starting"
	StatusRunning  = "Running"
)

// InterruptionStop is the InterruptionBehavior of a spot instance that is only stopped when it is reclaimed.
const InterruptionStop = "Stop"

// LockRecycling is the lock reason of a spot instance from five minutes before its release.
const LockRecycling = "Recycling"

// Recycling returns whether the instance is a spot instance that is about to be released. Its Status does not matter:
// Alibaba Cloud's sample of DescribeInstances shows one that is already Stopped. The comparison ignores case, since the
// documents disagree on the spelling.
func (i Instance) Recycling() bool {
	return slices.ContainsFunc(i.LockReasons, func(reason string) bool { return strings.EqualFold(reason, LockRecycling) })
}

// VSwitch is a subnet. It determines the zone of the instances that are launched into it.
// Source: VPC 2016-04-28, DescribeVSwitches.
type VSwitch struct {
	ID     string
	ZoneID string
	// FreeAddresses is AvailableIpAddressCount, as it was when it was asked.
	FreeAddresses int
}

// VCPUQuota is how many vCPUs the spot instances of an account may have in a region, and how many they have.
// Source: max-spot-instance-vcpu-count and used-spot-instance-vcpu-count of DescribeAccountAttributes, ECS 2014-05-26.
type VCPUQuota struct{ Max, Used int }
