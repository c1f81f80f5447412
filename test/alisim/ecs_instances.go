package alisim

import (
	"encoding/json"
	"strings"
)

// lockRecycling is the reason with which a spot instance is locked before its release.
const lockRecycling = "Recycling"

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
	Tags           map[string][]groupTagJSON
	OperationLocks map[string][]lockJSON
}

type vpcAttributesJSON struct {
	VpcId, VSwitchId string
	PrivateIpAddress map[string][]string
}

type lockJSON struct{ LockReason, LockMsg string }

func (c *cloud) instanceJSON(i *instance) instanceJSON {
	j := instanceJSON{
		InstanceId: i.id, InstanceName: "ESS-" + i.group.ID, HostName: i.id, Status: i.status, RegionId: c.world.Region, ZoneId: i.vsw.Zone,
		InstanceType: i.typ.ID, InstanceTypeFamily: familyOf(i.typ.ID), InstanceChargeType: "PostPaid",
		InstanceNetworkType: "vpc", OSType: "linux", GPUSpec: i.typ.gpuSpec(),
		CreationTime: i.created.UTC().Format(minuteLayout), StartTime: i.created.UTC().Format(minuteLayout),
		Cpu: i.typ.VCPU, Memory: int(i.typ.MemoryGiB * 1024), GPUAmount: i.typ.GPUs,
		SpotStrategy: i.spotStrategy, SpotPriceLimit: i.priceLimit,
		VpcAttributes: vpcAttributesJSON{c.world.VPCID, i.vsw.ID, wrap("IpAddress", []string{i.ip})},
	}
	if i.isSpot() {
		j.SpotDuration, j.SpotInterruptionBehavior = i.spotDuration, "Terminate"
	}
	j.Tags = wrap("Tag", []groupTagJSON{{TagKey: "acs:autoscaling:scalingGroupId", TagValue: i.group.ID}})
	var locks []lockJSON
	if i.recycling() {
		locks = append(locks, lockJSON{LockReason: lockRecycling})
	}
	j.OperationLocks = wrap("LockReason", locks)
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
func describeInstances(c *cloud, r *request) (reply, error) {
	if _, err := r.required("RegionId"); err != nil {
		return nil, err
	}
	found, err := c.findMachines(r)
	if err != nil {
		return nil, err
	}
	if r.has("MaxResults") || r.has("NextToken") {
		return c.machinesByToken(found, r)
	}
	pages, err := r.paging(100)
	if err != nil {
		return nil, err
	}
	return reply{
		"TotalCount": found.len(), "PageNumber": pages.number, "PageSize": pages.size, "NextToken": "",
		"Instances": wrap("Instance", c.instancesJSON(page(found.items, pages.number, pages.size))),
	}, nil
}

func (c *cloud) machinesByToken(found *roster[*instance], r *request) (reply, error) {
	size, err := r.integer("MaxResults", 10, 10, 100)
	if err != nil {
		return nil, err
	}
	from, err := parseToken(r.get("NextToken"))
	if err != nil {
		return nil, err
	}
	list, more := found.after(from, size)
	next := ""
	if more {
		next = token(list[len(list)-1])
	}
	return reply{
		"TotalCount": found.len(), "PageNumber": 1, "PageSize": size, "NextToken": next,
		"Instances": wrap("Instance", c.instancesJSON(list)),
	}, nil
}

func (c *cloud) instancesJSON(list []*instance) []instanceJSON {
	var out []instanceJSON
	for _, i := range list {
		out = append(out, c.instanceJSON(i))
	}
	return out
}

// findMachines returns the instances that the request asks for. The list may be the cloud's own.
func (c *cloud) findMachines(r *request) (*roster[*instance], error) {
	candidates := &c.machines
	switch lock := r.get("LockReason"); lock {
	case "":
	case lockRecycling:
		candidates = &c.recycling
	case "financial", "security", "dedicatedhostfinancial", "refunded":
		candidates = &roster[*instance]{}
	default:
		return nil, invalid("LockReason", lock)
	}
	if text := r.get("InstanceIds"); text != "" {
		named, err := c.machinesOf(text, candidates)
		if err != nil {
			return nil, err
		}
		candidates = named
	}
	wanted := machineFilter(r)
	if wanted == nil {
		return candidates, nil
	}
	var found roster[*instance]
	for _, i := range candidates.items {
		if wanted(i) {
			found.items = append(found.items, i)
		}
	}
	return &found, nil
}

func (c *cloud) machinesOf(text string, among *roster[*instance]) (*roster[*instance], error) {
	var ids []string
	if err := json.Unmarshal([]byte(text), &ids); err != nil {
		return nil, badRequest("InvalidInstanceIds.Malformed", "InstanceIds is not a JSON array of strings.")
	}
	if len(ids) > maxInstanceIDs {
		return nil, tooMany("InstanceIds", len(ids), maxInstanceIDs)
	}
	var named roster[*instance]
	for _, id := range ids {
		if i, known := c.instanceBy[id]; known {
			if _, listed := among.place(i.seq); listed {
				named.add(i)
			}
		}
	}
	return &named, nil
}

// machineFilter is nil where the request wants every instance.
func machineFilter(r *request) func(*instance) bool {
	zone, typ, status, vsw := r.get("ZoneId"), r.get("InstanceType"), r.get("Status"), r.get("VSwitchId")
	if zone == "" && typ == "" && status == "" && vsw == "" {
		return nil
	}
	return func(i *instance) bool {
		return (zone == "" || i.vsw.Zone == zone) && (typ == "" || i.typ.ID == typ) &&
			(status == "" || i.status == status) && (vsw == "" || i.vsw.ID == vsw)
	}
}
