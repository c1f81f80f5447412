package pool

import (
	"fmt"
	"math"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

const (
	// maxLaunched is how many instances a pool has at most that buys by RunInstances. Instances are found by a tag then, and
	// DescribeInstances finds 1,000 by one ("Tag.N.Value" of DescribeInstances). The rest is for instances on their way out.
	maxLaunched = 900
	// launchTags is how many tags of ours an instance gets: those of its purchase, and that of its cluster.
	launchTags = 7
)

// setLaunch sets how instances are bought by RunInstances, if the pool does so, and why not if it cannot.
func (b *builder) setLaunch() {
	if b.pool.Settings.Purchase != settings.PurchaseByLaunch {
		return
	}
	b.pool.Launch = LaunchConfig{Settings: b.configuration.Launch,
		// The permission to create and to release instances can be bound to the tags of the cluster, as that to change scaling groups is.
		Tags: settings.Merge(b.configuration.Tags, settings.ClusterTags(b.Group.Tags))}
	if b.pool.Unbuyable == "" {
		b.pool.Unbuyable = b.whyNoLaunch()
	}
}

// whyNoLaunch says why the pool cannot buy by RunInstances; empty if it can.
func (b *builder) whyNoLaunch() string {
	switch {
	case len(b.configuration.Launch.Unsupported) > 0:
		return fmt.Sprintf("RunInstances cannot follow its scaling configuration, which has: %s", strings.Join(b.configuration.Launch.Unsupported, "; "))
	case len(b.configuration.Tags) > alicloud.MaxTags-launchTags:
		return fmt.Sprintf("its scaling configuration has %d tags: an instance has %d at most, and %d say what it was bought for",
			len(b.configuration.Tags), alicloud.MaxTags, launchTags)
	case b.withoutLimit() != "":
		return fmt.Sprintf("its scaling configuration has a price limit, but none for %s", b.withoutLimit())
	case b.Group.DesiredCapacity != nil:
		// Whether ESS removes instances again that are attached beyond the desired capacity is documented nowhere.
		return "its scaling group has a desired capacity, and instances are attached to it: call ModifyScalingGroup with DisableDesiredCapacity=true"
	}
	return ""
}

// LaunchRequest returns the request by which instances of the offering are bought, without how many, where and under which token.
func (p *Pool) LaunchRequest(offered *Offering) alicloud.LaunchRequest {
	request := alicloud.LaunchRequest{
		Settings: p.Launch.Settings, InstanceType: offered.InstanceType, ZoneID: offered.Zone, SpotStrategy: offered.SpotStrategy,
		SpotDuration: p.SpotDuration, Tags: p.Launch.Tags,
	}
	if offered.Spot && offered.PriceCap > 0 {
		request.SpotStrategy, request.SpotPriceLimit = alicloud.SpotWithPriceLimit, priceLimit(offered.PriceCap)
	}
	return request
}

// priceLimit returns the cap with the three decimals that RunInstances takes, rounded down. Source: SpotPriceLimit of RunInstances,
// ECS 2014-05-26.
func priceLimit(cap float64) float64 {
	const tolerance = 1e-6 // 0.7 * 3 is a little less than 2.1
	return math.Floor(cap*1000+tolerance) / 1000
}

// withoutLimit returns an instance type for which the scaling configuration has no price limit, though it is to have one. Empty if
// there is none.
func (b *builder) withoutLimit() string {
	if b.configuration.SpotStrategy != alicloud.SpotWithPriceLimit {
		return ""
	}
	for _, offered := range b.pool.Offerings {
		if offered.PriceCap == 0 {
			return offered.InstanceType
		}
	}
	return ""
}
