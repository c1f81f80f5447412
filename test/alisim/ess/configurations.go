package ess

import (
	"maps"
	"slices"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

type configurationJSON struct {
	ScalingConfigurationId, ScalingConfigurationName, ScalingGroupId, LifecycleState, CreationTime string

	InstanceType             string
	InstanceTypes            map[string][]string
	ImageId, IoOptimized     string
	SecurityGroupId          string
	SystemDiskCategory       string
	SystemDiskSize           int
	UserData, RamRoleName    string
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

func newConfigurationJSON(g *scaling.Group) configurationJSON {
	j := configurationJSON{
		ScalingConfigurationId: g.ConfigID, ScalingConfigurationName: g.Name, ScalingGroupId: g.ID, LifecycleState: "Active",
		CreationTime: g.Created.UTC().Format(protocol.MinuteLayout),
		InstanceType: g.InstanceTypes[0], InstanceTypes: protocol.Wrap("InstanceType", g.InstanceTypes),
		ImageId: "aliyun_3_x64_20G_container_optimized", IoOptimized: "optimized", SecurityGroupId: "sg-sim",
		SystemDiskCategory: "cloud_essd", SystemDiskSize: g.SystemDiskGiB,
		UserData: scaling.UserData(g.ID), RamRoleName: "KubernetesWorkerRole-sim",
		SpotStrategy: g.SpotStrategy, SpotDuration: *g.SpotDuration, SpotInterruptionBehavior: "Terminate",
	}
	if g.NoUserData {
		j.UserData = ""
	}
	var limits []priceLimitJSON
	for _, id := range slices.Sorted(maps.Keys(g.SpotPriceLimits)) {
		limits = append(limits, priceLimitJSON{id, g.SpotPriceLimits[id]})
	}
	j.SpotPriceLimit = protocol.Wrap("SpotPriceModel", limits)
	var tags []configurationTagJSON
	for _, key := range slices.Sorted(maps.Keys(g.ConfigurationTags)) {
		tags = append(tags, configurationTagJSON{key, g.ConfigurationTags[key]})
	}
	j.Tags = protocol.Wrap("Tag", tags)
	return j
}

func (s groupActions) describeScalingConfigurations(r *protocol.Request) (protocol.Reply, error) {
	pages, err := r.Paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	ids, err := r.List("ScalingConfigurationId", 10)
	if err != nil {
		return nil, err
	}
	candidates := s.AllGroups().Items
	if id := r.Get("ScalingGroupId"); id != "" {
		candidates = groupsNamed(s.Engine, []string{id})
	}
	var found []*scaling.Group
	for _, g := range candidates {
		if g.ConfigID != "" && (len(ids) == 0 || slices.Contains(ids, g.ConfigID)) {
			found = append(found, g)
		}
	}
	var list []configurationJSON
	for _, g := range protocol.Page(found, pages) {
		list = append(list, newConfigurationJSON(g))
	}
	return protocol.Reply{
		"TotalCount": len(found), "PageNumber": pages.Number, "PageSize": pages.Size,
		"ScalingConfigurations": protocol.Wrap("ScalingConfiguration", list),
	}, nil
}
