package alisim_test

import (
	"fmt"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
)

func groupTags(g ess.ScalingGroup) map[string]string {
	out := map[string]string{}
	for _, t := range g.Tags.Tag {
		out[t.TagKey] = t.TagValue
	}
	return out
}

func TestAGroupAsTheSDKReadsIt(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		p := &w.Pools[0]
		p.Name, p.MinSize, p.MultiAZPolicy, p.SpotInstanceRemedy = "vision", 1, "BALANCE", true
		p.DesiredCapacity, p.Instances, p.SuspendedProcesses = ptr.To(2), 2, []string{"AlarmNotification"}
		p.DefaultCooldown, p.SystemSuspended = ptr.To(60), true
	})
	g := s.group(spotGroup)
	assert.Equal(t, "vision", g.ScalingGroupName)
	assert.Equal(t, region, g.RegionId)
	assert.Equal(t, []int{1, 20, 2, 60}, []int{g.MinSize, g.MaxSize, g.DesiredCapacity, g.DefaultCooldown})
	assert.Equal(t, []int{2, 2, 2}, []int{g.TotalCapacity, g.ActiveCapacity, g.SpotCapacity})
	assert.Equal(t, []bool{true, true, true, false}, []bool{g.EnableDesiredCapacity, g.SystemSuspended, g.SpotInstanceRemedy, g.CompensateWithOnDemand})
	assert.Equal(t, []string{"Active", "BALANCE", "ECS"}, []string{g.LifecycleState, g.MultiAZPolicy, g.HealthCheckType})
	assert.Equal(t, []string{vswA, vswB, vswC}, g.VSwitchIds.VSwitchId)
	assert.Equal(t, []string{"AlarmNotification"}, g.SuspendedProcesses.SuspendedProcess)
	assert.Equal(t, spotPool().Tags, groupTags(g))
	assert.NotEmpty(t, g.ActiveScalingConfigurationId)

	plain := s.group(onDemandGroup)
	assert.False(t, plain.EnableDesiredCapacity)
	assert.True(t, plain.CompensateWithOnDemand, "the default that surprises people")
}

func TestGroupsAreFoundByIDTagAndName(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*ess.DescribeScalingGroupsRequest)
		want   []string
	}{
		{"all", func(*ess.DescribeScalingGroupsRequest) {}, []string{spotGroup, onDemandGroup}},
		{"ids, unknown ones left out", func(r *ess.DescribeScalingGroupsRequest) {
			r.ScalingGroupId = &[]string{"asg-x", onDemandGroup}
		}, []string{onDemandGroup}},
		{"tag and value", func(r *ess.DescribeScalingGroupsRequest) {
			r.Tag = &[]ess.DescribeScalingGroupsTag{{Key: "team", Value: "vision"}}
		}, []string{spotGroup}},
		{"tag with another value", func(r *ess.DescribeScalingGroupsRequest) {
			r.Tag = &[]ess.DescribeScalingGroupsTag{{Key: "team", Value: "speech"}}
		}, nil},
		{"tag whatever its value", func(r *ess.DescribeScalingGroupsRequest) {
			r.Tag = &[]ess.DescribeScalingGroupsTag{{Key: "team"}}
		}, []string{spotGroup}},
		{"all tags, not any", func(r *ess.DescribeScalingGroupsRequest) {
			r.Tag = &[]ess.DescribeScalingGroupsTag{{Key: "team"}, {Key: "nothing"}}
		}, nil},
		{"name", func(r *ess.DescribeScalingGroupsRequest) { r.ScalingGroupName = spotGroup }, []string{spotGroup}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t)
			r := ess.CreateDescribeScalingGroupsRequest()
			test.change(r)
			resp, err := s.ess.DescribeScalingGroups(r)
			require.NoError(t, err)
			var got []string
			for _, g := range resp.ScalingGroups.ScalingGroup {
				got = append(got, g.ScalingGroupId)
			}
			assert.Equal(t, test.want, got)
			assert.Equal(t, len(test.want), resp.TotalCount)
		})
	}
}

func TestAnEmptyRegionHasEmptyLists(t *testing.T) {
	s := startWorld(t, alisim.World{Region: region}, alisim.Options{})
	groups, err := s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	require.NoError(t, err)
	assert.Zero(t, groups.TotalCount)
	assert.NotContains(t, groups.GetHttpContentString(), "null", "an empty list is a list")
	assert.Empty(t, s.machines(nil))
}

func TestConfigurationsAsTheSDKReadsThem(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		p := &w.Pools[0]
		p.SpotStrategy, p.SpotPriceLimits, p.SystemDiskGiB = alisim.SpotWithPriceLimit, map[string]float64{small: 5, medium: 6.5}, 200
		w.Pools = append(w.Pools, alisim.Pool{ID: "asg-bare", MaxSize: 1})
	})
	ask := func(change func(*ess.DescribeScalingConfigurationsRequest)) []ess.ScalingConfigurationInDescribeScalingConfigurations {
		r := ess.CreateDescribeScalingConfigurationsRequest()
		change(r)
		resp, err := s.ess.DescribeScalingConfigurations(r)
		require.NoError(t, err)
		return resp.ScalingConfigurations.ScalingConfiguration
	}
	id := s.group(spotGroup).ActiveScalingConfigurationId
	list := ask(func(r *ess.DescribeScalingConfigurationsRequest) { r.ScalingConfigurationId = &[]string{id, "asc-x"} })
	require.Len(t, list, 1)
	got := list[0]
	assert.Equal(t, []string{id, spotGroup, "Active"}, []string{got.ScalingConfigurationId, got.ScalingGroupId, got.LifecycleState})
	assert.Equal(t, small, got.InstanceType)
	assert.Equal(t, []string{small, medium}, got.InstanceTypes.InstanceType)
	assert.Equal(t, alisim.SpotWithPriceLimit, got.SpotStrategy)
	assert.Equal(t, []int{1, 200}, []int{got.SpotDuration, got.SystemDiskSize})
	limits := map[string]float64{}
	for _, m := range got.SpotPriceLimit.SpotPriceModel {
		limits[m.InstanceType] = m.PriceLimit
	}
	assert.Equal(t, map[string]float64{small: 5, medium: 6.5}, limits)
	require.Len(t, got.Tags.Tag, 1)
	assert.Equal(t, "k8s.io/cluster-autoscaler/node-template/label/workload", got.Tags.Tag[0].Key)
	assert.Equal(t, "training", got.Tags.Tag[0].Value)

	assert.Len(t, ask(func(*ess.DescribeScalingConfigurationsRequest) {}), 2, "a group without configuration has none to list")
	assert.Empty(t, s.group("asg-bare").ActiveScalingConfigurationId)
}

func TestModifyingAGroup(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].Instances = 2 })
	r := ess.CreateModifyScalingGroupRequest()
	r.ScalingGroupId, r.MinSize, r.MaxSize, r.DesiredCapacity = spotGroup, requests.NewInteger(1), requests.NewInteger(6), requests.NewInteger(4)
	r.CompensateWithOnDemand, r.SpotInstanceRemedy, r.MultiAZPolicy = requests.NewBoolean(true), requests.NewBoolean(true), "BALANCE"
	_, err := s.ess.ModifyScalingGroup(r)
	require.NoError(t, err)
	g := s.group(spotGroup)
	assert.Equal(t, []int{1, 6, 4}, []int{g.MinSize, g.MaxSize, g.DesiredCapacity})
	assert.True(t, g.CompensateWithOnDemand && g.SpotInstanceRemedy)
	s.pass(healthCheckDelay + activityDelay)
	assert.Len(t, s.members(spotGroup), 4, "the desired capacity is bought")

	r = ess.CreateModifyScalingGroupRequest()
	r.ScalingGroupId, r.DesiredCapacity = spotGroup, requests.NewInteger(1)
	_, err = s.ess.ModifyScalingGroup(r)
	require.NoError(t, err)
	s.pass(healthCheckDelay + activityDelay)
	assert.Len(t, s.members(spotGroup), 1, "what is above it is removed")

	r = ess.CreateModifyScalingGroupRequest()
	r.ScalingGroupId, r.DesiredCapacity = spotGroup, requests.NewInteger(7)
	_, err = s.ess.ModifyScalingGroup(r)
	assert.Equal(t, "InvalidParameter.Conflict", codeOf(t, err))

	r = ess.CreateModifyScalingGroupRequest()
	r.ScalingGroupId, r.DisableDesiredCapacity = spotGroup, requests.NewBoolean(true)
	_, err = s.ess.ModifyScalingGroup(r)
	require.NoError(t, err)
	assert.False(t, s.group(spotGroup).EnableDesiredCapacity)
}

func TestProcessesAreSuspendedAndResumed(t *testing.T) {
	s := start(t)
	suspend := ess.CreateSuspendProcessesRequest()
	suspend.ScalingGroupId, suspend.Process = spotGroup, &[]string{"ScaleOut", "HealthCheck"}
	_, err := s.ess.SuspendProcesses(suspend)
	require.NoError(t, err)
	assert.Equal(t, []string{"ScaleOut", "HealthCheck"}, s.group(spotGroup).SuspendedProcesses.SuspendedProcess)
	assert.Equal(t, "Rejected", s.buy(spotGroup, 1).StatusCode)

	resume := ess.CreateResumeProcessesRequest()
	resume.ScalingGroupId, resume.Process = spotGroup, &[]string{"ScaleOut"}
	_, err = s.ess.ResumeProcesses(resume)
	require.NoError(t, err)
	assert.Equal(t, []string{"HealthCheck"}, s.group(spotGroup).SuspendedProcesses.SuspendedProcess)
	assert.Equal(t, "Successful", s.buy(spotGroup, 1).StatusCode)
}

func TestTagsAreListedPageByPage(t *testing.T) {
	const groups, tags = 30, 4
	s := startWorld(t, alisim.World{Region: region}, alisim.Options{})
	for i := range groups {
		p := alisim.Pool{ID: fmt.Sprintf("asg-%02d", i), MaxSize: 1, Tags: map[string]string{}}
		for j := range tags {
			p.Tags[fmt.Sprintf("key-%d", j)] = "v"
		}
		require.NoError(t, s.PutGroup(p))
	}
	seen, pages := map[string]bool{}, 0
	r := ess.CreateListTagResourcesRequest()
	r.ResourceType = "scalinggroup"
	for {
		resp, err := s.ess.ListTagResources(r)
		require.NoError(t, err)
		pages++
		for _, tr := range resp.TagResources.TagResource {
			seen[tr.ResourceId+" "+tr.TagKey] = true
		}
		if resp.NextToken == "" {
			break
		}
		r = ess.CreateListTagResourcesRequest()
		r.ResourceType, r.NextToken = "scalinggroup", resp.NextToken
	}
	assert.Len(t, seen, groups*tags)
	assert.Equal(t, 3, pages)

	r = ess.CreateListTagResourcesRequest()
	r.ResourceType, r.ResourceId, r.Tag = "scalinggroup", &[]string{"asg-07", "asg-x"}, &[]ess.ListTagResourcesTag{{Key: "key-1", Value: "v"}}
	resp, err := s.ess.ListTagResources(r)
	require.NoError(t, err)
	assert.Len(t, resp.TagResources.TagResource, tags)
}

func TestTagsAreSetAndRemovedOfAllGroupsThatAreNamedOrOfNone(t *testing.T) {
	s := start(t)
	tag := func(ids []string, tags ...ess.TagResourcesTag) error {
		r := ess.CreateTagResourcesRequest()
		r.ResourceType, r.ResourceId, r.Tag = "scalinggroup", &ids, &tags
		_, err := s.ess.TagResources(r)
		return err
	}
	both := []string{spotGroup, onDemandGroup}
	require.NoError(t, tag(both, ess.TagResourcesTag{Key: "team", Value: "speech"}, ess.TagResourcesTag{Key: "new", Value: "v"}))
	spot, _ := s.Group(spotGroup)
	assert.Equal(t, map[string]string{"k8s.io/cluster-autoscaler/enabled": "true", "team": "speech", "new": "v"}, spot.Tags)
	assert.Equal(t, "InvalidScalingGroupId.NotFound", codeOf(t, tag([]string{onDemandGroup, "asg-x"}, ess.TagResourcesTag{Key: "other", Value: "v"})))
	many := make([]ess.TagResourcesTag, 19)
	for i := range many {
		many[i] = ess.TagResourcesTag{Key: fmt.Sprintf("key-%d", i), Value: "v"}
	}
	assert.Equal(t, "InvalidTagCount", codeOf(t, tag(both, many...)))
	onDemand, _ := s.Group(onDemandGroup)
	assert.Equal(t, map[string]string{"team": "speech", "new": "v"}, onDemand.Tags, "a refused request changes nothing")

	untag := ess.CreateUntagResourcesRequest()
	untag.ResourceType, untag.ResourceId, untag.TagKey = "scalinggroup", &both, &[]string{"team", "key-0"}
	_, err := s.ess.UntagResources(untag)
	require.NoError(t, err)
	onDemand, _ = s.Group(onDemandGroup)
	assert.Equal(t, map[string]string{"new": "v"}, onDemand.Tags)
}

func TestInstancesAreListedByGroupIDAndState(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].Instances, w.Pools[1].Instances = 12, 3 })
	ask := func(change func(*ess.DescribeScalingInstancesRequest)) *ess.DescribeScalingInstancesResponse {
		r := ess.CreateDescribeScalingInstancesRequest()
		change(r)
		resp, err := s.ess.DescribeScalingInstances(r)
		require.NoError(t, err)
		return resp
	}
	all := ask(func(r *ess.DescribeScalingInstancesRequest) { r.PageSize = requests.NewInteger(50) })
	assert.Equal(t, []int{15, 12}, []int{all.TotalCount, all.TotalSpotCount}, "region-wide without a group")
	assert.Len(t, all.ScalingInstances.ScalingInstance, 15)
	assert.Len(t, ask(func(*ess.DescribeScalingInstancesRequest) {}).ScalingInstances.ScalingInstance, 10, "ten by default")

	seen := map[string]bool{}
	for n := 1; n <= 4; n++ {
		p := ask(func(r *ess.DescribeScalingInstancesRequest) {
			r.ScalingGroupId, r.PageNumber, r.PageSize = spotGroup, requests.NewInteger(n), requests.NewInteger(5)
		})
		assert.Equal(t, 12, p.TotalCount)
		for _, i := range p.ScalingInstances.ScalingInstance {
			seen[i.InstanceId] = true
		}
	}
	assert.Len(t, seen, 12)
	some := all.ScalingInstances.ScalingInstance[3].InstanceId
	assert.Equal(t, 1, ask(func(r *ess.DescribeScalingInstancesRequest) { r.InstanceId = &[]string{some, "i-x"} }).TotalCount)
	assert.Equal(t, 0, ask(func(r *ess.DescribeScalingInstancesRequest) {
		r.InstanceId, r.ScalingGroupId = &[]string{some}, onDemandGroup
	}).TotalCount)
	assert.Equal(t, 0, ask(func(r *ess.DescribeScalingInstancesRequest) { r.ScalingGroupId = "asg-x" }).TotalCount)
	assert.Equal(t, 0, ask(func(r *ess.DescribeScalingInstancesRequest) { r.LifecycleState = "Removing" }).TotalCount)
	assert.Equal(t, 15, ask(func(r *ess.DescribeScalingInstancesRequest) { r.LifecycleStates = &[]string{"Removing", "InService"} }).TotalCount)
}

func TestPoolsComeChangeAndGoWhileTheWorldRuns(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 2)
	p := spotPool()
	p.MaxSize, p.Tags = 3, map[string]string{"new": "tag"}
	require.NoError(t, s.PutGroup(p))
	assert.Equal(t, 3, s.group(spotGroup).MaxSize)
	assert.Len(t, s.members(spotGroup), 2, "its instances stay")

	require.NoError(t, s.SetGroupTags(spotGroup, map[string]string{"other": "tag"}))
	assert.Equal(t, map[string]string{"other": "tag"}, groupTags(s.group(spotGroup)))

	_, err := s.scale(spotGroup, 1)
	require.NoError(t, err)
	require.NoError(t, s.DeleteGroup(spotGroup))
	s.pass(noticeDelay)
	assert.Empty(t, s.machines(nil))
	_, err = s.scale(spotGroup, 1)
	assert.Equal(t, "InvalidScalingGroupId.NotFound", codeOf(t, err))
	view, there := s.Group(spotGroup)
	assert.False(t, there, "%v", view)

	assert.Error(t, s.DeleteGroup("asg-x"))
	assert.Error(t, s.SetGroupTags("asg-x", nil))
	assert.ErrorContains(t, s.PutGroup(alisim.Pool{ID: "asg-y", MaxSize: 1, InstanceTypes: []string{"ecs.unheard-of"}}), "ecs.unheard-of")
}

func TestTheWorldIsRepeatable(t *testing.T) {
	run := func() []string {
		s := start(t, func(w *alisim.World) { w.Seed = 7 })
		s.buy(spotGroup, 5)
		return ids(s.members(spotGroup))
	}
	first := run()
	assert.Equal(t, first, run())
	other := start(t, func(w *alisim.World) { w.Seed = 8 })
	other.buy(spotGroup, 5)
	assert.NotEqual(t, first, ids(other.members(spotGroup)))
}

func TestSpotInstancesTakeThePlaceOfPayAsYouGoOnes(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		w.Pools[1].SpotAutoReplaceOnDemand, w.Pools[1].Instances, w.Pools[1].MaxSize = true, 2, 2
	})
	before := ids(s.members(onDemandGroup))
	s.pass(4 * (healthCheckDelay + 2*activityDelay))
	after := s.members(onDemandGroup)
	require.Len(t, after, 2)
	for _, member := range after {
		assert.NotContains(t, before, member.InstanceId)
		assert.Equal(t, "SpotAsPriceGo", member.SpotStrategy)
	}
}

func TestARetiredTypeIsNeitherDescribedNorSold(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].InstanceTypes = []string{small} })
	s.buy(spotGroup, 1)
	s.Retire(small)
	r := ecs.CreateDescribeInstanceTypesRequest()
	r.InstanceTypes = &[]string{small, medium}
	described, err := s.ecs.DescribeInstanceTypes(r)
	require.NoError(t, err)
	require.Len(t, described.InstanceTypes.InstanceType, 1)
	assert.Equal(t, medium, described.InstanceTypes.InstanceType[0].InstanceTypeId)
	assert.Equal(t, "Failed", s.buy(spotGroup, 1).StatusCode)
	assert.Len(t, s.members(spotGroup), 1, "what runs goes on")
}

func TestAVSwitchIsDeletedUnlessItHasInstances(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].VSwitches = []string{vswA, vswB} })
	s.buy(spotGroup, 1)
	require.Error(t, s.DeleteVSwitch(vswA))
	require.NoError(t, s.DeleteVSwitch(vswB))
	require.Error(t, s.DeleteVSwitch("vsw-nowhere"))
	r := vpc.CreateDescribeVSwitchesRequest()
	r.RegionId = region
	listed, err := s.vpc.DescribeVSwitches(r)
	require.NoError(t, err)
	for _, vswitch := range listed.VSwitches.VSwitch {
		assert.NotEqual(t, vswB, vswitch.VSwitchId)
	}
	assert.Equal(t, []string{vswA, vswB}, s.group(spotGroup).VSwitchIds.VSwitchId, "the group names it still")
}
