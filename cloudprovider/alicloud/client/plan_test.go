package client

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestPlanScale(t *testing.T) {
	planned := []alicloud.Allocation{{InstanceType: "ecs.a", ZoneID: "cn-test-1a", SpotStrategy: alicloud.SpotAsPriceGo, Amount: 1}}
	for name, test := range map[string]struct {
		answer string
		want   alicloud.Plan
	}{
		"a list as in version 2022-02-22": {
			`{"RequestId":"r","PlanResult":{"ResourceAllocations":[{"Amount":1,"InstanceChargeType":"PostPaid","InstanceType":"ecs.a","SpotStrategy":"SpotAsPriceGo","ZoneId":"cn-test-1a"}]}}`,
			alicloud.Plan{Allocations: planned, Answered: true},
		},
		"a list as in version 2014-08-28": {
			`{"RequestId":"r","PlanResult":{"ResourceAllocations":{"ResourceAllocation":[{"Amount":1,"InstanceType":"ecs.a","SpotStrategy":"SpotAsPriceGo","ZoneId":"cn-test-1a"}]}}}`,
			alicloud.Plan{Allocations: planned, Answered: true},
		},
		"a list under the name that the Java SDK gives its items": {
			`{"RequestId":"r","PlanResult":{"ResourceAllocations":{"ResourceAllocationModels":[{"Amount":1,"InstanceType":"ecs.a","SpotStrategy":"SpotAsPriceGo","ZoneId":"cn-test-1a"}]}}}`,
			alicloud.Plan{Allocations: planned, Answered: true},
		},
		"a plan of nothing":                       {`{"RequestId":"r","PlanResult":{}}`, alicloud.Plan{Answered: true}},
		"the mode is not known, so it was bought": {`{"RequestId":"r","ScalingActivityId":"asa-1"}`, alicloud.Plan{Scaling: alicloud.Scaling{ActivityID: "asa-1"}}},
		"a plan that cannot be read is none":      {`{"RequestId":"r","PlanResult":"later"}`, alicloud.Plan{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer { return raw(test.answer) })
			plan, err := w.client().PlanScale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 1, ClientToken: "tok", Metadata: "meta",
				InstanceType: "ecs.a", VSwitchIDs: []string{"vsw-a"}, SpotStrategy: alicloud.SpotAsPriceGo})
			require.NoError(t, err)
			assert.Equal(t, test.want, plan)
			assertParameters(t, map[string]string{"ExecutionMode": "PlanOnly", "AdjustmentValue": "1", "ClientToken": "tok",
				"ActivityMetadata": "meta", "InstanceType.1": "ecs.a", "VSwitchId.1": "vsw-a", "SpotStrategy": "SpotAsPriceGo"}, w.seen("ScaleWithAdjustment")[0])
		})
	}
}

func TestPurchasesAreNeverSentAsPlans(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{"ScalingActivityId": "asa-1"}) })
	_, err := w.client().Scale(t.Context(), buy("t"))
	require.NoError(t, err)
	assert.False(t, w.seen("ScaleWithAdjustment")[0].Has("ExecutionMode"))
}
