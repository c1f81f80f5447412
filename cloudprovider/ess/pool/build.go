package pool

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
	"gpu-spot-autoscaler/cloudprovider/ess/template"
	"gpu-spot-autoscaler/pricing"
)

// Source is what a pool is built from.
type Source struct {
	Region string
	Group  alicloud.ScalingGroup
	// Overrides are tags that win over those of the scaling group.
	Overrides map[string]string
	// Bounds are those of --nodes; nil where the scaling group is not named there.
	Bounds *Bounds
	// Whole says that the scaling group was found to ignore what a request names.
	Whole bool
	// InUse are the offerings of which instances exist or are being bought.
	InUse []pricing.Offering
}

// builder holds what the steps of Build share.
type builder struct {
	Source
	catalog       *Catalog
	configuration alicloud.ScalingConfiguration
	tags          map[string]string
	pool          *Pool
}

// Build returns the pool. The errors name instance types and vSwitches that had to be left out. Where there is no pool, the
// *Error says why.
func Build(source Source, catalog *Catalog) (*Pool, []error, *Error) {
	b := &builder{Source: source, catalog: catalog}
	leftOut, reason, err := b.build()
	if err != nil {
		return nil, nil, &Error{Pool: source.Group.ID, Reason: reason, Err: err}
	}
	return b.pool, leftOut, nil
}

func (b *builder) build() (leftOut []error, reason problem.Reason, err error) {
	configured := false
	if b.configuration, configured = b.catalog.configurations[b.Group.ActiveScalingConfigurationID]; !configured {
		return nil, problem.Configuration, fmt.Errorf("it has no active scaling configuration that exists (%q)", b.Group.ActiveScalingConfigurationID)
	}
	b.tags = settings.Merge(b.configuration.Tags, b.Group.Tags, b.Overrides)
	parsed, err := settings.Parse(b.tags)
	if err != nil {
		return nil, problem.Tags, err
	}
	b.pool = &Pool{
		ID: b.Group.ID, Group: b.Group, Settings: parsed, Spot: template.IsSpot(b.configuration.SpotStrategy), SpotDuration: b.configuration.SpotDuration,
		Unbuyable: suspended(b.Group), NodeGroups: map[string]*Offering{},
	}
	if err := b.setBounds(); err != nil {
		return nil, problem.Tags, err
	}
	types, zones, leftOut := b.catalog.resolve(b.configuration.InstanceTypes, b.Group.VSwitchIDs)
	if len(types) == 0 {
		return nil, problem.InstanceType, errors.Join(append(leftOut, errors.New("no instance type is left to buy"))...)
	}
	if len(zones) == 0 {
		return nil, problem.VSwitch, errors.Join(append(leftOut, errors.New("no vSwitch gives it a zone"))...)
	}
	b.addOfferings(types, zones)
	if err := b.pool.checkSharedGPUs(); err != nil {
		return nil, problem.SharedGPU, err
	}
	b.pool.Targeting = b.targeting()
	b.setLaunch()
	b.addNodeGroups()
	return leftOut, "", nil
}

// setBounds takes the pool's bounds from its tags, from --nodes, or from the scaling group, in this order.
func (b *builder) setBounds() error {
	p := b.pool
	p.MinSize, p.MaxSize = b.Group.MinSize, b.Group.MaxSize
	if b.Bounds != nil {
		p.MinSize, p.MaxSize = b.Bounds.Min, b.Bounds.Max
	}
	if p.Settings.MinSize != nil {
		p.MinSize = *p.Settings.MinSize
	}
	if p.Settings.MaxSize != nil {
		p.MaxSize = *p.Settings.MaxSize
	}
	if p.Settings.Purchase == settings.PurchaseByLaunch {
		p.MaxSize = min(p.MaxSize, maxLaunched)
	}
	// ESS removes nothing below the minimum of the scaling group.
	p.MinSize = max(p.MinSize, b.Group.MinSize)
	if p.MinSize > p.MaxSize {
		return &settings.TagError{Key: api.TagMinSize, Value: strconv.Itoa(p.MinSize),
			Reason: fmt.Sprintf("is above the pool's maximum of %d", p.MaxSize)}
	}
	return nil
}

// addOfferings adds each instance type in each zone.
func (b *builder) addOfferings(types []alicloud.InstanceType, zones []zone) {
	for _, instanceType := range types {
		for _, zone := range zones {
			offered := &Offering{
				Offering:     pricing.Offering{InstanceType: instanceType.ID, Zone: zone.id, Spot: b.pool.Spot},
				Type:         instanceType,
				VSwitchIDs:   zone.vswitches,
				SpotStrategy: b.configuration.SpotStrategy,
				PriceCap:     b.priceCap(instanceType),
			}
			b.setTemplate(offered)
			b.pool.Offerings = append(b.pool.Offerings, offered)
		}
	}
}

// priceCap returns the lowest of the caps of the tags and the limit of the scaling configuration, 0 where there is none.
func (b *builder) priceCap(instanceType alicloud.InstanceType) float64 {
	limit, _ := b.pool.Settings.CapFor(instanceType)
	if b.configuration.SpotStrategy == alicloud.SpotWithPriceLimit {
		if own := b.configuration.SpotPriceLimits[instanceType.ID]; own > 0 && (limit == 0 || own < limit) {
			limit = own
		}
	}
	return limit
}

func (b *builder) targeting() Targeting {
	switch {
	case b.pool.Settings.Purchase == settings.PurchaseByLaunch:
		return TargetLaunch
	case b.pool.Settings.Targeting == settings.TargetingWhole:
		return TargetWhole
	case len(b.pool.Offerings) == 1:
		return TargetSingle
	case b.Whole && b.pool.Settings.Targeting == settings.TargetingAuto:
		return TargetWhole
	}
	return TargetRequest
}

// addNodeGroups adds the node groups: one for each offering, and for each offering in use that the scaling configuration
// does not launch any more; or one for the whole pool.
func (b *builder) addNodeGroups() {
	p := b.pool
	if p.Targeting == TargetWhole {
		p.NodeGroups[OfferingID(p.ID, p.wholeOffering())] = p.whole()
		return
	}
	for _, offered := range p.Offerings {
		p.NodeGroups[OfferingID(p.ID, offered.Offering)] = offered
	}
	for _, used := range b.InUse {
		id := OfferingID(p.ID, used)
		if p.NodeGroups[id] == nil {
			p.NodeGroups[id] = b.retired(used)
		}
	}
}

func (b *builder) retired(used pricing.Offering) *Offering {
	retired := &Offering{Offering: used, Retired: true, Type: b.catalog.types.known[used.InstanceType]}
	retired.Type.ID = used.InstanceType
	if used.Spot {
		retired.SpotStrategy = alicloud.SpotAsPriceGo
	}
	b.setTemplate(retired)
	return retired
}

// setTemplate builds the template, and its version as a digest of everything that the template is made of.
func (b *builder) setTemplate(o *Offering) {
	spec := template.Spec{
		PoolID: b.pool.ID, Region: b.Region, Zone: o.Zone, Type: o.Type, Spot: o.Spot, SpotStrategy: o.SpotStrategy,
		SystemDiskGiB: b.configuration.SystemDiskGiB, Settings: b.pool.Settings,
	}
	o.Template = template.Build(spec)
	spec.Settings = settings.Settings{} // the tags stand for them
	digest := fnv.New64a()
	fmt.Fprintf(digest, "%s %+v %v", OfferingID(b.pool.ID, o.Offering), spec, b.tags) // fmt prints maps sorted by key
	o.TemplateVersion = strconv.FormatUint(digest.Sum64(), 36)
}
