// Package problem names what can be wrong with a pool, says what to do about it, and reports it.
package problem

import (
	"cmp"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Reason is the kind of a problem: a label of metrics, and the key under which docs/operations.md explains it.
type Reason string

// The problems of a pool. Besides these, an alicloud.Reason is one where a call that changes the pool is refused.
const (
	// Tags: a tag does not parse.
	Tags Reason = "tags"
	// Configuration: there is no active scaling configuration.
	Configuration Reason = "configuration"
	// InstanceType: no instance type of the scaling configuration is known.
	InstanceType Reason = "instance_type"
	// VSwitch: no vSwitch of the scaling group exists.
	VSwitch Reason = "vswitch"
	// SharedGPU: nodes with several GPUs share them by memory.
	SharedGPU Reason = "shared_gpu"
	// LeftOut: some instance types or vSwitches are not known.
	LeftOut Reason = "left_out"

	// NotFound: the scaling group of --nodes does not exist.
	NotFound Reason = "not_found"
	// NoPools: no scaling group is tagged or named.
	NoPools Reason = "no_pools"
	// OtherClusters: the scaling group is tagged for several clusters.
	OtherClusters Reason = "other_clusters"
	// OtherAutoscaler: another gpu-spot-autoscaler buys in the scaling group.
	OtherAutoscaler Reason = "other_autoscaler"
	// ACKAutoscaler: ACK's autoscaler manages the scaling group too.
	ACKAutoscaler Reason = "ack_autoscaler"

	// Activities: the scaling activities cannot be read.
	Activities Reason = "activities"
	// Unbuyable: the scaling group or its process ScaleOut is suspended.
	Unbuyable Reason = "unbuyable"
	// Congested: the scaling group took no purchase for too long.
	Congested Reason = "congested"
	// Unattached: instances that RunInstances created cannot be put into the scaling group.
	Unattached Reason = "unattached"
	// Unlisted: what was launched for the pool cannot be listed.
	Unlisted Reason = "unlisted"
	// StalePrice: no recent price is known to compare a cap with.
	StalePrice Reason = "stale_price"
	// Standby and Stopped: instances hold room in the scaling group and run nothing.
	Standby Reason = "standby"
	Stopped Reason = "stopped"

	// The following are settings of the scaling group with which ESS buys by itself.

	DesiredCapacity        Reason = "desired_capacity"
	CompensateWithOnDemand Reason = "compensate_with_on_demand"
	SpotInstanceRemedy     Reason = "spot_instance_remedy"
	OnDemandBase           Reason = "on_demand_base"
	OnDemandPercentage     Reason = "on_demand_percentage"
	SpotAutoReplace        Reason = "spot_auto_replace"
)

// Fix says what to do about the problem. It is empty where the message of the problem says it.
func (r Reason) Fix() string {
	return cmp.Or(fixes[r], alicloud.Remedies[alicloud.Reason(r)].Fix)
}

// fixes are in the words of docs/operations.md.
var fixes = map[Reason]string{
	Tags:               "Correct the tag; it is read again in the next loop.",
	Configuration:      "Give the scaling group an active scaling configuration; launch templates are not supported.",
	InstanceType:       "Correct the instance types of the scaling configuration.",
	VSwitch:            "Give the scaling group a vSwitch that exists.",
	SharedGPU:          "Take types with one GPU, or hand out whole GPUs.",
	NotFound:           "Correct --nodes, or --region.",
	NoPools:            "Tag a scaling group, or correct --cluster-name, --nodes or --region.",
	OtherClusters:      "Leave the tag of one cluster only: each needs scaling groups of its own.",
	OtherAutoscaler:    "Stop one of the two, or give each scaling groups of its own.",
	ACKAutoscaler:      "Turn off auto scaling of the node pool in ACK: its scaling mode is to be manual.",
	LeftOut:            "Correct the scaling configuration, or the vSwitches of the scaling group.",
	Activities:         "See what DescribeScalingActivities answers, in the log.",
	Unbuyable:          "Resume the scaling group, or its process ScaleOut.",
	StalePrice:         "See what DescribeSpotPriceHistory and DescribePrice answer, in the log.",
	Congested:          "See what the scaling group is doing, in the list of its scaling activities.",
	SpotInstanceRemedy: "Turn off SpotInstanceRemedy.",
	Unlisted:           "See what DescribeInstances answers, in the log.",
	Unattached:         "See why ESS refuses AttachInstances; they serve meanwhile, and are given back when they are not needed.",
	Standby:            "Put them back into service, or remove them, in ESS.",
	Stopped:            "Put them back into service, or remove them, in ESS.",

	CompensateWithOnDemand: "Turn off CompensateWithOnDemand.",
}

// Key identifies a problem. Pool is empty for a problem of no particular pool.
type Key struct {
	Pool   string
	Reason Reason
}

// Set are the problems that were found in one refresh, with the cause of each.
type Set map[Key]string

// Add enters a problem. It replaces an earlier cause.
func (s Set) Add(pool string, reason Reason, cause string) { s[Key{pool, reason}] = cause }

// AddNew enters a problem unless it is there already.
func (s Set) AddNew(pool string, reason Reason, cause string) {
	if _, found := s[Key{pool, reason}]; !found {
		s.Add(pool, reason, cause)
	}
}
