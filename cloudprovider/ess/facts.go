package ess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// configurationAge is after how long a scaling configuration is read again: it can be edited in place, and nothing in
// the scaling group tells.
const configurationAge = 5 * time.Minute

// facts are what rarely changes: asked for once, and kept. Only the refresh uses it.
type facts struct {
	configurations map[string]alicloud.ScalingConfiguration
	readAt         map[string]time.Time
	types          map[string]alicloud.InstanceType
	vswitches      map[string]alicloud.VSwitch
	// unknownSince holds types and vSwitches that the cloud does not know, so that it is not asked in every loop.
	unknownSince map[string]time.Time
}

func newFacts() *facts {
	return &facts{
		configurations: map[string]alicloud.ScalingConfiguration{},
		readAt:         map[string]time.Time{},
		types:          map[string]alicloud.InstanceType{},
		vswitches:      map[string]alicloud.VSwitch{},
		unknownSince:   map[string]time.Time{},
	}
}

// update asks for what is missing or too old. What it has it keeps when it fails.
func (f *facts) update(ctx context.Context, cloud Cloud, now time.Time, groups []alicloud.ScalingGroup,
	instances map[string]alicloud.ScalingInstance) error {
	return errors.Join(
		f.readConfigurations(ctx, cloud, now, groups),
		f.readTypes(ctx, cloud, now, instances),
		f.readVSwitches(ctx, cloud, now, groups))
}

func (f *facts) readConfigurations(ctx context.Context, cloud Cloud, now time.Time, groups []alicloud.ScalingGroup) error {
	wanted := sets.New[string]()
	for _, group := range groups {
		id := group.ActiveScalingConfigurationID
		if id != "" && now.Sub(f.readAt[id]) >= configurationAge {
			wanted.Insert(id)
		}
	}
	if wanted.Len() == 0 {
		return nil
	}
	found, err := cloud.ScalingConfigurations(ctx, sets.List(wanted))
	if err != nil {
		return fmt.Errorf("read scaling configurations: %w", err)
	}
	for id := range wanted {
		delete(f.configurations, id)
		f.readAt[id] = now
	}
	for _, configuration := range found {
		f.configurations[configuration.ID] = configuration
	}
	return nil
}

func (f *facts) readTypes(ctx context.Context, cloud Cloud, now time.Time, instances map[string]alicloud.ScalingInstance) error {
	wanted := sets.New[string]()
	for _, configuration := range f.configurations {
		wanted.Insert(configuration.InstanceTypes...)
	}
	for _, instance := range instances {
		wanted.Insert(instance.InstanceType)
	}
	ids := f.missing(now, wanted, func(id string) bool { _, ok := f.types[id]; return ok })
	if len(ids) == 0 {
		return nil
	}
	found, err := cloud.InstanceTypes(ctx, ids)
	if err != nil {
		return fmt.Errorf("read instance types: %w", err)
	}
	for _, shape := range found {
		f.types[shape.ID] = shape
	}
	f.markUnknown(now, ids, func(id string) bool { _, ok := f.types[id]; return ok })
	return nil
}

func (f *facts) readVSwitches(ctx context.Context, cloud Cloud, now time.Time, groups []alicloud.ScalingGroup) error {
	wanted := sets.New[string]()
	for _, group := range groups {
		wanted.Insert(group.VSwitchIDs...)
	}
	ids := f.missing(now, wanted, func(id string) bool { _, ok := f.vswitches[id]; return ok })
	if len(ids) == 0 {
		return nil
	}
	found, err := cloud.VSwitches(ctx, ids)
	if err != nil {
		return fmt.Errorf("read vSwitches: %w", err)
	}
	for _, vswitch := range found {
		f.vswitches[vswitch.ID] = vswitch
	}
	f.markUnknown(now, ids, func(id string) bool { _, ok := f.vswitches[id]; return ok })
	return nil
}

func (f *facts) missing(now time.Time, wanted sets.Set[string], known func(string) bool) []string {
	return slices.DeleteFunc(sets.List(wanted), func(id string) bool {
		since, unknown := f.unknownSince[id]
		return id == "" || known(id) || unknown && now.Sub(since) < configurationAge
	})
}

func (f *facts) markUnknown(now time.Time, asked []string, known func(string) bool) {
	for _, id := range asked {
		if !known(id) {
			f.unknownSince[id] = now
		}
	}
}

// zone is a zone with the vSwitches through which a pool reaches it.
type zone struct {
	id        string
	vswitches []string
}

// resolve returns the shapes and zones that are known, in order, and an error for each id that is not.
func (f *facts) resolve(typeIDs, vswitchIDs []string) ([]alicloud.InstanceType, []zone, []error) {
	var shapes []alicloud.InstanceType
	var problems []error
	for _, id := range slices.Compact(slices.Sorted(slices.Values(typeIDs))) {
		if shape, ok := f.types[id]; ok {
			shapes = append(shapes, shape)
		} else {
			problems = append(problems, fmt.Errorf("instance type %q is not known to Alibaba Cloud", id))
		}
	}
	byZone := map[string][]string{}
	for _, id := range vswitchIDs {
		if vswitch, ok := f.vswitches[id]; ok && vswitch.ZoneID != "" {
			byZone[vswitch.ZoneID] = append(byZone[vswitch.ZoneID], id)
		} else {
			problems = append(problems, fmt.Errorf("vSwitch %q does not exist", id))
		}
	}
	var zones []zone
	for id, vswitches := range byZone {
		zones = append(zones, zone{id, vswitches})
	}
	slices.SortFunc(zones, func(a, b zone) int { return strings.Compare(a.id, b.id) })
	return shapes, zones, problems
}
