package ess

import (
	"fmt"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/config"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Targeting is how a pool is asked for one particular offering.
type Targeting string

// The ways a pool can be targeted.
const (
	// TargetingAuto finds out by itself whether the pool honours a targeted request.
	TargetingAuto Targeting = "auto"
	// TargetingRequest names type, zone and purchase option in every request.
	TargetingRequest Targeting = "request"
	// TargetingWhole makes the pool one node group that cannot be targeted.
	TargetingWhole Targeting = "whole"
)

// TagError names the tag that does not parse.
type TagError struct{ Key, Value, Reason string }

// Error names key, value and reason.
func (e *TagError) Error() string {
	return fmt.Sprintf("tag %s=%q: %s", e.Key, e.Value, e.Reason)
}

// Settings are what the tags of a pool say about it.
type Settings struct {
	// MinSize and MaxSize bound the instances of the pool; nil leaves it to the scaling group's own bounds.
	MinSize, MaxSize *int
	// PriceCap is per instance-hour, 0 = none.
	PriceCap float64
	// PriceCapPerGPU is per GPU-hour, 0 = none.
	PriceCapPerGPU float64
	// PriceCapByType is per instance-hour, by instance type.
	PriceCapByType map[string]float64
	// Cooldown is how long after a scale-up the pool is not scaled down.
	Cooldown  time.Duration
	Targeting Targeting
	// SharedGPU makes the nodes offer GPU memory instead of whole GPUs.
	SharedGPU bool
	Labels    map[string]string
	Taints    []apiv1.Taint
	Resources apiv1.ResourceList
}

// ParseSettings reads the tags of a pool.
func ParseSettings(tags map[string]string) (Settings, error) {
	return Settings{Targeting: TargetingAuto}, nil
}

// MergeTags lays tag maps over each other; later layers win.
func MergeTags(layers ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, layer := range layers {
		for k, v := range layer {
			merged[k] = v
		}
	}
	return merged
}

// Options is what the core should use for the pool's node groups.
func (s Settings) Options(defaults config.NodeGroupAutoscalingOptions) *config.NodeGroupAutoscalingOptions {
	return &defaults
}

// CapFor is the tightest of the price caps that apply to the type, per instance-hour.
func (s Settings) CapFor(t alicloud.InstanceType) (float64, bool) { return 0, false }
