package alicloud

import (
	"context"
	"slices"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	vpcapi "github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
)

const vpc = "vpc"

const (
	vpcPageSize = 50
	// fewVSwitches are asked for one by one, since the API takes one id; more are picked from a listing of the region.
	fewVSwitches = 10
)

// VSwitches returns the subnets of the ids; those that do not exist are left out.
func (c *Client) VSwitches(ctx context.Context, ids []string) ([]VSwitch, error) {
	ids = distinct(ids)
	if len(ids) <= fewVSwitches {
		return inBatches(ctx, ids, 1, func(ctx context.Context, ids []string) ([]VSwitch, error) {
			p, err := c.vSwitchesPage(ctx, ids[0], 1)
			return only(p.items, ids), err
		})
	}
	all, err := listPages(ctx, vpcPageSize, func(v VSwitch) string { return v.ID },
		func(ctx context.Context, number int) (page[VSwitch], error) { return c.vSwitchesPage(ctx, "", number) })
	return only(all, ids), err
}

func only(all []VSwitch, ids []string) []VSwitch {
	return slices.DeleteFunc(all, func(v VSwitch) bool { return !slices.Contains(ids, v.ID) })
}

func (c *Client) vSwitchesPage(ctx context.Context, id string, number int) (page[VSwitch], error) {
	r, err := send(ctx, c, request[*vpcapi.DescribeVSwitchesResponse]{
		service: vpc, action: "DescribeVSwitches", response: vpcapi.CreateDescribeVSwitchesResponse,
		build: func() requests.AcsRequest {
			q := vpcapi.CreateDescribeVSwitchesRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(vpcPageSize), requests.NewInteger(number)
			q.VSwitchId = id
			return q
		}})
	if err != nil {
		return page[VSwitch]{}, err
	}
	return page[VSwitch]{convert(r.VSwitches.VSwitch, vSwitch), r.PageSize, r.TotalCount}, nil
}

func vSwitch(v *vpcapi.VSwitch) VSwitch {
	return VSwitch{ID: v.VSwitchId, ZoneID: v.ZoneId, AvailableIP: int(v.AvailableIpAddressCount)}
}
