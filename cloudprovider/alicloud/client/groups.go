package client

import (
	"cmp"
	"context"
	"slices"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/paging"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// ScalingGroups lists scaling groups, ordered by id, without those that do not exist.
func (c *ESS) ScalingGroups(ctx context.Context, filter alicloud.GroupFilter) ([]alicloud.ScalingGroup, error) {
	list := func(ctx context.Context, ids []string) ([]alicloud.ScalingGroup, error) {
		call := paging.Call{Service: alicloud.ServiceESS, Action: "DescribeScalingGroups"}
		return paging.Numbered(ctx, call, essPageSize, func(g alicloud.ScalingGroup) string { return g.ID },
			func(ctx context.Context, number int) (paging.Page[alicloud.ScalingGroup], error) {
				return c.scalingGroupsPage(ctx, ids, filter.Tags, number)
			})
	}
	var groups []alicloud.ScalingGroup
	var err error
	if len(filter.IDs) == 0 {
		groups, err = list(ctx, nil)
	} else {
		groups, err = paging.Batches(ctx, filter.IDs, essIDBatch, list)
	}
	if err != nil {
		return nil, err
	}
	groups = slices.DeleteFunc(groups, func(g alicloud.ScalingGroup) bool { return !hasTags(g.Tags, filter.Tags) })
	slices.SortFunc(groups, func(a, b alicloud.ScalingGroup) int { return cmp.Compare(a.ID, b.ID) })
	return groups, nil
}

func (c *ESS) scalingGroupsPage(ctx context.Context, ids []string, tags map[string]string, number int) (paging.Page[alicloud.ScalingGroup], error) {
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*groupsReply]{
		Service: alicloud.ServiceESS, Action: "DescribeScalingGroups", Response: newGroupsReply,
		Build: func() requests.AcsRequest {
			q := essapi.CreateDescribeScalingGroupsRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(essPageSize), requests.NewInteger(number)
			q.ScalingGroupId = listOf(ids)
			if len(tags) > 0 {
				q.Tag = &[]essapi.DescribeScalingGroupsTag{}
			}
			for key, value := range tags {
				*q.Tag = append(*q.Tag, essapi.DescribeScalingGroupsTag{Key: key, Value: value})
			}
			return q
		}})
	if err != nil {
		return paging.Page[alicloud.ScalingGroup]{}, err
	}
	return paging.Page[alicloud.ScalingGroup]{
		Items: convert(r.ScalingGroups.ScalingGroup, scalingGroup), Size: r.PageSize, Total: r.TotalCount,
	}, nil
}

// hasTags checks the service's own filter, since a group without the tags must not be managed.
func hasTags(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := tags[key]; !ok || (value != "" && got != value) {
			return false
		}
	}
	return true
}

// groupsReply is essapi.DescribeScalingGroupsResponse with pointers for fields whose absence means something other than 0.
type groupsReply struct {
	*responses.BaseResponse
	PageSize      int
	TotalCount    int
	ScalingGroups struct{ ScalingGroup []groupReply }
}

func newGroupsReply() *groupsReply { return &groupsReply{BaseResponse: &responses.BaseResponse{}} }

type groupReply struct {
	essapi.ScalingGroup
	EnableDesiredCapacity               *bool
	OnDemandBaseCapacity                *int
	OnDemandPercentageAboveBaseCapacity *int
	CapacityOptions                     struct {
		OnDemandBaseCapacity                *int
		OnDemandPercentageAboveBaseCapacity *int
		CompensateWithOnDemand              bool
		SpotAutoReplaceOnDemand             bool
	}
}

func scalingGroup(g *groupReply) alicloud.ScalingGroup {
	out := alicloud.ScalingGroup{
		ID: g.ScalingGroupId, Name: g.ScalingGroupName, RegionID: g.RegionId,
		MinSize: g.MinSize, MaxSize: g.MaxSize, TotalCapacity: g.TotalCapacity,
		LifecycleState: g.LifecycleState, SystemSuspended: g.SystemSuspended,
		SuspendedProcess:             g.SuspendedProcesses.SuspendedProcess,
		ActiveScalingConfigurationID: g.ActiveScalingConfigurationId,
		LaunchTemplateID:             g.LaunchTemplateId,
		VSwitchIDs:                   g.VSwitchIds.VSwitchId, MultiAZPolicy: g.MultiAZPolicy,
		Tags: tags(g.Tags.Tag),
	}
	g.purchaseOptions(&out)
	// If the reply lacks the switch, a desired capacity above 0 shows that the group has one.
	if on := g.EnableDesiredCapacity; on != nil && *on || on == nil && g.DesiredCapacity > 0 {
		out.DesiredCapacity = &g.DesiredCapacity
	}
	if len(out.VSwitchIDs) == 0 && g.VSwitchId != "" {
		out.VSwitchIDs = []string{g.VSwitchId}
	}
	return out
}

// purchaseOptions sets what makes the group buy differently from its configuration. The settings are in the group itself or,
// in newer replies, in CapacityOptions.
func (g *groupReply) purchaseOptions(out *alicloud.ScalingGroup) {
	options := g.CapacityOptions
	out.CompensateWithOnDemand = g.CompensateWithOnDemand || options.CompensateWithOnDemand
	out.SpotInstanceRemedy, out.SpotAutoReplaceOnDemand = g.SpotInstanceRemedy, options.SpotAutoReplaceOnDemand
	out.OnDemandBase = largest(g.OnDemandBaseCapacity, options.OnDemandBaseCapacity)
	out.OnDemandPercentage = largest(g.OnDemandPercentageAboveBaseCapacity, options.OnDemandPercentageAboveBaseCapacity)
	unset := g.OnDemandPercentageAboveBaseCapacity == nil && options.OnDemandPercentageAboveBaseCapacity == nil
	if g.MultiAZPolicy == alicloud.MultiAZComposable && unset {
		out.OnDemandPercentage = 100
	}
}

func largest(values ...*int) (n int) {
	for _, value := range values {
		if value != nil {
			n = max(n, *value)
		}
	}
	return n
}
