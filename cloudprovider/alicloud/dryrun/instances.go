package dryrun

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Prefixes of the ids that are made up. Ids of Alibaba Cloud have no word in them.
const (
	instancePrefix = "i-dryrun-"
	activityPrefix = "asa-dryrun-"
)

func isVirtual(id string) bool {
	return strings.HasPrefix(id, instancePrefix) || strings.HasPrefix(id, activityPrefix)
}

// instance is an instance that would have been bought.
type instance struct {
	alicloud.ScalingInstance
	tags map[string]string
}

// buy makes up instances.
func (m *memory) buy(count int, like instance) (ids []string) {
	for range count {
		like.ID, like.Created = instancePrefix+uuid.NewString(), m.clock.Now()
		m.bought[like.ID] = like
		ids = append(ids, like.ID)
	}
	return ids
}

// virtual returns the instances that would have been bought, by id.
func (m *memory) virtual() []instance {
	m.forget()
	return slices.SortedFunc(maps.Values(m.bought), func(a, b instance) int { return cmp.Compare(a.ID, b.ID) })
}

// ecs returns the instance as ECS would list it.
func (i instance) ecs() alicloud.Instance {
	return alicloud.Instance{
		ID: i.ID, Status: alicloud.StatusRunning, InstanceType: i.InstanceType, ZoneID: i.ZoneID, SpotStrategy: i.SpotStrategy, Created: i.Created, Tags: i.tags,
	}
}

// ScalingGroups returns the groups with what would have been bought in them.
func (c *Cloud) ScalingGroups(ctx context.Context, filter alicloud.GroupFilter) ([]alicloud.ScalingGroup, error) {
	groups, err := c.Reads.ScalingGroups(ctx, filter)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	added := map[string]int{}
	for _, each := range c.memory.virtual() {
		if !each.Unattached {
			added[each.ScalingGroupID]++
		}
	}
	for i := range groups {
		c.memory.groups[groups[i].ID] = groups[i]
		groups[i].TotalCapacity += added[groups[i].ID]
	}
	return groups, nil
}

// ScalingInstances returns real and virtual instances. Those that would have been removed are being removed.
func (c *Cloud) ScalingInstances(ctx context.Context, filter alicloud.InstanceFilter) (found []alicloud.ScalingInstance, err error) {
	ours, others := split(filter.IDs)
	if len(filter.IDs) == 0 || len(others) > 0 {
		asked := filter
		asked.IDs = others
		if found, err = c.Reads.ScalingInstances(ctx, asked); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	virtual := c.memory.virtual()
	for i := range found {
		if _, removed := c.memory.removed[found[i].ID]; removed {
			found[i].LifecycleState = alicloud.LifecycleRemoving
		}
	}
	for _, each := range virtual {
		inGroup := !each.Unattached && (filter.ScalingGroupID == "" || filter.ScalingGroupID == each.ScalingGroupID)
		if inGroup && (len(filter.IDs) == 0 || ours.Has(each.ID)) {
			found = append(found, each.ScalingInstance)
		}
	}
	return found, nil
}

// Instances returns real and virtual instances.
func (c *Cloud) Instances(ctx context.Context, ids []string) (found []alicloud.Instance, err error) {
	ours, others := split(ids)
	if len(others) > 0 {
		if found, err = c.Reads.Instances(ctx, others); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range c.memory.virtual() {
		if ours.Has(each.ID) {
			found = append(found, each.ecs())
		}
	}
	return found, nil
}

// LaunchedInstances returns real and virtual instances with the tag.
func (c *Cloud) LaunchedInstances(ctx context.Context, tag, value string) ([]alicloud.Instance, error) {
	found, err := c.Reads.LaunchedInstances(ctx, tag, value)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range c.memory.virtual() {
		if has, tagged := each.tags[tag]; tagged && has == value {
			found = append(found, each.ecs())
		}
	}
	return found, nil
}

// ScalingConfigurations returns the configurations, and remembers them: a purchase that names no instance type is of their first.
func (c *Cloud) ScalingConfigurations(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error) {
	found, err := c.Reads.ScalingConfigurations(ctx, ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range found {
		c.memory.configurations[each.ID] = each
	}
	return found, err
}

// VSwitches returns the vSwitches, and remembers their zones.
func (c *Cloud) VSwitches(ctx context.Context, ids []string) ([]alicloud.VSwitch, error) {
	found, err := c.Reads.VSwitches(ctx, ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, each := range found {
		c.memory.zones[each.ID] = each.ZoneID
	}
	return found, err
}

// Activities returns real and virtual activities.
func (c *Cloud) Activities(ctx context.Context, ids []string) (found []alicloud.Activity, err error) {
	ours, others := split(ids)
	if len(others) > 0 {
		if found, err = c.Reads.Activities(ctx, others); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range ours {
		if activity, known := c.memory.activities[id]; known {
			found = append(found, activity)
		}
	}
	return found, nil
}

// GroupActivities returns real and virtual activities of the group.
func (c *Cloud) GroupActivities(ctx context.Context, groupID string, since time.Time) ([]alicloud.Activity, error) {
	found, err := c.Reads.GroupActivities(ctx, groupID, since)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.forget()
	for _, activity := range c.memory.activities {
		if activity.ScalingGroupID == groupID && !activity.Started.Before(since) {
			found = append(found, activity)
		}
	}
	return found, nil
}
