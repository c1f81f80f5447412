// Package settings reads what the operator says about a pool: the tags of its scaling group, the tags of its scaling
// configuration, and the annotations of its ConfigMap.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/config"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// Targeting is the operator's choice of how a pool is asked for one particular offering.
type Targeting string

// The values of the tag api.TagTargeting.
const (
	// TargetingAuto lets the provider find out whether the scaling group honours a request that names an offering.
	TargetingAuto Targeting = "auto"
	// TargetingRequest names instance type, zone and purchase option in every request.
	TargetingRequest Targeting = "request"
	// TargetingWhole makes the pool one node group. A request then names only the number of instances.
	TargetingWhole Targeting = "whole"
)

// Purchase is the API by which a pool buys.
type Purchase string

// The values of the tag api.TagPurchase.
const (
	// PurchaseByScaling asks the scaling group for instances, by ScaleWithAdjustment.
	PurchaseByScaling Purchase = "scale-with-adjustment"
	// PurchaseByLaunch creates instances by RunInstances and puts them into the scaling group by AttachInstances.
	PurchaseByLaunch Purchase = "run-instances"
)

// Settings are the parsed tags of one pool. The zero value of a field means that no tag sets it.
type Settings struct {
	// MinSize and MaxSize bound the number of instances in the pool. Nil means the bounds of the scaling group.
	MinSize, MaxSize *int
	// PriceCap is per instance-hour, 0 for none.
	PriceCap float64
	// PriceCapPerGPU is per GPU-hour, 0 for none.
	PriceCapPerGPU float64
	// PriceCapByType is per instance-hour, by instance type. An entry of 0 is no cap.
	PriceCapByType map[string]float64
	// SpendCap is what the instances of the pool may cost in an hour together, 0 for no cap.
	SpendCap  float64
	Targeting Targeting
	Purchase  Purchase
	// SharedGPU says that the nodes offer the memory of their GPUs instead of whole GPUs.
	SharedGPU bool
	// BuyForCPUPods says that nodes with GPUs may be bought for pods that request none.
	BuyForCPUPods bool

	// Labels, Taints (sorted by key) and Resources are added to those that every ACK node has.
	Labels    map[string]string
	Taints    []apiv1.Taint
	Resources apiv1.ResourceList

	// Cooldown is how long scale-down leaves the pool alone after a scale-up. Nil means the value of the flag
	// --scale-down-delay-after-add, 0 means no delay.
	Cooldown *time.Duration

	// OnDemandAfter is how long pods wait before on-demand instances of the pool are bought for them.
	OnDemandAfter time.Duration
	// MoveToSpot says that jobs on on-demand instances of the pool are to move to spot ones where that pays, unless they say otherwise.
	MoveToSpot bool

	// ValueOfTime is what it is worth per instance-hour that a job is over sooner, 0 for the on-demand price. Nil means the value of the flag
	// --value-of-time.
	ValueOfTime *float64

	// The following override the flags of the same name for the nodes of this pool. Nil means the value of the flag.

	ScaleDownUnneededTime, ScaleDownUnreadyTime, MaxNodeProvisionTime *time.Duration
	// The thresholds are fractions of the allocatable resources, from 0 to 1.
	ScaleDownUtilizationThreshold, ScaleDownGPUUtilizationThreshold *float64
	IgnoreDaemonSetsUtilization                                     *bool
}

// TagError names the tag that does not parse, its value, and the reason.
type TagError struct{ Key, Value, Reason string }

func (e *TagError) Error() string {
	return fmt.Sprintf("tag %s=%q: %s", e.Key, e.Value, e.Reason)
}

// Merge returns the union of the layers. Later layers win.
func Merge(layers ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, layer := range layers {
		maps.Copy(merged, layer)
	}
	return merged
}

// ClusterTags returns those tags of a scaling group that name the cluster which it is for, in Cluster Autoscaler's convention
// (k8s.io/cluster-autoscaler/<cluster-name>).
func ClusterTags(tags map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range tags {
		if name, ok := strings.CutPrefix(key, api.TagCluster); ok && key != api.TagEnabled && !strings.Contains(name, "/") {
			found[key] = value
		}
	}
	return found
}

// Parse reads the tags of a pool. It ignores tags of other tools, but an unknown key under api.Prefix is an error, because
// it is a misspelt setting. The error joins one *TagError for each broken tag, sorted by key. The settings that did parse
// are returned with it, for display only.
func Parse(tags map[string]string) (Settings, error) {
	s := Settings{Targeting: TargetingAuto, Purchase: PurchaseByScaling}
	var errs []error
	for _, t := range knownTags(tags) {
		if err := t.read(&s, t.value); err != nil {
			errs = append(errs, &TagError{Key: t.key, Value: t.value, Reason: err.Error()})
		}
	}
	if s.MinSize != nil && s.MaxSize != nil && *s.MinSize > *s.MaxSize {
		errs = append(errs, &TagError{api.TagMinSize, tags[api.TagMinSize], fmt.Sprintf("is above the maximum, %d", *s.MaxSize)})
	}
	if s.Purchase == PurchaseByLaunch && s.Targeting == TargetingWhole {
		errs = append(errs, &TagError{api.TagTargeting, tags[api.TagTargeting], fmt.Sprintf("contradicts %s=%s, which buys one offering at a time", api.TagPurchase, PurchaseByLaunch)})
	}
	slices.SortFunc(s.Taints, func(a, b apiv1.Taint) int { return cmp.Compare(a.Key, b.Key) })
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.(*TagError).Key, b.(*TagError).Key) })
	return s, errors.Join(errs...)
}

// Options returns the autoscaling options of the pool's node groups: the defaults, overridden by the tags.
func (s Settings) Options(defaults config.NodeGroupAutoscalingOptions) *config.NodeGroupAutoscalingOptions {
	options := defaults
	override(&options.ScaleDownUnneededTime, s.ScaleDownUnneededTime)
	override(&options.ScaleDownUnreadyTime, s.ScaleDownUnreadyTime)
	override(&options.MaxNodeProvisionTime, s.MaxNodeProvisionTime)
	override(&options.ScaleDownUtilizationThreshold, s.ScaleDownUtilizationThreshold)
	override(&options.ScaleDownGpuUtilizationThreshold, s.ScaleDownGPUUtilizationThreshold)
	override(&options.IgnoreDaemonSetsUtilization, s.IgnoreDaemonSetsUtilization)
	// With ZeroOrMaxNodeScaling core would buy a pool up to its maximum and delete all of it after one failure.
	options.ZeroOrMaxNodeScaling = false
	return &options
}

func override[T any](option *T, setting *T) {
	if setting != nil {
		*option = *setting
	}
}

// CapFor returns the lowest of the price caps that apply to the instance type, per instance-hour; false where none applies.
func (s Settings) CapFor(t alicloud.InstanceType) (float64, bool) {
	lowest := math.Inf(1)
	for _, limit := range []float64{s.PriceCap, s.PriceCapByType[t.ID], s.PriceCapPerGPU * float64(t.GPUs)} {
		if limit > 0 {
			lowest = min(lowest, limit)
		}
	}
	if math.IsInf(lowest, 1) {
		return 0, false
	}
	return lowest, true
}
