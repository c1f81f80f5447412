package alicloud

import (
	"slices"
	"strings"
	"time"
)

// Purchase options of an instance, as Alibaba spells its SpotStrategy.
const (
	NoSpot             = "NoSpot"
	SpotAsPriceGo      = "SpotAsPriceGo"
	SpotWithPriceLimit = "SpotWithPriceLimit"
)

// Lifecycle states of a scaling instance that callers act upon.
const (
	LifecycleInService    = "InService"
	LifecyclePending      = "Pending"
	LifecyclePendingWait  = "Pending:Wait"
	LifecycleRemoving     = "Removing"
	LifecycleRemovingWait = "Removing:Wait"
	LifecycleProtected    = "Protected"
	LifecycleStandby      = "Standby"
	LifecycleStopped      = "Stopped"
)

// Status codes of a scaling activity.
const (
	ActivitySuccessful = "Successful"
	ActivityWarning    = "Warning"
	ActivityFailed     = "Failed"
	ActivityInProgress = "InProgress"
	ActivityRejected   = "Rejected"
)

// Values of MultiAZPolicy with rules of their own on what is bought as spot.
const (
	MultiAZCostOptimized = "COST_OPTIMIZED"
	MultiAZComposable    = "COMPOSABLE"
)

// ScalingGroup is an ESS scaling group.
// Source: ESS 2014-08-28, DescribeScalingGroups.
type ScalingGroup struct {
	ID       string
	Name     string
	RegionID string

	MinSize, MaxSize int
	// DesiredCapacity is nil where the group has no desired capacity.
	DesiredCapacity *int
	// TotalCapacity counts every instance in the group, whatever its state.
	TotalCapacity int

	LifecycleState   string
	SystemSuspended  bool
	SuspendedProcess []string

	ActiveScalingConfigurationID string
	LaunchTemplateID             string
	LaunchTemplateVersion        string
	// LaunchTemplateTypes are the instance types that override the launch template's own.
	LaunchTemplateTypes []string

	VSwitchIDs    []string
	MultiAZPolicy string

	// CompensateWithOnDemand lets ESS buy pay-as-you-go where spot is out. It defaults to true at Alibaba, and takes effect,
	// as SpotInstanceRemedy does, only where MultiAZPolicy is COST_OPTIMIZED.
	// Source: doc comments of CreateScalingGroup, ESS 2022-02-22 (alibabacloud-csharp-sdk).
	CompensateWithOnDemand bool
	// SpotInstanceRemedy lets ESS buy a replacement of its own when a spot instance is reclaimed.
	SpotInstanceRemedy bool
	// OnDemandBase is how many pay-as-you-go instances ESS buys before anything else, OnDemandPercentage (0 to 100) the
	// part of the others that it buys pay-as-you-go, whatever the scaling configuration says. Where MultiAZPolicy is
	// COMPOSABLE and nothing is said, the part is 100.
	// Source: OnDemandBaseCapacity, OnDemandPercentageAboveBaseCapacity and CapacityOptions, as above.
	OnDemandBase, OnDemandPercentage int
	// SpotAutoReplaceOnDemand lets ESS release pay-as-you-go instances and buy spot in their place.
	SpotAutoReplaceOnDemand bool
	HealthCheckType         string
	DefaultCooldown         time.Duration

	Tags map[string]string
}

// ScalingConfiguration says what an ESS scaling group launches.
// Source: ESS 2014-08-28, DescribeScalingConfigurations.
type ScalingConfiguration struct {
	ID             string
	ScalingGroupID string
	InstanceTypes  []string
	// SpotStrategy is NoSpot, SpotAsPriceGo or SpotWithPriceLimit.
	SpotStrategy string
	SpotDuration time.Duration
	// SpotPriceLimits are in CNY (or the account's currency) per instance-hour, by instance type.
	SpotPriceLimits map[string]float64
	// SystemDiskGiB is 0 where the configuration does not say.
	SystemDiskGiB int
	Tags          map[string]string
}

// ScalingInstance is an instance of a scaling group as ESS knows it.
// Source: ESS 2014-08-28, DescribeScalingInstances.
type ScalingInstance struct {
	ID                string
	ScalingGroupID    string
	ScalingActivityID string
	LifecycleState    string
	HealthStatus      string
	InstanceType      string
	ZoneID            string
	SpotStrategy      string
	// Created is zero where ESS gave none.
	Created time.Time
}

// Activity is a scaling activity: the only place where stock, price and quota failures are reported.
// Source: ESS 2014-08-28, DescribeScalingActivities.
type Activity struct {
	ID             string
	ScalingGroupID string
	// Status is one of the Activity… constants.
	Status string
	// StatusDetail is all that ESS says in words, repetitions left out.
	StatusDetail string
	// ErrorCode is empty where neither a field nor the text has one.
	ErrorCode    string
	ErrorMessage string
	// Metadata is what the caller of ScaleWithAdjustment attached.
	Metadata string
	// Adding is how many instances it was to add, going by its description; 0 where that does not say.
	Adding int
	// CreatedCapacity is how many it created, CreatedInstances which; either may be left out.
	CreatedCapacity  int
	CreatedInstances []string
	// FailedInstances were created and are rolled back: they are being released again.
	// Source: ErrorMessages[].FailedInstanceIds (SDK v1.63.107); "Instance rollback resulting from a scaling activity
	// failure" in the Auto Scaling documentation.
	FailedInstances []string
	// Started and Ended are zero where unknown. ESS tells them to the minute.
	Started, Ended time.Time
}

// Done says whether the activity will not change any more.
func (a Activity) Done() bool { return a.Status != ActivityInProgress }

// ScaleRequest asks a scaling group for more instances.
type ScaleRequest struct {
	ScalingGroupID string
	// Delta is the number of instances to add, 1 to 1000.
	Delta int
	// ClientToken makes the call idempotent: at most 64 ASCII characters. Required.
	ClientToken string
	// Metadata comes back in the activity.
	Metadata string
	// Sync has the activity begin at once in a group with a desired capacity, where otherwise only that number is changed.
	// Source: SyncActivity, ScaleWithAdjustment, ESS 2014-08-28 (aliyun-openapi-meta).
	Sync bool
	// Serial leaves out ParallelTask, which asks for an activity beside others. That is in the SDK of 2014-08-28 and, with
	// one line, in the documentation of 2022-02-22 only.
	Serial bool
	// InstanceType, VSwitchIDs and SpotStrategy target one offering. They are in the SDK but not in the public
	// documentation: the caller has to compare what came with what was asked. Empty means not targeted.
	InstanceType string
	VSwitchIDs   []string
	SpotStrategy string
}

// Scaling is the answer to an accepted ScaleRequest.
type Scaling struct {
	// ActivityID is of the activity that brings the instances. It may be empty where CapacityChange.
	ActivityID string
	// CapacityChange: the group has a desired capacity, and nothing more was done than to raise it. ESS adds instances
	// when it finds that they are missing.
	// Source: ActivityType, ScaleWithAdjustment, ESS 2022-02-22 (doc comments of alibabacloud-csharp-sdk).
	CapacityChange bool
}

// RemoveRequest takes named instances out of a scaling group and releases them.
type RemoveRequest struct {
	ScalingGroupID string
	// InstanceIDs are 1 to MaxRemoveBatch.
	InstanceIDs []string
	ClientToken string
	// StopTimeout is how long ESS waits for an instance to stop before it goes on regardless, 30 to 240 seconds. Where it
	// is 0 the scaling group's own setting holds; without that ESS waits until the instance stops, and where one does not
	// stop the whole activity is rolled back and fails.
	// Source: doc comments of StopInstanceTimeout, RemoveInstances, ESS 2022-02-22 (alibabacloud-csharp-sdk).
	StopTimeout time.Duration
}

// MaxRemoveBatch is how many instances one RemoveInstances takes.
const MaxRemoveBatch = 20

// InstanceType is the published shape of an ECS instance type.
// Source: ECS 2014-05-26, DescribeInstanceTypes.
type InstanceType struct {
	ID        string
	VCPU      int
	MemoryGiB float64
	GPUs      int
	// GPUModel is Alibaba's GPUSpec, such as "NVIDIA A10" or "NVIDIA V100".
	GPUModel string
	// GPUMemoryGiB is per GPU; 0 where unknown.
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
	// InterruptionBehavior is what happens to a spot instance that is reclaimed: InterruptionTerminate, or InterruptionStop.
	// Scaling configurations know the first only; an instance that was attached to a scaling group by hand may have the other.
	// Source: SpotInterruptionBehavior, ECS and ESS (aliyun-openapi-meta).
	InterruptionBehavior string
	Created              time.Time
}

// What happens to a spot instance that is reclaimed.
const (
	InterruptionTerminate = "Terminate"
	InterruptionStop      = "Stop"
)

// LockRecycling is the reason for which a spot instance is locked from five minutes before it is released.
const LockRecycling = "Recycling"

// Recycling says whether the instance is a spot instance that is about to be released, whatever its Status: Alibaba Cloud's
// own sample of DescribeInstances shows one that is Stopped already. The reason is compared without case, as the documents
// do not agree on it.
func (i Instance) Recycling() bool {
	return slices.ContainsFunc(i.LockReasons, func(reason string) bool { return strings.EqualFold(reason, LockRecycling) })
}

// VSwitch is a subnet; it fixes the zone of what is launched into it.
// Source: VPC 2016-04-28, DescribeVSwitches.
type VSwitch struct {
	ID          string
	ZoneID      string
	AvailableIP int
}

// SpotPrice is one point of the price history of a type in a zone, per instance-hour.
// Source: ECS 2014-05-26, DescribeSpotPriceHistory.
type SpotPrice struct {
	ZoneID string
	// Spot and OnDemand are in the account's currency per instance-hour.
	Spot, OnDemand float64
	Time           time.Time
}

// SpotAdvice is Alibaba's own hint on one type in one zone.
// Source: ECS 2014-05-26, DescribeSpotAdvice.
type SpotAdvice struct {
	ZoneID       string
	InstanceType string
	// InterruptionRate is Alibaba's bucket, such as "0-3" per cent.
	InterruptionRate string
	// Discount is the average spot price as a fraction of the on-demand price, 0 to 1.
	Discount float64
}

// Stock is whether a type can be had in a zone.
// Source: ECS 2014-05-26, DescribeAvailableResource.
type Stock struct {
	ZoneID       string
	InstanceType string
	// Category is WithStock, ClosedWithStock or WithoutStock.
	Category string
}
