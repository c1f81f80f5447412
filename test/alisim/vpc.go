package alisim

import "slices"

type vswitchJSON struct {
	VSwitchId, VSwitchName, VpcId, ZoneId, Status, CidrBlock string

	AvailableIpAddressCount int
}

func describeVSwitches(c *cloud, r *request) (reply, error) {
	pages, err := r.paging(50)
	if err != nil {
		return nil, err
	}
	if !r.has("RegionId") && !r.has("VpcId") {
		return nil, missing("RegionId")
	}
	id, zone, vpc := r.get("VSwitchId"), r.get("ZoneId"), r.get("VpcId")
	found := slices.DeleteFunc(slices.Clone(c.world.VSwitches), func(v VSwitch) bool {
		return id != "" && v.ID != id || zone != "" && v.Zone != zone || vpc != "" && vpc != c.world.VPCID
	})
	var list []vswitchJSON
	for _, v := range page(found, pages.number, pages.size) {
		list = append(list, vswitchJSON{
			VSwitchId: v.ID, VSwitchName: v.ID, VpcId: c.world.VPCID, ZoneId: v.Zone, Status: "Available", CidrBlock: "10.0.0.0/8",
			AvailableIpAddressCount: v.AvailableIPs - c.vswitches[v.ID].used,
		})
	}
	return reply{
		"TotalCount": len(found), "PageNumber": pages.number, "PageSize": pages.size, "VSwitches": wrap("VSwitch", list),
	}, nil
}
