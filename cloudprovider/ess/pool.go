package ess

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/config/dynamic"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
)

// offering is one way to buy in a pool.
type offering struct {
	InstanceType string
	Zone         string
	Purchase     Purchase
}

func offeringOf(instance alicloud.ScalingInstance) offering {
	return offering{instance.InstanceType, instance.ZoneID, PurchaseOf(instance.SpotStrategy)}
}

func (o offering) groupID(poolID string) string {
	return poolID + "/" + o.InstanceType + "/" + o.Zone + "/" + string(o.Purchase)
}

func (o offering) priced() pricing.Offering {
	return pricing.Offering{InstanceType: o.InstanceType, Zone: o.Zone, Spot: o.Purchase == PurchaseSpot}
}

// anyOffering stands for type and zone in the node group of a pool that cannot be targeted.
const anyOffering = "any"

// wholeGroupID is the node group of a pool that cannot be targeted.
func wholeGroupID(poolID string, purchase Purchase) string {
	return offering{anyOffering, anyOffering, purchase}.groupID(poolID)
}

// targeting is how a pool is made to deliver one particular offering.
type targeting string

const (
	// targetSingle: there is one offering only, so nothing to target.
	targetSingle targeting = "single"
	// targetRequest: each request names type, zone and purchase option, and what comes is compared.
	targetRequest targeting = "request"
	// targetWhole: the pool delivers what it likes, and is one node group.
	targetWhole targeting = "whole"
)

// knownOffering is an offering together with all that is needed to buy it and to foresee its node.
type knownOffering struct {
	offering
	shape        alicloud.InstanceType
	vswitches    []string
	spotStrategy string
	// priceCap is per instance-hour, 0 where there is none.
	priceCap float64
	// retired: the pool does not launch it any more, but instances of it are left.
	retired         bool
	template        *apiv1.Node
	templateVersion string
}

// pool is a scaling group in working order, as one refresh found it. It is immutable.
type pool struct {
	id        string
	group     alicloud.ScalingGroup
	settings  Settings
	targeting targeting
	// purchase is the purchase option of the pool's scaling configuration.
	purchase Purchase
	// minSize and maxSize bound the pool's own instances; the scaling group's maximum also counts doomed ones.
	minSize, maxSize int
	// unbuyable says why nothing can be bought now; empty where it can.
	unbuyable string
	// offerings are what the pool launches, by group id.
	offerings []*knownOffering
	// byGroupID are the node groups: the offerings, or the one that stands for the whole pool.
	byGroupID map[string]*knownOffering
}

// PoolError says which pool is out of order and through what.
type PoolError struct {
	Pool string
	// Reason is one of tags, configuration, instance_type, vswitch, shared_gpu.
	Reason string
	Err    error
}

func (e *PoolError) Error() string { return fmt.Sprintf("pool %s: %v", e.Pool, e.Err) }
func (e *PoolError) Unwrap() error { return e.Err }

// sizeBounds are the min:max of an explicit node group spec.
type sizeBounds struct{ min, max int }

func parseNodeGroupSpecs(specs []string) (map[string]sizeBounds, error) {
	bounds := make(map[string]sizeBounds, len(specs))
	for _, text := range specs {
		spec, err := dynamic.SpecFromString(text, true)
		if err != nil {
			return nil, fmt.Errorf("node group spec %q, wanted min:max:<scaling-group-id>: %w", text, err)
		}
		bounds[spec.Name] = sizeBounds{spec.MinSize, spec.MaxSize}
	}
	return bounds, nil
}

// poolSource is what a pool is built from.
type poolSource struct {
	region    string
	group     alicloud.ScalingGroup
	overrides map[string]string
	bounds    *sizeBounds
	// whole: targeting was found not to hold.
	whole bool
	// left are the offerings of which instances exist.
	left []offering
}

// buildPool returns the pool, and what is wrong with parts of it that can be left out; or why there is no pool.
func buildPool(source poolSource, known *facts) (*pool, []error, *PoolError) {
	group := source.group
	fail := func(reason string, err error) (*pool, []error, *PoolError) {
		return nil, nil, &PoolError{Pool: group.ID, Reason: reason, Err: err}
	}
	configuration, ok := known.configurations[group.ActiveScalingConfigurationID]
	if !ok {
		return fail("configuration", fmt.Errorf("it has no active scaling configuration that exists (%q)",
			group.ActiveScalingConfigurationID))
	}
	tags := MergeTags(configuration.Tags, group.Tags, source.overrides)
	settings, err := ParseSettings(tags)
	if err != nil {
		return fail("tags", err)
	}
	built := &pool{
		id: group.ID, group: group, settings: settings,
		purchase:  PurchaseOf(configuration.SpotStrategy),
		unbuyable: unbuyable(group),
		byGroupID: map[string]*knownOffering{},
	}
	if err := built.bound(source.bounds); err != nil {
		return fail("tags", err)
	}
	shapes, zones, partial := known.resolve(configuration.InstanceTypes, group.VSwitchIDs)
	if len(shapes) == 0 {
		return fail("instance_type", errors.Join(append(partial, errors.New("no instance type is left to buy"))...))
	}
	if len(zones) == 0 {
		return fail("vswitch", errors.Join(append(partial, errors.New("no vSwitch gives it a zone"))...))
	}
	built.offer(source.region, configuration, shapes, zones, tags)
	if err := built.sharedGPUs(); err != nil {
		return fail("shared_gpu", err)
	}
	built.aim(source.whole)
	built.group2offering()
	built.retire(source, configuration, tags, known)
	return built, partial, nil
}

// bound sets the pool's own bounds from its tags, the explicit spec, or the scaling group, in this order.
func (p *pool) bound(explicit *sizeBounds) error {
	p.minSize, p.maxSize = p.group.MinSize, p.group.MaxSize
	if explicit != nil {
		p.minSize, p.maxSize = explicit.min, explicit.max
	}
	if p.settings.MinSize != nil {
		p.minSize = *p.settings.MinSize
	}
	if p.settings.MaxSize != nil {
		p.maxSize = *p.settings.MaxSize
	}
	// Below the scaling group's own minimum the cloud removes nothing, whatever we would.
	p.minSize = max(p.minSize, p.group.MinSize)
	if p.minSize > p.maxSize {
		return &TagError{Key: api.Prefix + "min-size", Value: strconv.Itoa(p.minSize),
			Reason: fmt.Sprintf("is above the pool's maximum of %d", p.maxSize)}
	}
	return nil
}

// offer makes the offerings: each type in each zone.
func (p *pool) offer(region string, configuration alicloud.ScalingConfiguration, shapes []alicloud.InstanceType,
	zones []zone, tags map[string]string) {
	for _, shape := range shapes {
		for _, zone := range zones {
			p.offerings = append(p.offerings, &knownOffering{
				offering:     offering{shape.ID, zone.id, p.purchase},
				shape:        shape,
				vswitches:    zone.vswitches,
				spotStrategy: configuration.SpotStrategy,
				priceCap:     p.priceCap(shape, configuration),
			})
		}
	}
	for _, offered := range p.offerings {
		offered.foresee(offered.groupID(p.id), region, p, configuration, tags)
	}
}

// priceCap is the tightest of the caps of the tags and the limit of the scaling configuration, 0 where there is none.
func (p *pool) priceCap(shape alicloud.InstanceType, configuration alicloud.ScalingConfiguration) float64 {
	limit, _ := p.settings.CapFor(shape)
	if configuration.SpotStrategy == alicloud.SpotWithPriceLimit {
		if own := configuration.SpotPriceLimits[shape.ID]; own > 0 && (limit == 0 || own < limit) {
			limit = own
		}
	}
	return limit
}

// aim decides how the pool is targeted.
func (p *pool) aim(foundWhole bool) {
	switch {
	case p.settings.Targeting == TargetingWhole:
		p.targeting = targetWhole
	case len(p.offerings) == 1:
		p.targeting = targetSingle
	case foundWhole && p.settings.Targeting == TargetingAuto:
		p.targeting = targetWhole
	default:
		p.targeting = targetRequest
	}
}

// group2offering names the node groups of the pool.
func (p *pool) group2offering() {
	if p.targeting == targetWhole {
		p.byGroupID[wholeGroupID(p.id, p.purchase)] = p.whole()
		return
	}
	for _, offered := range p.offerings {
		p.byGroupID[offered.groupID(p.id)] = offered
	}
}

// retire keeps node groups for offerings that the pool launches no more but of which instances are left.
func (p *pool) retire(source poolSource, configuration alicloud.ScalingConfiguration, tags map[string]string, known *facts) {
	if p.targeting == targetWhole {
		return
	}
	for _, left := range source.left {
		id := left.groupID(p.id)
		if _, offered := p.byGroupID[id]; offered {
			continue
		}
		retired := &knownOffering{offering: left, retired: true, shape: known.types[left.InstanceType]}
		retired.shape.ID = left.InstanceType
		if left.Purchase == PurchaseSpot {
			retired.spotStrategy = alicloud.SpotAsPriceGo
		}
		retired.foresee(id, source.region, p, configuration, tags)
		p.byGroupID[id] = retired
	}
}

// foresee makes the Node that an instance of the offering would become.
func (o *knownOffering) foresee(groupID, region string, p *pool, configuration alicloud.ScalingConfiguration,
	tags map[string]string) {
	spec := TemplateSpec{
		GroupID: groupID, PoolID: p.id, Region: region, Zone: o.Zone, Type: o.shape,
		Purchase: o.Purchase, SpotStrategy: o.spotStrategy,
		SystemDiskGiB: configuration.SystemDiskGiB, Settings: p.settings,
	}
	o.template = BuildTemplate(spec)
	o.templateVersion = versionOf(spec, tags)
}

// versionOf digests what a template is made of.
func versionOf(spec TemplateSpec, tags map[string]string) string {
	spec.Settings = Settings{} // it is made of the tags, and holds maps
	digest := fnv.New64a()
	fmt.Fprintf(digest, "%+v %v", spec, tags) // fmt prints maps sorted by key
	return strconv.FormatUint(digest.Sum64(), 36)
}
