package pool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// configurationAge is the age at which a scaling configuration is read again: it can be edited in place, without a change
// of the scaling group.
const configurationAge = 5 * time.Minute

// CatalogReader reads from Alibaba Cloud what a Catalog holds. *client.Client of package alicloud/client implements it.
type CatalogReader interface {
	ScalingConfigurations(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error)
	InstanceTypes(ctx context.Context, ids []string) ([]alicloud.InstanceType, error)
	VSwitches(ctx context.Context, ids []string) ([]alicloud.VSwitch, error)
}

// Catalog caches what rarely changes: scaling configurations, instance types and vSwitches. It is not safe for concurrent use.
type Catalog struct {
	configurations map[string]alicloud.ScalingConfiguration
	readAt         map[string]time.Time
	types          cache[alicloud.InstanceType]
	vswitches      cache[alicloud.VSwitch]
}

// NewCatalog returns an empty Catalog.
func NewCatalog() *Catalog {
	return &Catalog{
		configurations: map[string]alicloud.ScalingConfiguration{}, readAt: map[string]time.Time{},
		types: newCache[alicloud.InstanceType](), vswitches: newCache[alicloud.VSwitch](),
	}
}

// Types returns a copy of the known instance types, by id.
func (c *Catalog) Types() map[string]alicloud.InstanceType { return maps.Clone(c.types.known) }

// Update reads what is missing or too old for these groups and instances. When a call fails, what was read before stays.
func (c *Catalog) Update(ctx context.Context, cloud CatalogReader, now time.Time, groups []alicloud.ScalingGroup,
	instances map[string]alicloud.ScalingInstance) error {
	errConfigurations := c.readConfigurations(ctx, cloud, now, groups)
	types, vswitches := sets.New[string](), sets.New[string]()
	for _, configuration := range c.configurations {
		types.Insert(configuration.InstanceTypes...)
	}
	for _, instance := range instances {
		types.Insert(instance.InstanceType)
	}
	for _, group := range groups {
		vswitches.Insert(group.VSwitchIDs...)
	}
	return errors.Join(errConfigurations,
		c.types.read(ctx, "instance types", now, types, cloud.InstanceTypes, func(t alicloud.InstanceType) string { return t.ID }),
		c.vswitches.read(ctx, "vSwitches", now, vswitches, cloud.VSwitches, func(v alicloud.VSwitch) string { return v.ID }))
}

func (c *Catalog) readConfigurations(ctx context.Context, cloud CatalogReader, now time.Time, groups []alicloud.ScalingGroup) error {
	wanted := sets.New[string]()
	for _, group := range groups {
		id := group.ActiveScalingConfigurationID
		if id != "" && now.Sub(c.readAt[id]) >= configurationAge {
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
		delete(c.configurations, id)
		c.readAt[id] = now
	}
	for _, configuration := range found {
		c.configurations[configuration.ID] = configuration
	}
	return nil
}

// cache holds objects that never change, by id.
type cache[T any] struct {
	known map[string]T
	// unknownSince holds ids that do not exist, so that they are not asked for in every refresh.
	unknownSince map[string]time.Time
}

func newCache[T any]() cache[T] {
	return cache[T]{known: map[string]T{}, unknownSince: map[string]time.Time{}}
}

// read asks for the wanted objects that are not known. Those that did not exist are asked for again after configurationAge.
func (c cache[T]) read(ctx context.Context, what string, now time.Time, wanted sets.Set[string],
	ask func(context.Context, []string) ([]T, error), idOf func(T) string) error {
	missing := slices.DeleteFunc(sets.List(wanted), func(id string) bool {
		_, known := c.known[id]
		since, unknown := c.unknownSince[id]
		return id == "" || known || unknown && now.Sub(since) < configurationAge
	})
	if len(missing) == 0 {
		return nil
	}
	found, err := ask(ctx, missing)
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	for _, object := range found {
		c.known[idOf(object)] = object
	}
	for _, id := range missing {
		if _, known := c.known[id]; !known {
			c.unknownSince[id] = now
		}
	}
	return nil
}

// zone is a zone with the vSwitches of a scaling group in it.
type zone struct {
	id        string
	vswitches []string
}

// resolve returns the instance types and zones that are known, in order, and an error for each id that is not.
func (c *Catalog) resolve(typeIDs, vswitchIDs []string) ([]alicloud.InstanceType, []zone, []error) {
	var types []alicloud.InstanceType
	var unknown []error
	for _, id := range slices.Compact(slices.Sorted(slices.Values(typeIDs))) {
		if instanceType, ok := c.types.known[id]; ok {
			types = append(types, instanceType)
		} else {
			unknown = append(unknown, fmt.Errorf("instance type %q is not known to Alibaba Cloud", id))
		}
	}
	byZone := map[string][]string{}
	for _, id := range vswitchIDs {
		if vswitch, ok := c.vswitches.known[id]; ok && vswitch.ZoneID != "" {
			byZone[vswitch.ZoneID] = append(byZone[vswitch.ZoneID], id)
		} else {
			unknown = append(unknown, fmt.Errorf("vSwitch %q does not exist", id))
		}
	}
	var zones []zone
	for id, vswitches := range byZone {
		zones = append(zones, zone{id, vswitches})
	}
	slices.SortFunc(zones, func(a, b zone) int { return strings.Compare(a.id, b.id) })
	return types, zones, unknown
}
