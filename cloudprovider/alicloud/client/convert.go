package client

import (
	"slices"
	"time"

	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// convert returns the items, each converted by one.
func convert[From, To any](from []From, one func(*From) To) []To {
	to := make([]To, len(from))
	for i := range from {
		to[i] = one(&from[i])
	}
	return to
}

// listOf returns the values as the SDK takes a list: nil if there are none.
func listOf(values []string) *[]string {
	if len(values) == 0 {
		return nil
	}
	values = slices.Clone(values)
	return &values
}

// timeFormats are the formats in replies. All times are UTC.
var timeFormats = []string{time.RFC3339, "2006-01-02T15:04Z", "2006-01-02T15:04:05", "2006-01-02 15:04:05"}

// parseTime returns the zero time for a text in no known format.
func parseTime(text string) time.Time {
	for _, format := range timeFormats {
		if t, err := time.Parse(format, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// tags returns the tags of a group, which are TagKey and TagValue, or of a configuration, which are Key and Value.
func tags(list []essapi.Tag) map[string]string {
	out := make(map[string]string, len(list))
	for _, t := range list {
		switch {
		case t.TagKey != "":
			out[t.TagKey] = t.TagValue
		case t.Key != "":
			out[t.Key] = t.Value
		}
	}
	return out
}

func scalingInstance(i *essapi.ScalingInstance) alicloud.ScalingInstance {
	created := i.CreationTime
	if created == "" {
		created = i.CreatedTime
	}
	return alicloud.ScalingInstance{
		ID: i.InstanceId, ScalingGroupID: i.ScalingGroupId, ScalingActivityID: i.ScalingActivityId,
		LifecycleState: i.LifecycleState,
		InstanceType:   i.InstanceType, ZoneID: i.ZoneId, SpotStrategy: i.SpotStrategy,
		Created: parseTime(created),
	}
}

func scalingConfiguration(g *essapi.ScalingConfigurationInDescribeScalingConfigurations) alicloud.ScalingConfiguration {
	out := alicloud.ScalingConfiguration{
		ID: g.ScalingConfigurationId, ScalingGroupID: g.ScalingGroupId,
		InstanceTypes: g.InstanceTypes.InstanceType,
		SpotStrategy:  g.SpotStrategy, SpotDuration: time.Duration(g.SpotDuration) * time.Hour,
		SystemDiskGiB: g.SystemDiskSize,
		Tags:          tags(g.Tags.Tag),
		Launch:        launchSettings(g),
	}
	if out.SpotStrategy == "" {
		out.SpotStrategy = alicloud.NoSpot
	}
	if len(out.InstanceTypes) == 0 && g.InstanceType != "" {
		out.InstanceTypes = []string{g.InstanceType}
	}
	if limits := g.SpotPriceLimit.SpotPriceModel; len(limits) > 0 {
		out.SpotPriceLimits = make(map[string]float64, len(limits))
		for _, l := range limits {
			out.SpotPriceLimits[l.InstanceType] = l.PriceLimit
		}
	}
	return out
}
