package alisim_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/sdk"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/sdk/endpoints"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/sdk/requests"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/services/ecs"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/services/ess"
)

// The in-tree provider of Cluster Autoscaler carries an old SDK of its own, which cannot be given a port: the simulator
// is its proxy.
func TestTheSDKOfTheInTreeProvider(t *testing.T) {
	s := start(t)
	require.NoError(t, endpoints.AddEndpointMapping(region, "Ess", "ess.simulated"))
	require.NoError(t, endpoints.AddEndpointMapping(region, "Ecs", "ecs.simulated"))
	proxy, err := url.Parse("http://" + s.Endpoint())
	require.NoError(t, err)
	config := sdk.NewConfig().WithHttpTransport(&http.Transport{Proxy: http.ProxyURL(proxy)})
	key := credentials.NewAccessKeyCredential(s.AccessKey().ID, s.AccessKey().Secret)
	scaling, err := ess.NewClientWithOptions(region, config, key)
	require.NoError(t, err)
	machines, err := ecs.NewClientWithOptions(region, config, key)
	require.NoError(t, err)

	groups := ess.CreateDescribeScalingGroupsRequest()
	groups.ScalingGroupId = &[]string{spotGroup}
	found, err := scaling.DescribeScalingGroups(groups)
	require.NoError(t, err)
	require.Len(t, found.ScalingGroups.ScalingGroup, 1)
	group := found.ScalingGroups.ScalingGroup[0]
	assert.Equal(t, region, group.RegionId)

	configurations := ess.CreateDescribeScalingConfigurationsRequest()
	configurations.ScalingConfigurationId1, configurations.ScalingGroupId = group.ActiveScalingConfigurationId, spotGroup
	described, err := scaling.DescribeScalingConfigurations(configurations)
	require.NoError(t, err)
	require.Len(t, described.ScalingConfigurations.ScalingConfiguration, 1)
	assert.Equal(t, small, described.ScalingConfigurations.ScalingConfiguration[0].InstanceType)
	assert.Equal(t, "training", described.ScalingConfigurations.ScalingConfiguration[0].Tags.Tag[0].Value)

	types, err := machines.DescribeInstanceTypes(ecs.CreateDescribeInstanceTypesRequest())
	require.NoError(t, err)
	assert.NotEmpty(t, types.InstanceTypes.InstanceType)

	scale := ess.CreateScaleWithAdjustmentRequest()
	scale.ScalingGroupId, scale.AdjustmentType, scale.AdjustmentValue = spotGroup, "TotalCapacity", requests.NewInteger(2)
	scale.SyncActivity = requests.NewBoolean(true)
	_, err = scaling.ScaleWithAdjustment(scale)
	require.NoError(t, err)
	found, err = scaling.DescribeScalingGroups(groups)
	require.NoError(t, err)
	g := found.ScalingGroups.ScalingGroup[0]
	assert.Equal(t, 2, g.ActiveCapacity+g.PendingCapacity+g.InitCapacity, "the in-tree provider's target size")
	s.settle()
	members := s.members(spotGroup)
	require.Len(t, members, 2)

	remove := ess.CreateRemoveInstancesRequest()
	remove.ScalingGroupId, remove.InstanceId1 = spotGroup, members[0].InstanceId
	_, err = scaling.RemoveInstances(remove)
	require.NoError(t, err)
	s.settle()
	assert.Len(t, s.members(spotGroup), 1)
}
