package client

import (
	"context"
	"slices"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	vpcapi "github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/paging"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

const (
	vpcPageSize = 50
	// maxSingleVSwitches is how many vSwitches are asked for one by one, since the API takes one id. More are selected from a
	// listing of the region.
	maxSingleVSwitches = 10
)

// VPC has the calls to VPC, version 2016-04-28.
type VPC struct{ caller *rpc.Caller }

// VSwitches returns the vSwitches with the ids, without those that do not exist.
func (c *VPC) VSwitches(ctx context.Context, ids []string) ([]alicloud.VSwitch, error) {
	ids = paging.Distinct(ids)
	if len(ids) <= maxSingleVSwitches {
		return paging.Batches(ctx, ids, 1, func(ctx context.Context, ids []string) ([]alicloud.VSwitch, error) {
			p, err := c.vSwitchesPage(ctx, ids[0], 1)
			return withIDs(p.Items, ids), err
		})
	}
	call := paging.Call{Service: alicloud.ServiceVPC, Action: "DescribeVSwitches"}
	all, err := paging.Numbered(ctx, call, vpcPageSize, func(v alicloud.VSwitch) string { return v.ID },
		func(ctx context.Context, number int) (paging.Page[alicloud.VSwitch], error) {
			return c.vSwitchesPage(ctx, "", number)
		})
	return withIDs(all, ids), err
}

func withIDs(all []alicloud.VSwitch, ids []string) []alicloud.VSwitch {
	return slices.DeleteFunc(all, func(v alicloud.VSwitch) bool { return !slices.Contains(ids, v.ID) })
}

func (c *VPC) vSwitchesPage(ctx context.Context, id string, number int) (paging.Page[alicloud.VSwitch], error) {
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*vpcapi.DescribeVSwitchesResponse]{
		Service: alicloud.ServiceVPC, Action: "DescribeVSwitches", Response: vpcapi.CreateDescribeVSwitchesResponse,
		Build: func() requests.AcsRequest {
			q := vpcapi.CreateDescribeVSwitchesRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(vpcPageSize), requests.NewInteger(number)
			q.VSwitchId = id
			return q
		}})
	if err != nil {
		return paging.Page[alicloud.VSwitch]{}, err
	}
	return paging.Page[alicloud.VSwitch]{Items: convert(r.VSwitches.VSwitch, vSwitch), Size: r.PageSize, Total: r.TotalCount}, nil
}

func vSwitch(v *vpcapi.VSwitch) alicloud.VSwitch {
	return alicloud.VSwitch{ID: v.VSwitchId, ZoneID: v.ZoneId, FreeAddresses: int(v.AvailableIpAddressCount)}
}
