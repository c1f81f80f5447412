package client

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestScalingGroups(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"RequestId":"r","TotalCount":"2","PageSize":50,"PageNumber":1,"ScalingGroups":{"ScalingGroup":[
		{"ScalingGroupId":"asg-2","ScalingGroupName":"v100","RegionId":"cn-test-1","MinSize":0,"MaxSize":"10","DesiredCapacity":3,
		 "EnableDesiredCapacity":true,"TotalCapacity":4,"LifecycleState":"Active","SystemSuspended":false,
		 "SuspendedProcesses":{"SuspendedProcess":["HealthCheck"]},"ActiveScalingConfigurationId":"asc-1",
		 "LaunchTemplateId":"lt-1","LaunchTemplateVersion":"Default","LaunchTemplateOverrides":{"LaunchTemplateOverride":[{"InstanceType":"ecs.a"},{"InstanceType":"ecs.b"}]},
		 "VSwitchIds":{"VSwitchId":["vsw-a","vsw-b"]},"MultiAZPolicy":"PRIORITY","CompensateWithOnDemand":true,"SpotInstanceRemedy":"true",
		 "HealthCheckType":"ECS","DefaultCooldown":300,"Tags":{"Tag":[{"TagKey":"owner","TagValue":"me","Propagate":false},{"TagKey":"empty","TagValue":""}]}},
		{"ScalingGroupId":"asg-1","EnableDesiredCapacity":false,"DesiredCapacity":7,"VSwitchId":"vsw-c","Tags":{"Tag":[{"TagKey":"owner","TagValue":"me"},{"TagKey":"empty","TagValue":"x"}]}},
		{"ScalingGroupId":"asg-0","Tags":{"Tag":[{"TagKey":"owner","TagValue":"somebody else"}]}}]}}`)
	})
	groups, err := w.client().ScalingGroups(t.Context(), alicloud.GroupFilter{Tags: map[string]string{"owner": "me", "empty": ""}})
	require.NoError(t, err)
	desired := 3
	assert.Equal(t, []alicloud.ScalingGroup{
		{ID: "asg-1", VSwitchIDs: []string{"vsw-c"}, Tags: map[string]string{"owner": "me", "empty": "x"}},
		{ID: "asg-2", Name: "v100", RegionID: "cn-test-1", MaxSize: 10, DesiredCapacity: &desired, TotalCapacity: 4, LifecycleState: "Active",
			SuspendedProcess: []string{"HealthCheck"}, ActiveScalingConfigurationID: "asc-1",
			LaunchTemplateID: "lt-1",
			VSwitchIDs:       []string{"vsw-a", "vsw-b"}, MultiAZPolicy: "PRIORITY", CompensateWithOnDemand: true, SpotInstanceRemedy: true,
			Tags: map[string]string{"owner": "me", "empty": ""}},
	}, groups, "what has not the tags is not ours, whatever the service says")

	q := w.seen("DescribeScalingGroups")[0]
	assert.Equal(t, "50", q.Get("PageSize"))
	assert.Equal(t, "cn-test-1", q.Get("RegionId"))
	sent := map[string]string{q.Get("Tag.1.Key"): q.Get("Tag.1.Value"), q.Get("Tag.2.Key"): q.Get("Tag.2.Value")}
	assert.Equal(t, map[string]string{"owner": "me", "empty": ""}, sent)
}

func TestWhatAScalingGroupBuysBesidesSpot(t *testing.T) {
	for name, test := range map[string]struct {
		reply string
		want  alicloud.ScalingGroup
	}{
		"nothing": {`"MultiAZPolicy":"PRIORITY"`, alicloud.ScalingGroup{MultiAZPolicy: "PRIORITY"}},
		"what the group says": {
			`"MultiAZPolicy":"COST_OPTIMIZED","OnDemandBaseCapacity":2,"OnDemandPercentageAboveBaseCapacity":"30","CompensateWithOnDemand":true`,
			alicloud.ScalingGroup{MultiAZPolicy: alicloud.MultiAZCostOptimized, OnDemandBase: 2, OnDemandPercentage: 30, CompensateWithOnDemand: true},
		},
		"what its capacity options say": {
			`"CapacityOptions":{"OnDemandBaseCapacity":1,"OnDemandPercentageAboveBaseCapacity":20,"CompensateWithOnDemand":true,"SpotAutoReplaceOnDemand":true}`,
			alicloud.ScalingGroup{OnDemandBase: 1, OnDemandPercentage: 20, CompensateWithOnDemand: true, SpotAutoReplaceOnDemand: true},
		},
		"all of it, which is the default of composable groups": {
			`"MultiAZPolicy":"COMPOSABLE"`, alicloud.ScalingGroup{MultiAZPolicy: alicloud.MultiAZComposable, OnDemandPercentage: 100},
		},
		"nothing of a composable group that says so": {
			`"MultiAZPolicy":"COMPOSABLE","CapacityOptions":{"OnDemandPercentageAboveBaseCapacity":0}`, alicloud.ScalingGroup{MultiAZPolicy: alicloud.MultiAZComposable},
		},
		"a desired capacity that is told by its number only": {`"DesiredCapacity":4`, alicloud.ScalingGroup{DesiredCapacity: ptr.To(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer {
				return raw(`{"TotalCount":1,"ScalingGroups":{"ScalingGroup":[{` + test.reply + `}]}}`)
			})
			groups, err := w.client().ScalingGroups(t.Context(), alicloud.GroupFilter{})
			require.NoError(t, err)
			test.want.Tags = map[string]string{}
			assert.Equal(t, []alicloud.ScalingGroup{test.want}, groups)
		})
	}
}
