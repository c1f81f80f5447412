package ess

import (
	"cmp"
	"maps"
	"slices"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// Most elements that ESS takes in a list or returns on a page.
const (
	maxESSPage = 50
	// DescribeScalingInstances alone takes more (aliyun-openapi-meta, April 2026).
	maxESSInstancesPage = 100
	maxESSList          = 20
)

type scalingGroupJSON struct {
	ScalingGroupId, ScalingGroupName, GroupType, RegionId, VpcId, VSwitchId, CreationTime string

	MinSize, MaxSize, DefaultCooldown int
	DesiredCapacity                   *int `json:",omitempty"`
	EnableDesiredCapacity             bool

	TotalCapacity, TotalInstanceCount, ActiveCapacity, PendingCapacity, PendingWaitCapacity, InitCapacity int
	RemovingCapacity, RemovingWaitCapacity, ProtectedCapacity, StandbyCapacity, StoppedCapacity           int
	SpotCapacity                                                                                          int

	ActiveScalingConfigurationId string
	MultiAZPolicy                string
	HealthCheckType              string
	LifecycleState               string
	SystemSuspended              bool
	SpotInstanceRemedy           bool
	CompensateWithOnDemand       bool
	ScalingPolicy                string

	OnDemandBaseCapacity, OnDemandPercentageAboveBaseCapacity int
	CapacityOptions                                           capacityOptionsJSON

	VSwitchIds         map[string][]string
	SuspendedProcesses map[string][]string
	HealthCheckTypes   map[string][]string
	RemovalPolicies    map[string][]string
	Tags               map[string][]groupTagJSON
}

type capacityOptionsJSON struct {
	OnDemandBaseCapacity, OnDemandPercentageAboveBaseCapacity int
	CompensateWithOnDemand, SpotAutoReplaceOnDemand           bool
}

// groupTagJSON names its fields otherwise than the tags of a scaling configuration.
type groupTagJSON struct {
	TagKey, TagValue string
	Propagate        bool
}

// groupActions answers the requests about scaling groups, their configurations, scaling.Processes and tags.
type groupActions struct{ *scaling.Engine }

func (s groupActions) groupJSON(g *scaling.Group) scalingGroupJSON {
	j := scalingGroupJSON{
		ScalingGroupId: g.ID, ScalingGroupName: g.Name, GroupType: "ECS", RegionId: s.Cloud.Region, VpcId: s.Compute.VPCID,
		CreationTime: g.Created.UTC().Format(protocol.MinuteLayout),
		MinSize:      g.MinSize, MaxSize: g.MaxSize, DefaultCooldown: *g.DefaultCooldown,
		DesiredCapacity: g.DesiredCapacity, EnableDesiredCapacity: g.DesiredCapacity != nil,
		TotalCapacity: g.Members.Len(), TotalInstanceCount: g.Members.Len(),
		ActiveCapacity: g.States[scaling.StateInService], PendingCapacity: g.States[scaling.StatePending], InitCapacity: g.Expected() - g.Capacity(),
		RemovingCapacity: g.States[scaling.StateRemoving], SpotCapacity: g.SpotCount(),
		ProtectedCapacity: g.States[scaling.StateProtected], StandbyCapacity: g.States[scaling.StateStandby], StoppedCapacity: g.States[scaling.StateStopped],
		ActiveScalingConfigurationId: g.ConfigID, MultiAZPolicy: g.MultiAZPolicy, HealthCheckType: g.HealthCheckType,
		LifecycleState: g.LifecycleState, SystemSuspended: g.SystemSuspended, SpotInstanceRemedy: g.SpotInstanceRemedy,
		CompensateWithOnDemand: *g.CompensateWithOnDemand, ScalingPolicy: g.ScalingPolicy,
		VSwitchIds:         protocol.Wrap("VSwitchId", g.VSwitches),
		SuspendedProcesses: protocol.Wrap("SuspendedProcess", g.SuspendedProcesses),
		HealthCheckTypes:   protocol.Wrap("HealthCheckType", []string{g.HealthCheckType}),
		RemovalPolicies:    protocol.Wrap("RemovalPolicy", []string{"OldestInstance"}),
	}
	base, percent := g.OnDemandMix()
	j.OnDemandBaseCapacity, j.OnDemandPercentageAboveBaseCapacity = base, percent
	j.CapacityOptions = capacityOptionsJSON{base, percent, *g.CompensateWithOnDemand, g.SpotAutoReplaceOnDemand}
	if len(g.VSwitches) > 0 {
		j.VSwitchId = g.VSwitches[0]
	}
	var tags []groupTagJSON
	for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
		tags = append(tags, groupTagJSON{TagKey: key, TagValue: g.Tags[key]})
	}
	j.Tags = protocol.Wrap("Tag", tags)
	return j
}

func (s groupActions) describeScalingGroups(r *protocol.Request) (protocol.Reply, error) {
	if _, err := r.Required("RegionId"); err != nil {
		return nil, err
	}
	pages, err := r.Paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	found, err := s.findGroups(r)
	if err != nil {
		return nil, err
	}
	var list []scalingGroupJSON
	for _, g := range protocol.Page(found, pages) {
		list = append(list, s.groupJSON(g))
	}
	return protocol.Reply{
		"TotalCount": len(found), "PageNumber": pages.Number, "PageSize": pages.Size, "ScalingGroups": protocol.Wrap("ScalingGroup", list),
	}, nil
}

// findGroups returns the groups that the request asks for, oldest first. Ids that do not exist are left out.
func (s groupActions) findGroups(r *protocol.Request) ([]*scaling.Group, error) {
	ids, err := r.List("ScalingGroupId", maxESSList)
	if err != nil {
		return nil, err
	}
	tags, err := r.Tags()
	if err != nil {
		return nil, err
	}
	names, err := r.List("ScalingGroupName", maxESSList)
	if err != nil {
		return nil, err
	}
	if name := r.Get("ScalingGroupName"); name != "" {
		names = append(names, name)
	}
	candidates := s.AllGroups().Items
	if len(ids) > 0 {
		candidates = groupsNamed(s.Engine, ids)
	}
	if len(tags) == 0 && len(names) == 0 {
		return candidates, nil
	}
	var found []*scaling.Group
	for _, g := range candidates {
		if protocol.MatchTags(g.Tags, tags) && (len(names) == 0 || slices.Contains(names, g.Name)) {
			found = append(found, g)
		}
	}
	return found, nil
}

// groupsNamed returns the groups with the IDs, oldest first. IDs that do not exist are left out.
func groupsNamed(s *scaling.Engine, ids []string) []*scaling.Group {
	var list cloud.Roster[*scaling.Group]
	for _, id := range ids {
		if g, known := s.FindGroup(id); known {
			list.Add(g)
		}
	}
	return list.Items
}

func (s groupActions) modifyScalingGroup(r *protocol.Request) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
	if err != nil {
		return nil, err
	}
	changed := g.Pool
	if err := modifyPool(&changed, r); err != nil {
		return nil, err
	}
	g.Pool = changed
	g.CheckSoon()
	return protocol.Reply{}, nil
}

// modifyPool applies what the request names, to a copy, so that a refused request changes nothing.
func modifyPool(p *scaling.Pool, r *protocol.Request) error {
	const most = 2000 // instances a scaling group holds
	for name, field := range map[string]*int{"MinSize": &p.MinSize, "MaxSize": &p.MaxSize} {
		n, err := r.Integer(name, *field, 0, most)
		if err != nil {
			return err
		}
		*field = n
	}
	if p.MinSize > p.MaxSize {
		return protocol.BadRequest("InvalidParameter.Conflict", "MinSize %d is above MaxSize %d.", p.MinSize, p.MaxSize)
	}
	if err := modifyDesired(p, r, most); err != nil {
		return err
	}
	cooldown, err := r.Integer("DefaultCooldown", *p.DefaultCooldown, 0, 86400)
	if err != nil {
		return err
	}
	compensate, err := r.Boolean("CompensateWithOnDemand", *p.CompensateWithOnDemand)
	if err != nil {
		return err
	}
	if err := modifyMix(p, r); err != nil {
		return err
	}
	p.DefaultCooldown, p.CompensateWithOnDemand = &cooldown, &compensate
	if p.SpotInstanceRemedy, err = r.Boolean("SpotInstanceRemedy", p.SpotInstanceRemedy); err != nil {
		return err
	}
	return modifyStrings(p, r)
}

func modifyMix(p *scaling.Pool, r *protocol.Request) error {
	base, err := r.OptionalInteger("OnDemandBaseCapacity", 0, 1000)
	if err != nil {
		return err
	}
	percent, err := r.OptionalInteger("OnDemandPercentageAboveBaseCapacity", 0, 100)
	if err != nil {
		return err
	}
	p.OnDemandBaseCapacity = cmp.Or(base, p.OnDemandBaseCapacity)
	p.OnDemandPercentageAboveBaseCapacity = cmp.Or(percent, p.OnDemandPercentageAboveBaseCapacity)
	return nil
}

func modifyDesired(p *scaling.Pool, r *protocol.Request, most int) error {
	off, err := r.Boolean("DisableDesiredCapacity", false)
	if err != nil {
		return err
	}
	desired, err := r.OptionalInteger("DesiredCapacity", 0, most)
	switch {
	case err != nil:
		return err
	case off:
		p.DesiredCapacity = nil
	case desired != nil:
		p.DesiredCapacity = desired
	}
	if d := p.DesiredCapacity; d != nil && (*d < p.MinSize || *d > p.MaxSize) {
		return protocol.BadRequest("InvalidParameter.Conflict", "DesiredCapacity %d is not between MinSize %d and MaxSize %d.", *d, p.MinSize, p.MaxSize)
	}
	return nil
}

func modifyStrings(p *scaling.Pool, r *protocol.Request) error {
	for name, field := range map[string]*string{
		"ScalingGroupName": &p.Name, "HealthCheckType": &p.HealthCheckType, "MultiAZPolicy": &p.MultiAZPolicy,
	} {
		*field = cmp.Or(r.Get(name), *field)
	}
	if !slices.Contains([]string{scaling.HealthCheckECS, scaling.HealthCheckNone}, p.HealthCheckType) {
		return protocol.Invalid("HealthCheckType", p.HealthCheckType)
	}
	if !slices.Contains([]string{scaling.PolicyPriority, scaling.PolicyBalance, scaling.PolicyCost, scaling.PolicyComposable}, p.MultiAZPolicy) {
		return protocol.Invalid("MultiAZPolicy", p.MultiAZPolicy)
	}
	return nil
}

// lookup finds the group that a writing action names.
func lookup(s *scaling.Engine, r *protocol.Request) (*scaling.Group, error) {
	id, err := r.Required("ScalingGroupId")
	if err != nil {
		return nil, err
	}
	g, known := s.FindGroup(id)
	if !known {
		return nil, groupNotFound(id)
	}
	return g, nil
}
