package alicloud

import "time"

// Purchase options of an instance, as Alibaba Cloud spells its SpotStrategy.
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
	// LifecycleUnattached is not one of ESS: the instance runs, and is not in its scaling group yet. See ScalingInstance.Unattached.
	LifecycleUnattached = "Unattached"
)

// Status codes of a scaling activity.
const (
	ActivitySuccessful = "Successful"
	ActivityWarning    = "Warning"
	ActivityFailed     = "Failed"
	ActivityInProgress = "InProgress"
	ActivityRejected   = "Rejected"
)

// Values of MultiAZPolicy that change what is bought as spot.
const (
	MultiAZCostOptimized = "COST_OPTIMIZED"
	MultiAZComposable    = "COMPOSABLE"
)

// GroupFilter narrows a listing of scaling groups. The zero filter selects all groups of the region.
type GroupFilter struct {
	IDs []string
	// Tags must all be on the group. An empty value matches any value.
	Tags map[string]string
}

// InstanceFilter narrows a listing of scaling instances. The zero filter selects the instances of all groups of the region.
type InstanceFilter struct {
	ScalingGroupID string
	IDs            []string
}

// ScalingGroup is an ESS scaling group.
// Source: ESS 2014-08-28, DescribeScalingGroups.
type ScalingGroup struct {
	ID       string
	Name     string
	RegionID string

	MinSize, MaxSize int
	// DesiredCapacity is nil if the group has no desired capacity.
	DesiredCapacity *int
	// TotalCapacity counts every instance in the group, whatever its state.
	TotalCapacity int

	LifecycleState   string
	SystemSuspended  bool
	SuspendedProcess []string

	ActiveScalingConfigurationID string
	LaunchTemplateID             string

	VSwitchIDs    []string
	MultiAZPolicy string

	// CompensateWithOnDemand lets ESS buy pay-as-you-go instances if spot is sold out. Alibaba Cloud sets it by default. It
	// takes effect, as SpotInstanceRemedy does, only if MultiAZPolicy is COST_OPTIMIZED.
	// Source: doc comments of CreateScalingGroup, ESS 2022-02-22 (alibabacloud-csharp-sdk).
	CompensateWithOnDemand bool
	// SpotInstanceRemedy lets ESS itself buy a replacement when a spot instance is reclaimed.
	SpotInstanceRemedy bool
	// OnDemandBase is how many pay-as-you-go instances ESS buys before anything else. OnDemandPercentage (0 to 100) is the
	// share of the others that it buys pay-as-you-go, whatever the scaling configuration says. If MultiAZPolicy is
	// COMPOSABLE the default of the share is 100.
	// Source: OnDemandBaseCapacity, OnDemandPercentageAboveBaseCapacity and CapacityOptions, as above.
	OnDemandBase, OnDemandPercentage int
	// SpotAutoReplaceOnDemand lets ESS release pay-as-you-go instances and buy spot instances in their place.
	SpotAutoReplaceOnDemand bool

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
	// SpotPriceLimits are per instance-hour in the account's currency, by instance type.
	SpotPriceLimits map[string]float64
	// SystemDiskGiB is 0 if the configuration does not say.
	SystemDiskGiB int
	Tags          map[string]string
	Launch        LaunchSettings
}

// ScalingInstance is an instance of a scaling group as ESS knows it.
// Source: ESS 2014-08-28, DescribeScalingInstances.
type ScalingInstance struct {
	ID                string
	ScalingGroupID    string
	ScalingActivityID string
	LifecycleState    string
	InstanceType      string
	ZoneID            string
	SpotStrategy      string
	// Created is zero if ESS does not say.
	Created time.Time
	// Unattached: it was bought by RunInstances for the scaling group, and is not in it yet.
	Unattached bool
}

// Activity is a scaling activity. Failures for want of stock, price or quota are reported here and nowhere else.
// Source: ESS 2014-08-28, DescribeScalingActivities.
type Activity struct {
	ID             string
	ScalingGroupID string
	// Status is one of the Activity… constants.
	Status string
	// StatusDetail is all text of ESS about the activity, without repetitions.
	StatusDetail string
	// ErrorCode is empty if neither a field nor the text has one.
	ErrorCode    string
	ErrorMessage string
	// Metadata is what the caller of ScaleWithAdjustment attached.
	Metadata string
	// Adding is how many instances the activity is to add, by its description; 0 if that has no number.
	Adding int
	// CreatedCapacity is how many instances were created, CreatedInstances their ids. ESS may leave out either.
	CreatedCapacity  int
	CreatedInstances []string
	// FailedInstances were created and are being released again, because the activity is rolled back.
	// Source: ErrorMessages[].FailedInstanceIds (SDK v1.63.107); "Instance rollback resulting from a scaling activity
	// failure" in the Auto Scaling documentation.
	FailedInstances []string
	// Started and Ended are zero if unknown. ESS rounds them to the minute.
	Started, Ended time.Time
}

// Done returns whether the activity has ended.
func (a Activity) Done() bool { return a.Status != ActivityInProgress }

// ScaleRequest asks a scaling group for more instances.
type ScaleRequest struct {
	ScalingGroupID string
	// Delta is the number of instances to add, 1 to MaxScale.
	Delta int
	// ClientToken makes the call idempotent: 1 to 64 printable ASCII characters.
	ClientToken string
	// Metadata is attached to the activity.
	Metadata string
	// Sync starts the activity at once in a group with a desired capacity. Without it only the desired capacity is changed.
	// Source: SyncActivity, ScaleWithAdjustment, ESS 2014-08-28 (aliyun-openapi-meta).
	Sync bool
	// Serial leaves out ParallelTask, which asks for an activity in parallel to others. That parameter is in the SDK of
	// 2014-08-28 and, with one line, in the documentation of 2022-02-22 only.
	Serial bool
	// InstanceType, VSwitchIDs and SpotStrategy target one offering; empty fields do not. They are in the SDK but not in the
	// public documentation, so the caller has to compare what was delivered with the request.
	InstanceType string
	VSwitchIDs   []string
	SpotStrategy string
}

// Scaling is the answer to an accepted ScaleRequest.
type Scaling struct {
	// ActivityID is the activity that creates the instances. It may be empty if CapacityChange is set.
	ActivityID string
	// CapacityChange says that only the desired capacity of the group was raised. ESS adds the instances once it finds that
	// they are missing.
	// Source: ActivityType, ScaleWithAdjustment, ESS 2022-02-22 (doc comments of alibabacloud-csharp-sdk).
	CapacityChange bool
}

// Allocation is a part of what a purchase would bring, as ESS plans it.
type Allocation struct {
	InstanceType string
	ZoneID       string `json:"ZoneId"`
	SpotStrategy string
	Amount       int
}

// Plan is the answer to a request for the plan of a purchase.
type Plan struct {
	// Allocations are what ESS would buy, if Answered.
	Allocations []Allocation
	// Answered is false if the answer has no plan: the service does not know the mode, and has bought.
	Answered bool
	// Scaling is the purchase, if not Answered.
	Scaling
}

// RemoveRequest takes named instances out of a scaling group and releases them.
type RemoveRequest struct {
	ScalingGroupID string
	// InstanceIDs are 1 to MaxRemoveBatch ids.
	InstanceIDs []string
	ClientToken string
	// StopTimeout is how long ESS waits for an instance to stop before it releases it regardless, 30 to 240 seconds. If
	// it is 0 the setting of the scaling group holds. Without that setting ESS waits until the instance stops, and if one
	// does not stop the whole activity is rolled back and fails.
	// Source: doc comments of StopInstanceTimeout, RemoveInstances, ESS 2022-02-22 (alibabacloud-csharp-sdk).
	StopTimeout time.Duration
}

// MaxRemoveBatch is how many instances one RemoveInstances takes.
const MaxRemoveBatch = 20

// MaxScale is how many instances one ScaleWithAdjustment adds. Source: AdjustmentValue of QuantityChangeInCapacity, -1000 to 1000,
// on the page of ScaleWithAdjustment, ESS 2014-08-28.
const MaxScale = 1000
