package client

import (
	"context"
	"slices"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// SpotStock returns what ECS says of the stock of spot instances of the type, for each zone that sells it. What is said in words that are not
// known is left out. The reply has no pages.
// Source: https://www.alibabacloud.com/help/en/ecs/developer-reference/api-ecs-2014-05-26-describeavailableresource. SpotStrategy needs the
// InstanceChargeType PostPaid.
func (c *ECS) SpotStock(ctx context.Context, instanceType string) (found []alicloud.Stock, err error) {
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*ecsapi.DescribeAvailableResourceResponse]{
		Service: alicloud.ServiceECS, Action: "DescribeAvailableResource", Response: ecsapi.CreateDescribeAvailableResourceResponse,
		Build: func() requests.AcsRequest {
			q := ecsapi.CreateDescribeAvailableResourceRequest()
			q.DestinationResource, q.InstanceType, q.IoOptimized = "InstanceType", instanceType, "optimized"
			q.InstanceChargeType, q.SpotStrategy, q.NetworkCategory = "PostPaid", "SpotAsPriceGo", "vpc"
			return q
		}})
	if err != nil {
		return nil, err
	}
	for _, zone := range r.AvailableZones.AvailableZone {
		for _, resource := range zone.AvailableResources.AvailableResource {
			for _, s := range resource.SupportedResources.SupportedResource {
				category := alicloud.StockCategory(s.StatusCategory)
				if s.Value == instanceType && slices.Contains(alicloud.StockCategories, category) {
					found = append(found, alicloud.Stock{ZoneID: zone.ZoneId, Category: category})
				}
			}
		}
	}
	return found, nil
}
