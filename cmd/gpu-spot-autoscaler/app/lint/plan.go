package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

// Types of resources of Terraform's provider for Alibaba Cloud.
const (
	terraformGroup         = "alicloud_ess_scaling_group"
	terraformConfiguration = "alicloud_ess_scaling_configuration"
)

// module is a module of a plan. Source: "Values Representation" of Terraform's JSON output format
// (developer.hashicorp.com/terraform/internals/json-format).
type module struct {
	Resources []struct {
		Address, Type string
		Values        json.RawMessage
	}
	ChildModules []module `json:"child_modules"`
}

// group is what a scaling group has in a plan. The attributes are those of website/docs/r/ess_scaling_group.html.markdown of
// aliyun/terraform-provider-alicloud (81c43b6727a0).
type group struct {
	Tags               map[string]string
	DesiredCapacity    *int   `json:"desired_capacity"`
	MultiAZPolicy      string `json:"multi_az_policy"`
	SpotInstanceRemedy bool   `json:"spot_instance_remedy"`
	// CompensateWithOnDemand is true at Alibaba Cloud if it is not given.
	CompensateWithOnDemand  *bool  `json:"compensate_with_on_demand"`
	OnDemandBase            int    `json:"on_demand_base_capacity"`
	OnDemandPercentage      int    `json:"on_demand_percentage_above_base_capacity"`
	SpotAutoReplaceOnDemand bool   `json:"capacity_options_spot_auto_replace_on_demand"`
	LaunchTemplateID        string `json:"launch_template_id"`
}

// configuration is what a scaling configuration has in a plan: ess_scaling_configuration.html.markdown, as above.
type configuration struct {
	Tags         map[string]string
	SpotStrategy string `json:"spot_strategy"`
}

// attributes are the attributes of a scaling group that are a problem of a pool when it is built.
var attributes = map[problem.Reason]string{
	problem.DesiredCapacity:        "desired_capacity",
	problem.CompensateWithOnDemand: "compensate_with_on_demand",
	problem.SpotInstanceRemedy:     "spot_instance_remedy",
	problem.OnDemandBase:           "on_demand_base_capacity",
	problem.OnDemandPercentage:     "on_demand_percentage_above_base_capacity",
	problem.SpotAutoReplace:        "capacity_options_spot_auto_replace_on_demand",
}

// plan checks the scaling groups and scaling configurations that a plan makes or leaves.
func plan(file string, text []byte) ([]Finding, error) {
	var content struct {
		PlannedValues struct {
			RootModule module `json:"root_module"`
		} `json:"planned_values"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("it is no plan of Terraform: %w", err)
	}
	return content.PlannedValues.RootModule.check(file)
}

func (m module) check(file string) (found []Finding, err error) {
	spot, err := m.mayBeSpot()
	if err != nil {
		return nil, err
	}
	for _, resource := range m.Resources {
		var below []Finding
		switch resource.Type {
		case terraformGroup:
			below, err = checkGroup(file, resource.Address, resource.Values, spot)
		case terraformConfiguration:
			var c configuration
			if err = json.Unmarshal(resource.Values, &c); err == nil {
				below = Tags(file, resource.Address, c.Tags, false)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", resource.Address, err)
		}
		found = append(found, below...)
	}
	for _, child := range m.ChildModules {
		below, err := child.check(file)
		if err != nil {
			return nil, err
		}
		found = append(found, below...)
	}
	return found, nil
}

// mayBeSpot returns whether scaling groups of the module may buy spot instances: unless it has scaling configurations, none of which is
// for spot. Which scaling group a scaling configuration is for, a plan does not say before both exist.
func (m module) mayBeSpot() (bool, error) {
	none := true
	for _, resource := range m.Resources {
		if resource.Type != terraformConfiguration {
			continue
		}
		var c configuration
		if err := json.Unmarshal(resource.Values, &c); err != nil {
			return false, fmt.Errorf("%s: %w", resource.Address, err)
		}
		if c.SpotStrategy != "" && c.SpotStrategy != alicloud.NoSpot {
			return true, nil
		}
		none = false
	}
	return none, nil
}

// checkGroup checks the tags of a scaling group, and its other settings if it is tagged for a cluster.
func checkGroup(file, address string, values []byte, spot bool) ([]Finding, error) {
	var g group
	if err := json.Unmarshal(values, &g); err != nil {
		return nil, err
	}
	found := Tags(file, address, g.Tags, true)
	if len(settings.ClusterTags(g.Tags)) == 0 {
		return found, nil
	}
	if g.LaunchTemplateID != "" {
		found = append(found, Finding{file, address, "launch_template_id", problem.Configuration.Fix()})
	}
	described := alicloud.ScalingGroup{
		DesiredCapacity: g.DesiredCapacity, MultiAZPolicy: g.MultiAZPolicy, SpotInstanceRemedy: g.SpotInstanceRemedy,
		CompensateWithOnDemand: ptr.Deref(g.CompensateWithOnDemand, true), SpotAutoReplaceOnDemand: g.SpotAutoReplaceOnDemand,
		OnDemandBase: g.OnDemandBase, OnDemandPercentage: g.OnDemandPercentage,
	}
	hazards := (&pool.Pool{Group: described, Spot: spot}).Hazards()
	for _, reason := range slices.Sorted(maps.Keys(hazards)) {
		found = append(found, Finding{file, address, attributes[reason], hazards[reason]})
	}
	return found, nil
}
