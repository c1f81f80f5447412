package ecs

import (
	"fmt"
	"slices"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// DeleteVSwitch deletes a vSwitch in which nothing is. Scaling groups that name it go on naming it.
func (c Supply) DeleteVSwitch(id string) error {
	deleted, known := c.vswitches[id]
	switch {
	case !known:
		return fmt.Errorf("there is no vSwitch %q", id)
	case deleted.used > 0:
		return fmt.Errorf("vSwitch %q has %d instances", id, deleted.used)
	}
	deleted.AvailableIPs = 0
	c.VSwitches = slices.DeleteFunc(c.VSwitches, func(v VSwitch) bool { return v.ID == id })
	return nil
}

type vswitchJSON struct {
	VSwitchId, VSwitchName, VpcId, ZoneId, Status, CidrBlock string

	AvailableIpAddressCount int
}

// vswitchActions answers the requests about vSwitches.
type vswitchActions struct{ *Compute }

func (c vswitchActions) describeVSwitches(r *protocol.Request) (protocol.Reply, error) {
	pages, err := r.Paging(50)
	if err != nil {
		return nil, err
	}
	if !r.Has("RegionId") && !r.Has("VpcId") {
		return nil, protocol.Missing("RegionId")
	}
	id, zone, vpc := r.Get("VSwitchId"), r.Get("ZoneId"), r.Get("VpcId")
	found := slices.DeleteFunc(slices.Clone(c.VSwitches), func(v VSwitch) bool {
		return id != "" && v.ID != id || zone != "" && v.Zone != zone || vpc != "" && vpc != c.VPCID
	})
	var list []vswitchJSON
	for _, v := range protocol.Page(found, pages) {
		list = append(list, vswitchJSON{
			VSwitchId: v.ID, VSwitchName: v.ID, VpcId: c.VPCID, ZoneId: v.Zone, Status: "Available", CidrBlock: "10.0.0.0/8",
			AvailableIpAddressCount: v.AvailableIPs - c.vswitches[v.ID].used,
		})
	}
	return protocol.Reply{
		"TotalCount": len(found), "PageNumber": pages.Number, "PageSize": pages.Size, "VSwitches": protocol.Wrap("VSwitch", list),
	}, nil
}
