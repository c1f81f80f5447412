package alisim

import (
	"maps"
	"slices"
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

	VSwitchIds         map[string][]string
	SuspendedProcesses map[string][]string
	HealthCheckTypes   map[string][]string
	RemovalPolicies    map[string][]string
	Tags               map[string][]groupTagJSON
}

// groupTagJSON names its fields otherwise than the tags of a scaling configuration.
type groupTagJSON struct {
	TagKey, TagValue string
	Propagate        bool
}

func (c *cloud) groupJSON(g *group) scalingGroupJSON {
	j := scalingGroupJSON{
		ScalingGroupId: g.ID, ScalingGroupName: g.Name, GroupType: "ECS", RegionId: c.world.Region, VpcId: c.world.VPCID,
		CreationTime: g.created.UTC().Format(minuteLayout),
		MinSize:      g.MinSize, MaxSize: g.MaxSize, DefaultCooldown: *g.DefaultCooldown,
		DesiredCapacity: g.DesiredCapacity, EnableDesiredCapacity: g.DesiredCapacity != nil,
		TotalCapacity: g.members.len(), TotalInstanceCount: g.members.len(),
		ActiveCapacity: g.states[stateInService], PendingCapacity: g.states[statePending], InitCapacity: g.expected() - g.capacity(),
		RemovingCapacity: g.states[stateRemoving], SpotCapacity: g.spot,
		ActiveScalingConfigurationId: g.configID, MultiAZPolicy: g.MultiAZPolicy, HealthCheckType: g.HealthCheckType,
		LifecycleState: g.LifecycleState, SystemSuspended: g.SystemSuspended, SpotInstanceRemedy: g.SpotInstanceRemedy,
		CompensateWithOnDemand: *g.CompensateWithOnDemand, ScalingPolicy: "release",
		VSwitchIds:         wrap("VSwitchId", g.VSwitches),
		SuspendedProcesses: wrap("SuspendedProcess", g.SuspendedProcesses),
		HealthCheckTypes:   wrap("HealthCheckType", []string{g.HealthCheckType}),
		RemovalPolicies:    wrap("RemovalPolicy", []string{"OldestInstance"}),
	}
	if len(g.VSwitches) > 0 {
		j.VSwitchId = g.VSwitches[0]
	}
	var tags []groupTagJSON
	for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
		tags = append(tags, groupTagJSON{TagKey: key, TagValue: g.Tags[key]})
	}
	j.Tags = wrap("Tag", tags)
	return j
}

func describeScalingGroups(c *cloud, r *request) (reply, error) {
	if _, err := r.required("RegionId"); err != nil {
		return nil, err
	}
	pages, err := r.paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	found, err := c.findGroups(r)
	if err != nil {
		return nil, err
	}
	var list []scalingGroupJSON
	for _, g := range page(found, pages.number, pages.size) {
		list = append(list, c.groupJSON(g))
	}
	return reply{
		"TotalCount": len(found), "PageNumber": pages.number, "PageSize": pages.size, "ScalingGroups": wrap("ScalingGroup", list),
	}, nil
}

// findGroups returns the groups that the request asks for, oldest first. Ids that do not exist are left out.
func (c *cloud) findGroups(r *request) ([]*group, error) {
	ids, err := r.list("ScalingGroupId", maxESSList)
	if err != nil {
		return nil, err
	}
	tags, err := r.tags()
	if err != nil {
		return nil, err
	}
	names, err := r.list("ScalingGroupName", maxESSList)
	if err != nil {
		return nil, err
	}
	if name := r.get("ScalingGroupName"); name != "" {
		names = append(names, name)
	}
	candidates := c.groups.items
	if len(ids) > 0 {
		candidates = c.groupsOf(ids)
	}
	if len(tags) == 0 && len(names) == 0 {
		return candidates, nil
	}
	var found []*group
	for _, g := range candidates {
		if matchTags(g.Tags, tags) && (len(names) == 0 || slices.Contains(names, g.Name)) {
			found = append(found, g)
		}
	}
	return found, nil
}

func (c *cloud) groupsOf(ids []string) []*group {
	var list roster[*group]
	for _, id := range ids {
		if g, known := c.groupByID[id]; known {
			list.add(g)
		}
	}
	return list.items
}

func modifyScalingGroup(c *cloud, r *request) (reply, error) {
	g, err := c.lookup(r)
	if err != nil {
		return nil, err
	}
	changed := g.Pool
	if err := changed.modify(r); err != nil {
		return nil, err
	}
	g.Pool = changed
	c.lookAfter(g)
	return reply{}, nil
}

// modify applies what the request names, to a copy, so that a refused request changes nothing.
func (p *Pool) modify(r *request) error {
	const most = 2000 // instances a scaling group holds
	for name, field := range map[string]*int{"MinSize": &p.MinSize, "MaxSize": &p.MaxSize} {
		n, err := r.integer(name, *field, 0, most)
		if err != nil {
			return err
		}
		*field = n
	}
	if p.MinSize > p.MaxSize {
		return badRequest("InvalidParameter.Conflict", "MinSize %d is above MaxSize %d.", p.MinSize, p.MaxSize)
	}
	if err := p.modifyDesired(r, most); err != nil {
		return err
	}
	cooldown, err := r.integer("DefaultCooldown", *p.DefaultCooldown, 0, 86400)
	if err != nil {
		return err
	}
	compensate, err := r.boolean("CompensateWithOnDemand", *p.CompensateWithOnDemand)
	if err != nil {
		return err
	}
	p.DefaultCooldown, p.CompensateWithOnDemand = &cooldown, &compensate
	if p.SpotInstanceRemedy, err = r.boolean("SpotInstanceRemedy", p.SpotInstanceRemedy); err != nil {
		return err
	}
	return p.modifyWords(r)
}

func (p *Pool) modifyDesired(r *request, most int) error {
	off, err := r.boolean("DisableDesiredCapacity", false)
	if err != nil {
		return err
	}
	desired, err := r.optionalInteger("DesiredCapacity", 0, most)
	switch {
	case err != nil:
		return err
	case off:
		p.DesiredCapacity = nil
	case desired != nil:
		p.DesiredCapacity = desired
	}
	if d := p.DesiredCapacity; d != nil && (*d < p.MinSize || *d > p.MaxSize) {
		return badRequest("InvalidParameter.Conflict", "DesiredCapacity %d is not between MinSize %d and MaxSize %d.", *d, p.MinSize, p.MaxSize)
	}
	return nil
}

func (p *Pool) modifyWords(r *request) error {
	for name, field := range map[string]*string{
		"ScalingGroupName": &p.Name, "HealthCheckType": &p.HealthCheckType, "MultiAZPolicy": &p.MultiAZPolicy,
	} {
		*field = orElse(r.get(name), *field)
	}
	if !oneOf(p.HealthCheckType, healthCheckECS, healthCheckNone) {
		return invalid("HealthCheckType", p.HealthCheckType)
	}
	if !oneOf(p.MultiAZPolicy, policyPriority, policyBalance, policyCost) {
		return invalid("MultiAZPolicy", p.MultiAZPolicy)
	}
	return nil
}
