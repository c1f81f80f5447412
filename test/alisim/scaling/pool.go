package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/nodes"
)

// Pool is a scaling group together with its active scaling configuration.
type Pool struct {
	// ID of the scaling group, such as "asg-t4". Required.
	ID string `json:"id"`
	// Name of the group; default the ID.
	Name    string `json:"name,omitempty"`
	MinSize int    `json:"minSize,omitempty"`
	MaxSize int    `json:"maxSize"`
	// DesiredCapacity, where given, makes ESS keep the group at that size by itself.
	DesiredCapacity *int `json:"desiredCapacity,omitempty"`
	// Instances is how many instances the group has when the world begins.
	Instances int `json:"instances,omitempty"`

	// InstanceTypes of the scaling configuration, in order of priority. Without any, the group has no configuration.
	InstanceTypes []string `json:"instanceTypes,omitempty"`
	// VSwitches by ID, in order of priority.
	VSwitches []string `json:"vswitches,omitempty"`
	// SpotStrategy is NoSpot, SpotAsPriceGo or SpotWithPriceLimit; default NoSpot.
	SpotStrategy string `json:"spotStrategy,omitempty"`
	// SpotDuration is the protected time of a new spot instance in market hours, 0 or 1; default 1.
	SpotDuration *int `json:"spotDuration,omitempty"`
	// SpotPriceLimits are CNY per instance-hour by type, for SpotWithPriceLimit.
	SpotPriceLimits map[string]float64 `json:"spotPriceLimits,omitempty"`
	// SystemDiskGiB is the size of the system disk; default 120.
	SystemDiskGiB int `json:"systemDiskGiB,omitempty"`

	// NoUserData leaves user data out of the scaling configuration. Instances of the group join the cluster all the same.
	NoUserData bool `json:"noUserData,omitempty"`

	// MultiAZPolicy chooses the offering where a request does not: PRIORITY and COMPOSABLE (vSwitches, then types, in their
	// order), BALANCE (zones evenly) or COST_OPTIMIZED (the lowest price per vCPU); default PRIORITY.
	MultiAZPolicy string `json:"multiAZPolicy,omitempty"`
	// CompensateWithOnDemand lets ESS buy pay-as-you-go where no spot instance can be had, whatever was asked for.
	// Default true, as at Alibaba, where it holds for COST_OPTIMIZED alone; see temper.Rules.PolicyDecides.
	CompensateWithOnDemand *bool `json:"compensateWithOnDemand,omitempty"`
	// OnDemandBaseCapacity is how many pay-as-you-go instances a COST_OPTIMIZED or COMPOSABLE group has to have before it
	// buys any other; default 0. OnDemandPercentageAboveBaseCapacity is the share of them among the rest; default 100
	// for COMPOSABLE, else 0.
	OnDemandBaseCapacity                *int `json:"onDemandBaseCapacity,omitempty"`
	OnDemandPercentageAboveBaseCapacity *int `json:"onDemandPercentageAboveBaseCapacity,omitempty"`
	// SpotInstanceRemedy lets ESS buy a replacement of its own as soon as a spot instance gets its notice.
	SpotInstanceRemedy bool `json:"spotInstanceRemedy,omitempty"`
	// SpotAutoReplaceOnDemand lets ESS buy spot instances for the pay-as-you-go instances of the group, and release those.
	SpotAutoReplaceOnDemand bool `json:"spotAutoReplaceOnDemand,omitempty"`
	// ScalingPolicy is release or recycle; default release. Where it is recycle RemoveInstances may stop instances, in
	// economical mode, instead of releasing them.
	ScalingPolicy string `json:"scalingPolicy,omitempty"`
	// HealthCheckType is ECS or NONE; default ECS.
	HealthCheckType string `json:"healthCheckType,omitempty"`
	// DefaultCooldown is in seconds; default 300. Nothing here waits for it.
	DefaultCooldown *int `json:"defaultCooldown,omitempty"`
	// LifecycleState is Active, Inactive or Deleting; default Active.
	LifecycleState string `json:"lifecycleState,omitempty"`
	// SystemSuspended is what ESS sets after seven days of failures: nothing in the group happens by itself any more,
	// and scaling is refused.
	SystemSuspended bool `json:"systemSuspended,omitempty"`
	// SuspendedProcesses are some of ScaleIn, ScaleOut, HealthCheck, AlarmNotification and ScheduledAction.
	SuspendedProcesses []string `json:"suspendedProcesses,omitempty"`

	// Tags of the scaling group.
	Tags map[string]string `json:"tags,omitempty"`
	// ConfigurationTags are the tags of the scaling configuration.
	ConfigurationTags map[string]string `json:"configurationTags,omitempty"`
	// IgnoreTargeting is World.IgnoreTargeting for this pool alone.
	IgnoreTargeting bool `json:"ignoreTargeting,omitempty"`
	// Node is what its instances' Nodes have beyond what the tags' node templates say.
	Node nodes.Template `json:"node,omitempty"`
}

// What a group does with instances that it has no use for.
const (
	ScalingPolicyRelease = "release"
	ScalingPolicyRecycle = "recycle"
)

// Policies of a group that has several offerings.
const (
	PolicyPriority   = "PRIORITY"
	PolicyBalance    = "BALANCE"
	PolicyCost       = "COST_OPTIMIZED"
	PolicyComposable = "COMPOSABLE"
)

func (p Pool) withDefaults() Pool {
	p.Name = cmp.Or(p.Name, p.ID)
	p.SpotStrategy = cmp.Or(p.SpotStrategy, ecs.NoSpot)
	p.SpotDuration = cmp.Or(p.SpotDuration, ptr.To(1))
	p.SystemDiskGiB = cmp.Or(p.SystemDiskGiB, 120)
	p.MultiAZPolicy = cmp.Or(p.MultiAZPolicy, PolicyPriority)
	p.CompensateWithOnDemand = cmp.Or(p.CompensateWithOnDemand, ptr.To(true))
	p.ScalingPolicy = cmp.Or(p.ScalingPolicy, ScalingPolicyRelease)
	p.HealthCheckType = cmp.Or(p.HealthCheckType, HealthCheckECS)
	p.DefaultCooldown = cmp.Or(p.DefaultCooldown, ptr.To(300))
	p.LifecycleState = cmp.Or(p.LifecycleState, GroupActive)
	return p
}

// Validate refuses what the real service would not store. A type or a vSwitch that does not exist is refused too,
// but a pool without any is not: such groups exist, and clients must cope.
func (p Pool) Validate(hasType, hasVSwitch func(id string) bool) error {
	switch {
	case p.ID == "":
		return errors.New("id is missing")
	case p.MinSize < 0 || p.MaxSize < p.MinSize:
		return fmt.Errorf("need 0 <= minSize <= maxSize, have %d and %d", p.MinSize, p.MaxSize)
	case p.DesiredCapacity != nil && (*p.DesiredCapacity < p.MinSize || *p.DesiredCapacity > p.MaxSize):
		return fmt.Errorf("desiredCapacity %d is not between minSize %d and maxSize %d", *p.DesiredCapacity, p.MinSize, p.MaxSize)
	case p.Instances > p.MaxSize:
		return fmt.Errorf("instances %d is above maxSize %d", p.Instances, p.MaxSize)
	case !slices.Contains([]string{"", ecs.NoSpot, ecs.SpotAsPriceGo, ecs.SpotWithPriceLimit}, p.SpotStrategy):
		return fmt.Errorf("unknown spotStrategy %q", p.SpotStrategy)
	case !slices.Contains([]string{"", PolicyPriority, PolicyBalance, PolicyCost, PolicyComposable}, p.MultiAZPolicy):
		return fmt.Errorf("unknown multiAZPolicy %q", p.MultiAZPolicy)
	case !slices.Contains([]string{"", ScalingPolicyRelease, ScalingPolicyRecycle}, p.ScalingPolicy):
		return fmt.Errorf("unknown scalingPolicy %q", p.ScalingPolicy)
	case !slices.Contains([]string{"", HealthCheckECS, HealthCheckNone}, p.HealthCheckType):
		return fmt.Errorf("unknown healthCheckType %q", p.HealthCheckType)
	case !slices.Contains([]string{"", GroupActive, GroupInactive, GroupDeleting}, p.LifecycleState):
		return fmt.Errorf("unknown lifecycleState %q", p.LifecycleState)
	case p.SpotDuration != nil && *p.SpotDuration != 0 && *p.SpotDuration != 1:
		return fmt.Errorf("spotDuration is 0 or 1, not %d", *p.SpotDuration)
	}
	for _, process := range p.SuspendedProcesses {
		if !slices.Contains(Processes, process) {
			return fmt.Errorf("unknown process %q", process)
		}
	}
	for _, id := range p.InstanceTypes {
		if !hasType(id) {
			return fmt.Errorf("unknown instance type %q; describe it under types", id)
		}
	}
	for _, id := range p.VSwitches {
		if !hasVSwitch(id) {
			return fmt.Errorf("unknown vSwitch %q", id)
		}
	}
	if _, err := nodes.ParseTaints(p.Node.Taints); err != nil {
		return err
	}
	return nil
}

// clone copies what the cloud may change.
func (p Pool) clone() Pool {
	p.Tags, p.ConfigurationTags = maps.Clone(p.Tags), maps.Clone(p.ConfigurationTags)
	p.SuspendedProcesses = slices.Clone(p.SuspendedProcesses)
	return p
}

// NodeTags are the tags that describe its nodes; the group's win over the configuration's.
func (p Pool) NodeTags() map[string]string {
	tags := map[string]string{}
	maps.Copy(tags, p.ConfigurationTags)
	maps.Copy(tags, p.Tags)
	return tags
}
