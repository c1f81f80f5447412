package alisim

import (
	"maps"
	"slices"
)

type configurationJSON struct {
	ScalingConfigurationId, ScalingConfigurationName, ScalingGroupId, LifecycleState, CreationTime string

	InstanceType             string
	InstanceTypes            map[string][]string
	ImageId, IoOptimized     string
	SecurityGroupId          string
	SystemDiskCategory       string
	SystemDiskSize           int
	SpotStrategy             string
	SpotDuration             int
	SpotPriceLimit           map[string][]priceLimitJSON
	SpotInterruptionBehavior string
	Tags                     map[string][]configurationTagJSON
}

type priceLimitJSON struct {
	InstanceType string
	PriceLimit   float64
}

// configurationTagJSON names its fields otherwise than the tags of a scaling group.
type configurationTagJSON struct{ Key, Value string }

func (g *group) configurationJSON() configurationJSON {
	j := configurationJSON{
		ScalingConfigurationId: g.configID, ScalingConfigurationName: g.Name, ScalingGroupId: g.ID, LifecycleState: "Active",
		CreationTime: g.created.UTC().Format(minuteLayout),
		InstanceType: g.InstanceTypes[0], InstanceTypes: wrap("InstanceType", g.InstanceTypes),
		ImageId: "aliyun_3_x64_20G_container_optimized", IoOptimized: "optimized", SecurityGroupId: "sg-sim",
		SystemDiskCategory: "cloud_essd", SystemDiskSize: g.SystemDiskGiB,
		SpotStrategy: g.SpotStrategy, SpotDuration: *g.SpotDuration, SpotInterruptionBehavior: "Terminate",
	}
	var limits []priceLimitJSON
	for _, id := range slices.Sorted(maps.Keys(g.SpotPriceLimits)) {
		limits = append(limits, priceLimitJSON{id, g.SpotPriceLimits[id]})
	}
	j.SpotPriceLimit = wrap("SpotPriceModel", limits)
	var tags []configurationTagJSON
	for _, key := range slices.Sorted(maps.Keys(g.ConfigurationTags)) {
		tags = append(tags, configurationTagJSON{key, g.ConfigurationTags[key]})
	}
	j.Tags = wrap("Tag", tags)
	return j
}

func describeScalingConfigurations(c *cloud, r *request) (reply, error) {
	pages, err := r.paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	ids, err := r.list("ScalingConfigurationId", 10)
	if err != nil {
		return nil, err
	}
	candidates := c.groups.items
	if id := r.get("ScalingGroupId"); id != "" {
		candidates = c.groupsOf([]string{id})
	}
	var found []*group
	for _, g := range candidates {
		if g.configID != "" && (len(ids) == 0 || slices.Contains(ids, g.configID)) {
			found = append(found, g)
		}
	}
	var list []configurationJSON
	for _, g := range page(found, pages.number, pages.size) {
		list = append(list, g.configurationJSON())
	}
	return reply{
		"TotalCount": len(found), "PageNumber": pages.number, "PageSize": pages.size,
		"ScalingConfigurations": wrap("ScalingConfiguration", list),
	}, nil
}
