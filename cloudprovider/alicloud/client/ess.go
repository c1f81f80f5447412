package client

import (
	"cmp"
	"context"
	"slices"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/paging"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// What ESS takes in one request at most.
const (
	essPageSize        = 50
	instancesPageSize  = 100
	essIDBatch         = 20 // groups, instances, activities
	configurationBatch = 10
)

// ESS has the calls to Auto Scaling, version 2014-08-28.
type ESS struct{ caller *rpc.Caller }

// ScalingInstances lists the instances of scaling groups, ordered by id. Pages are fetched concurrently.
func (c *ESS) ScalingInstances(ctx context.Context, filter alicloud.InstanceFilter) ([]alicloud.ScalingInstance, error) {
	list := func(ctx context.Context, ids []string) ([]alicloud.ScalingInstance, error) {
		call := paging.Call{Service: alicloud.ServiceESS, Action: "DescribeScalingInstances"}
		return paging.Numbered(ctx, call, instancesPageSize, func(i alicloud.ScalingInstance) string { return i.ID },
			func(ctx context.Context, number int) (paging.Page[alicloud.ScalingInstance], error) {
				return c.scalingInstancesPage(ctx, filter.ScalingGroupID, ids, number)
			})
	}
	if len(filter.IDs) == 0 {
		return list(ctx, nil)
	}
	instances, err := paging.Batches(ctx, filter.IDs, essIDBatch, list)
	slices.SortFunc(instances, func(a, b alicloud.ScalingInstance) int { return cmp.Compare(a.ID, b.ID) })
	return instances, err
}

func (c *ESS) scalingInstancesPage(ctx context.Context, groupID string, ids []string, number int) (paging.Page[alicloud.ScalingInstance], error) {
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*essapi.DescribeScalingInstancesResponse]{
		Service: alicloud.ServiceESS, Action: "DescribeScalingInstances", Response: essapi.CreateDescribeScalingInstancesResponse,
		Build: func() requests.AcsRequest {
			q := essapi.CreateDescribeScalingInstancesRequest()
			q.PageSize, q.PageNumber = requests.NewInteger(instancesPageSize), requests.NewInteger(number)
			q.ScalingGroupId, q.InstanceId = groupID, listOf(ids)
			return q
		}})
	if err != nil {
		return paging.Page[alicloud.ScalingInstance]{}, err
	}
	return paging.Page[alicloud.ScalingInstance]{
		Items: convert(r.ScalingInstances.ScalingInstance, scalingInstance), Size: r.PageSize, Total: r.TotalCount,
	}, nil
}

// ScalingConfigurations returns the configurations with the ids, without those that do not exist.
func (c *ESS) ScalingConfigurations(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error) {
	return paging.Batches(ctx, ids, configurationBatch, func(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error) {
		r, err := rpc.Send(ctx, c.caller, rpc.Request[*essapi.DescribeScalingConfigurationsResponse]{
			Service: alicloud.ServiceESS, Action: "DescribeScalingConfigurations", Response: essapi.CreateDescribeScalingConfigurationsResponse,
			Build: func() requests.AcsRequest {
				q := essapi.CreateDescribeScalingConfigurationsRequest()
				q.PageSize, q.ScalingConfigurationId = requests.NewInteger(essPageSize), listOf(ids)
				return q
			}})
		if err != nil {
			return nil, err
		}
		return convert(r.ScalingConfigurations.ScalingConfiguration, scalingConfiguration), nil
	})
}
