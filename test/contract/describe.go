package main

import (
	"context"
	"fmt"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// describeGroup returns a scaling group as the API shows it.
func (a *account) describeGroup(ctx context.Context, id string) (object, error) {
	body, err := a.ess(ctx, "DescribeScalingGroups", parameters{"ScalingGroupId.1": id})
	if err != nil {
		return nil, err
	}
	for _, g := range body.list("ScalingGroups") {
		if g.text("ScalingGroupId") == id {
			return g, nil
		}
	}
	return nil, fmt.Errorf("there is no scaling group %q in %s", id, a.region)
}

// describeConfiguration returns the group's active scaling configuration.
func (a *account) describeConfiguration(ctx context.Context) (object, error) {
	g, err := a.describeGroup(ctx, a.group)
	if err != nil {
		return nil, err
	}
	id := g.text("ActiveScalingConfigurationId")
	if id == "" {
		return nil, cannotTell("the group has no active scaling configuration")
	}
	body, err := a.ess(ctx, "DescribeScalingConfigurations", parameters{"ScalingConfigurationId.1": id})
	if err != nil {
		return nil, err
	}
	list := body.list("ScalingConfigurations")
	if len(list) == 0 {
		return nil, cannotTell("ESS does not list the group's active scaling configuration")
	}
	return list[0], nil
}

// typesOfGroup returns the instance types of the group's active scaling configuration, at least one.
func (a *account) typesOfGroup(ctx context.Context) ([]string, error) {
	c, err := a.describeConfiguration(ctx)
	if err != nil {
		return nil, err
	}
	if types := c.texts("InstanceTypes"); len(types) > 0 {
		return types, nil
	}
	if t := c.text("InstanceType"); t != "" {
		return []string{t}, nil
	}
	return nil, cannotTell("the group's scaling configuration names no instance type")
}

// activity returns an activity as the API shows it, nil where it does not list it.
func (a *account) activity(ctx context.Context, id string) (object, error) {
	body, err := a.ess(ctx, "DescribeScalingActivities", parameters{"ScalingActivityId.1": id})
	if err != nil {
		return nil, err
	}
	for _, found := range body.list("ScalingActivities") {
		if found.text("ScalingActivityId") == id {
			return found, nil
		}
	}
	return nil, nil
}

// members returns the instances that a group lists.
func (a *account) members(ctx context.Context, group string) ([]object, error) {
	body, err := a.ess(ctx, "DescribeScalingInstances", parameters{"ScalingGroupId": group, "PageSize": "50"})
	return body.list("ScalingInstances"), err
}

// member returns an instance of a group, nil where the group does not list it.
func (a *account) member(ctx context.Context, group, id string) (object, error) {
	list, err := a.members(ctx, group)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if i.text("InstanceId") == id {
			return i, nil
		}
	}
	return nil, nil
}

// vm returns an instance as ECS shows it, nil where ECS does not list it.
func (a *account) vm(ctx context.Context, id string) (object, error) {
	body, err := a.ecs(ctx, "DescribeInstances", parameters{"InstanceIds": jsonList([]string{id})})
	if list := body.list("Instances"); err == nil && len(list) > 0 {
		return list[0], nil
	}
	return nil, err
}

func instanceFilter(group string) alicloud.InstanceFilter {
	return alicloud.InstanceFilter{ScalingGroupID: group}
}

func sameInstance(id string) func(alicloud.ScalingInstance) bool {
	return func(i alicloud.ScalingInstance) bool { return i.ID == id }
}
