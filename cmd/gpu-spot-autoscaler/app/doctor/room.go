package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
)

// growth is how many more instances the pool may have.
func growth(p *pool.Pool) int {
	return max(0, min(p.MaxSize, p.Group.MaxSize)-p.Group.TotalCapacity)
}

// checkRoom checks the maximum of each scaling group, and the addresses of its vSwitches.
func (e *cloudExam) checkRoom() {
	for _, id := range slices.Sorted(maps.Keys(e.pools)) {
		p := e.pools[id]
		switch group := p.Group; {
		case group.MaxSize == 0 || p.MaxSize == 0:
			e.report.add(GroupMaximum, Error, id, "its maximum is 0, so that nothing can be bought", "Raise the maximum of the scaling group, or "+api.TagMaxSize)
		case group.TotalCapacity >= group.MaxSize:
			e.report.add(GroupMaximum, Warning, id, fmt.Sprintf("the scaling group has %d instances of %d, so that nothing can be bought", group.TotalCapacity, group.MaxSize),
				"Raise the maximum of the scaling group")
		case p.Spot && p.MaxSize >= group.MaxSize:
			e.report.add(NoReserve, Warning, id,
				fmt.Sprintf("the pool may grow to %d, which is all that its scaling group holds, so that at the maximum a reclaiming instance is replaced only after its release", p.MaxSize),
				fmt.Sprintf("Set %s below %d, or raise the maximum of the scaling group", api.TagMaxSize, group.MaxSize))
		}
		e.checkAddresses(p)
	}
}

func (e *cloudExam) checkAddresses(p *pool.Pool) {
	free, known := 0, 0
	for _, id := range p.Group.VSwitchIDs {
		vswitch, ok := e.read.vswitches[id]
		if !ok {
			continue // which is another finding
		}
		known++
		free += vswitch.FreeAddresses
		if vswitch.FreeAddresses == 0 {
			e.report.add(FewAddresses, Error, id, fmt.Sprintf("the vSwitch has no free address, so that nothing can be bought in it (zone %s)", vswitch.ZoneID),
				"Free addresses, or give the scaling group another vSwitch of the zone")
		}
	}
	if more := growth(p); known > 0 && 0 < free && free < more {
		e.report.add(FewAddresses, Warning, p.ID, fmt.Sprintf("its vSwitches have %d free addresses, and %d more instances may be bought", free, more),
			"Give the scaling group further vSwitches, or lower "+api.TagMaxSize+"; with Terway pods take addresses, too")
	}
}

// checkQuota compares the quota of vCPUs of spot instances with what the pools may buy at least, which is their smallest type.
func (e *cloudExam) checkQuota(ctx context.Context) {
	smallest, wanted := 0, 0
	for _, p := range e.pools {
		if !p.Spot || growth(p) == 0 {
			continue
		}
		of := slices.MinFunc(p.Offerings, func(a, b *pool.Offering) int { return a.Type.VCPU - b.Type.VCPU }).Type.VCPU
		if smallest == 0 || of < smallest {
			smallest = of
		}
		wanted += growth(p) * of
	}
	if wanted == 0 {
		return
	}
	quota, err := e.Cloud.SpotVCPUQuota(ctx)
	if err != nil {
		// The autoscaler does without it, so that its policy does not allow it.
		e.report.notProven("the quota of vCPUs of spot instances: " + alicloud.Brief(err))
		return
	}
	const mend = "Have the quota of vCPUs of spot instances raised, in the Quota Center"
	switch left := quota.Max - quota.Used; {
	case left < smallest:
		e.report.add(VCPUQuota, Error, "", fmt.Sprintf("of the quota of %d vCPUs of spot instances in %s %d are left, and the smallest instance of the pools has %d",
			quota.Max, e.Region, max(0, left), smallest), mend)
	case left < wanted:
		e.report.add(VCPUQuota, Warning, "", fmt.Sprintf("of the quota of %d vCPUs of spot instances in %s %d are left, and the pools may grow by %d vCPUs at least",
			quota.Max, e.Region, left, wanted), mend+", or lower "+api.TagMaxSize)
	}
}
