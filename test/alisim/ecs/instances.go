package ecs

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// instanceActions answers the requests about instances.
type instanceActions struct{ *Compute }

// lockReason is the reason with which a spot instance is locked before its release.
func (c instanceActions) lockReason() string { return cmp.Or(c.cloud.Temper.LockReason, "Recycling") }

// shownStatus is the status that clients are told.
func (c instanceActions) shownStatus(i *Instance) string {
	if i.Recycling() && c.cloud.Temper.RecyclingIsStopped {
		return Stopped
	}
	return i.Status
}

// maxInstanceIDs is how many instances one DescribeInstances names.
const maxInstanceIDs = 100

type instanceJSON struct {
	InstanceId, InstanceName, HostName, Status, RegionId, ZoneId  string
	InstanceType, InstanceTypeFamily, InstanceChargeType          string
	InstanceNetworkType, OSType, GPUSpec, CreationTime, StartTime string
	Cpu, Memory, GPUAmount                                        int

	SpotStrategy             string
	SpotDuration             int
	SpotPriceLimit           float64
	SpotInterruptionBehavior string

	VpcAttributes  vpcAttributesJSON
	Tags           map[string][]tagJSON
	OperationLocks map[string][]lockJSON
}

type vpcAttributesJSON struct {
	VpcId, VSwitchId string
	PrivateIpAddress map[string][]string
}

type tagJSON struct{ TagKey, TagValue string }

type lockJSON struct{ LockReason, LockMsg string }

func (c instanceActions) instanceJSON(i *Instance) instanceJSON {
	j := instanceJSON{
		InstanceId: i.ID, InstanceName: i.Name, HostName: i.ID, Status: c.shownStatus(i), RegionId: c.cloud.Region, ZoneId: i.VSwitch.Zone,
		InstanceType: i.Type.ID, InstanceTypeFamily: familyOf(i.Type.ID), InstanceChargeType: "PostPaid",
		InstanceNetworkType: "vpc", OSType: "linux", GPUSpec: i.Type.gpuSpec(),
		CreationTime: i.Created.UTC().Format(protocol.MinuteLayout), StartTime: i.Created.UTC().Format(protocol.MinuteLayout),
		Cpu: i.Type.VCPU, Memory: int(i.Type.MemoryGiB * 1024), GPUAmount: i.Type.GPUs,
		SpotStrategy: i.SpotStrategy, SpotPriceLimit: i.PriceLimit,
		VpcAttributes: vpcAttributesJSON{c.VPCID, i.VSwitch.ID, protocol.Wrap("IpAddress", []string{i.IP})},
	}
	if i.IsSpot() {
		j.SpotDuration, j.SpotInterruptionBehavior = i.SpotDuration, "Terminate"
	}
	var tags []tagJSON
	for _, key := range slices.Sorted(maps.Keys(i.Tags)) {
		tags = append(tags, tagJSON{TagKey: key, TagValue: i.Tags[key]})
	}
	if i.GroupID != "" {
		tags = append(tags, tagJSON{TagKey: "acs:autoscaling:scalingGroupId", TagValue: i.GroupID})
	}
	j.Tags = protocol.Wrap("Tag", tags)
	var locks []lockJSON
	if i.Recycling() {
		locks = append(locks, lockJSON{LockReason: c.lockReason()})
	}
	j.OperationLocks = protocol.Wrap("LockReason", locks)
	return j
}

// gpuSpec is Alibaba's name of the GPU, empty where there is none.
func (t Type) gpuSpec() string {
	if t.GPUs == 0 || strings.HasPrefix(t.GPUModel, "NVIDIA") {
		return t.GPUModel
	}
	return "NVIDIA " + t.GPUModel
}

// familyOf cuts the size off: "ecs.gn7i-c8g1.2xlarge" is of family "ecs.gn7i-c8g1".
func familyOf(typeID string) string {
	if at := strings.LastIndexByte(typeID, '.'); at > 0 {
		return typeID[:at]
	}
	return typeID
}

// describeInstances pages by token where the request has MaxResults or a token, else by number.
func (c instanceActions) describeInstances(r *protocol.Request) (protocol.Reply, error) {
	if _, err := r.Required("RegionId"); err != nil {
		return nil, err
	}
	if dry, err := r.Boolean("DryRun", false); err != nil {
		return nil, err
	} else if dry {
		return nil, dryRun()
	}
	found, err := c.findMachines(r)
	if err != nil {
		return nil, err
	}
	if r.Has("MaxResults") || r.Has("NextToken") {
		return c.machinesByToken(found, r)
	}
	pages, err := r.Paging(100)
	if err != nil {
		return nil, err
	}
	return protocol.Reply{
		"TotalCount": found.Len(), "PageNumber": pages.Number, "PageSize": pages.Size, "NextToken": "",
		"Instances": protocol.Wrap("Instance", c.instancesJSON(protocol.Page(found.Items, pages))),
	}, nil
}

func (c instanceActions) machinesByToken(found *cloud.Roster[*Instance], r *protocol.Request) (protocol.Reply, error) {
	size, err := r.Integer("MaxResults", 10, 1, 100)
	if err != nil {
		return nil, err
	}
	from, err := protocol.ParseToken(r.Get("NextToken"))
	if err != nil {
		return nil, err
	}
	list, more := found.After(from, size)
	next := ""
	if more {
		next = protocol.Token(list[len(list)-1])
	}
	return protocol.Reply{
		"TotalCount": found.Len(), "PageNumber": 1, "PageSize": size, "NextToken": next,
		"Instances": protocol.Wrap("Instance", c.instancesJSON(list)),
	}, nil
}

func (c instanceActions) instancesJSON(list []*Instance) []instanceJSON {
	var out []instanceJSON
	for _, i := range list {
		out = append(out, c.instanceJSON(i))
	}
	return out
}

// findMachines returns the instances that the request asks for. The list may be the cloud's own.
func (c instanceActions) findMachines(r *protocol.Request) (*cloud.Roster[*Instance], error) {
	candidates, err := c.lockedFor(r.Get("LockReason"))
	if err != nil {
		return nil, err
	}
	if text := r.Get("InstanceIds"); text != "" {
		named, err := c.machinesOf(text, candidates)
		if err != nil {
			return nil, err
		}
		candidates = named
	}
	wanted, err := c.machineFilter(r)
	if err != nil {
		return nil, err
	}
	var found cloud.Roster[*Instance]
	for _, i := range candidates.Items {
		if wanted(i) {
			found.Items = append(found.Items, i)
		}
	}
	return &found, nil
}

// lockedFor returns the instances that are locked for the reason; all for none.
func (c instanceActions) lockedFor(reason string) (*cloud.Roster[*Instance], error) {
	known := c.cloud.Temper.LockReason
	switch {
	case reason == "":
		return &c.machines, nil
	case reason == known, known == "" && strings.EqualFold(reason, "recycling"):
		return &c.recycling, nil
	case known != "", slices.Contains([]string{"financial", "security", "dedicatedhostfinancial", "refunded"}, reason):
		return &cloud.Roster[*Instance]{}, nil
	}
	return nil, protocol.Invalid("LockReason", reason)
}

func (c instanceActions) machinesOf(text string, among *cloud.Roster[*Instance]) (*cloud.Roster[*Instance], error) {
	var ids []string
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return nil, protocol.BadRequest("InvalidInstanceIds.Malformed", "InstanceIds is not a JSON array of strings.")
	}
	if len(ids) > maxInstanceIDs {
		return nil, protocol.TooMany("InstanceIds", len(ids), maxInstanceIDs)
	}
	var named cloud.Roster[*Instance]
	for _, id := range ids {
		if i, known := c.byID[id]; known {
			if _, listed := among.Place(i.seq); listed {
				named.Add(i)
			}
		}
	}
	return &named, nil
}

// machineFilter says which instances the request wants.
func (c instanceActions) machineFilter(r *protocol.Request) (func(*Instance) bool, error) {
	tags, err := r.Tags()
	zone, typ, status, vsw := r.Get("ZoneId"), r.Get("InstanceType"), r.Get("Status"), r.Get("VSwitchId")
	return func(i *Instance) bool {
		return !i.unlisted && protocol.MatchTags(i.Tags, tags) && (zone == "" || i.VSwitch.Zone == zone) && (typ == "" || i.Type.ID == typ) &&
			(status == "" || c.shownStatus(i) == status) && (vsw == "" || i.VSwitch.ID == vsw)
	}, err
}
