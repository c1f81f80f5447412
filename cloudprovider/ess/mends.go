package ess

import (
	"cmp"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// mendOf is empty for problems whose message says what to do.
func mendOf(reason string) string {
	return cmp.Or(mends[reason], alicloud.Remedies[alicloud.Reason(reason)].Mend)
}

// mends say what to do about each problem of a pool; docs/operations.md says more.
var mends = map[string]string{
	"tags":                 "Correct the tag; it is read again in the next loop.",
	"configuration":        "Give the scaling group an active scaling configuration; launch templates are not supported.",
	"instance_type":        "Correct the instance types of the scaling configuration.",
	"vswitch":              "Give the scaling group a vSwitch that exists.",
	"shared_gpu":           "Take types with one GPU, or hand out whole GPUs.",
	"not_found":            "Correct --nodes, or --region.",
	"no_pools":             "Tag a scaling group, or correct --cluster-name, --nodes or --region.",
	"other_clusters":       "Leave the tag of one cluster only: each needs scaling groups of its own.",
	"other_autoscaler":     "Stop one of the two, or give each scaling groups of its own.",
	"ack_autoscaler":       "Turn off auto scaling of the node pool in ACK: its scaling mode is to be manual.",
	"left_out":             "Correct the scaling configuration, or the vSwitches of the scaling group.",
	"activities":           "See what DescribeScalingActivities answers, in the log.",
	"unbuyable":            "Resume the scaling group, or its process ScaleOut.",
	"stale_price":          "See what DescribeSpotPriceHistory and DescribePrice answer, in the log.",
	"congested":            "See what the scaling group is doing, in the list of its scaling activities.",
	"spot_instance_remedy": "Turn off SpotInstanceRemedy.",
	"standby":              "Put them back into service, or remove them, in ESS.",
	"stopped":              "Put them back into service, or remove them, in ESS.",

	"compensate_with_on_demand": "Turn off CompensateWithOnDemand.",
}
