package client

import (
	"context"
	"slices"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

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

// SpotStrengths returns how well ESS expects spot instances to be had in a scaling group, for each instance type and zone of it. What is said in
// words that are not known is left out, and so is what cannot be had for another reason than its stock. The reply has no pages.
//
// The price limits of the group are left aside: the request is for spot instances at the market price.
// Source: https://www.alibabacloud.com/help/en/auto-scaling/developer-reference/api-ess-2014-08-28-describeelasticstrength. Without SpotStrategy
// the answer may be about pay-as-you-go instances: NoSpot is its documented default. The page of
// 2022-02-22 says that a strategy in the request overrides that of the scaling configuration.
func (c *ESS) SpotStrengths(ctx context.Context, scalingGroupID string) (found []alicloud.OfferingStrength, err error) {
	r, err := rpc.Send(ctx, c.caller, rpc.Request[*strengthReply]{
		Service: alicloud.ServiceESS, Action: "DescribeElasticStrength",
		Response: func() *strengthReply { return &strengthReply{BaseResponse: &responses.BaseResponse{}} },
		Build: func() requests.AcsRequest {
			q := essapi.CreateDescribeElasticStrengthRequest()
			q.ScalingGroupId, q.SpotStrategy = scalingGroupID, alicloud.SpotAsPriceGo
			return q
		}})
	if err != nil {
		return nil, err
	}
	for _, p := range r.ResourcePools {
		if strength := p.strength(); slices.Contains(alicloud.Strengths, strength) && p.isOfStock() {
			found = append(found, alicloud.OfferingStrength{InstanceType: p.InstanceType, ZoneID: p.ZoneId, Strength: strength})
		}
	}
	return found, nil
}

// strengthReply is essapi.DescribeElasticStrengthResponse with the ElasticStrength of each resource pool, which the SDK (v1.63.107) lacks.
type strengthReply struct {
	*responses.BaseResponse
	ResourcePools []resourcePool
}

// resourcePool is what is said of an instance type in a zone.
type resourcePool struct {
	essapi.ResourcePool
	ElasticStrength string
	// InventoryHealth, or its score, is nil if the reply does not have it.
	InventoryHealth *struct{ HealthScore *int }
}

// isOfStock returns whether the stock alone decides what is said: the resource pool is available, or sold out. It is unavailable, too, if
// the instance type does not go with the image or the disks of the group, for example, which the Code says.
func (p *resourcePool) isOfStock() bool {
	return p.Status == "Available" && p.Code == "" || alicloud.IsSoldOut(p.Code)
}

// strength returns ElasticStrength. Where the reply has none, as in the SDK of 2014-08-28, it is that of the band in which the score of the
// inventory is: high confidence in supply, supply is not guaranteed, or a supply health alert. It is "" where there is neither.
// Source: HealthScore, doc comments of ESS 2022-02-22 (alibabacloud-csharp-sdk). That a band goes with a strength is not documented: what either
// means is learnt from purchases.
func (p *resourcePool) strength() alicloud.Strength {
	switch {
	case p.ElasticStrength != "" || p.InventoryHealth == nil || p.InventoryHealth.HealthScore == nil:
		return alicloud.Strength(p.ElasticStrength)
	case *p.InventoryHealth.HealthScore >= 5:
		return alicloud.Strong
	case *p.InventoryHealth.HealthScore >= 1:
		return alicloud.Medium
	}
	return alicloud.Weak
}
