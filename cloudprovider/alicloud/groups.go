package alicloud

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
)

// GroupFilter narrows a listing of scaling groups. The zero filter is all of the region.
type GroupFilter struct {
	IDs []string
	// Tags must all be on the group; an empty value stands for any.
	Tags map[string]string
}

// ScalingGroups lists scaling groups, ordered by id. Ids that do not exist are left out.
func (c *Client) ScalingGroups(ctx context.Context, filter GroupFilter) ([]ScalingGroup, error) {
	list := func(ctx context.Context, ids []string) ([]ScalingGroup, error) {
		return listPages(ctx, essPageSize, func(g ScalingGroup) string { return g.ID },
			func(ctx context.Context, number int) (page[ScalingGroup], error) {
				return c.scalingGroupsPage(ctx, ids, filter.Tags, number)
			})
	}
	var groups []ScalingGroup
	var err error
	if len(filter.IDs) == 0 {
		groups, err = list(ctx, nil)
	} else {
		groups, err = inBatches(ctx, filter.IDs, essIDBatch, list)
	}
	if err != nil {
		return nil, err
	}
	groups = slices.DeleteFunc(groups, func(g ScalingGroup) bool { return !hasTags(g.Tags, filter.Tags) })
	slices.SortFunc(groups, func(a, b ScalingGroup) int { return cmp.Compare(a.ID, b.ID) })
	return groups, nil
}

func (c *Client) scalingGroupsPage(ctx context.Context, ids []string, tags map[string]string, number int) (page[ScalingGroup], error) {
	r, err := send(ctx, c, request[*groupsReply]{
		service: ess, action: "DescribeScalingGroups", response: newGroupsReply,
		build: func() requests.AcsRequest {
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
		return page[ScalingGroup]{}, err
	}
	return page[ScalingGroup]{convert(r.ScalingGroups.ScalingGroup, scalingGroup), r.PageSize, r.TotalCount}, nil
}

// hasTags guards against a service that does not know the filter: what is not ours must not be managed.
func hasTags(tags, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := tags[key]; !ok || (value != "" && got != value) {
			return false
		}
	}
	return true
}

// groupsReply is essapi.DescribeScalingGroupsResponse but for fields whose absence says something else than their zero.
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

func scalingGroup(g *groupReply) ScalingGroup {
	out := ScalingGroup{
		ID: g.ScalingGroupId, Name: g.ScalingGroupName, RegionID: g.RegionId,
		MinSize: g.MinSize, MaxSize: g.MaxSize, TotalCapacity: g.TotalCapacity,
		LifecycleState: g.LifecycleState, SystemSuspended: g.SystemSuspended,
		SuspendedProcess:             g.SuspendedProcesses.SuspendedProcess,
		ActiveScalingConfigurationID: g.ActiveScalingConfigurationId,
		LaunchTemplateID:             g.LaunchTemplateId, LaunchTemplateVersion: g.LaunchTemplateVersion,
		VSwitchIDs: g.VSwitchIds.VSwitchId, MultiAZPolicy: g.MultiAZPolicy,
		HealthCheckType: g.HealthCheckType, DefaultCooldown: time.Duration(g.DefaultCooldown) * time.Second,
		Tags: tags(g.Tags.Tag),
	}
	g.purchaseOptions(&out)
	// Where the switch is not told, the number tells.
	if on := g.EnableDesiredCapacity; on != nil && *on || on == nil && g.DesiredCapacity > 0 {
		out.DesiredCapacity = &g.DesiredCapacity
	}
	if len(out.VSwitchIDs) == 0 && g.VSwitchId != "" {
		out.VSwitchIDs = []string{g.VSwitchId}
	}
	for _, o := range g.LaunchTemplateOverrides.LaunchTemplateOverride {
		out.LaunchTemplateTypes = append(out.LaunchTemplateTypes, o.InstanceType)
	}
	return out
}

// purchaseOptions tells what the group buys otherwise than its configuration says. The settings stand in the group or, of
// late, in CapacityOptions.
func (g *groupReply) purchaseOptions(out *ScalingGroup) {
	options := g.CapacityOptions
	out.CompensateWithOnDemand = g.CompensateWithOnDemand || options.CompensateWithOnDemand
	out.SpotInstanceRemedy, out.SpotAutoReplaceOnDemand = g.SpotInstanceRemedy, options.SpotAutoReplaceOnDemand
	out.OnDemandBase = largest(g.OnDemandBaseCapacity, options.OnDemandBaseCapacity)
	out.OnDemandPercentage = largest(g.OnDemandPercentageAboveBaseCapacity, options.OnDemandPercentageAboveBaseCapacity)
	unsaid := g.OnDemandPercentageAboveBaseCapacity == nil && options.OnDemandPercentageAboveBaseCapacity == nil
	if g.MultiAZPolicy == MultiAZComposable && unsaid {
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
