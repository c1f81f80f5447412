package client

import (
	"net/url"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

func TestADryRunThatPassesMeansThatTheCallIsAllowed(t *testing.T) {
	launch := alicloud.LaunchRequest{Amount: 1, MinAmount: 1, ClientToken: "t", InstanceType: "ecs.a", SpotStrategy: alicloud.SpotAsPriceGo}
	for code, class := range map[string]alicloud.Class{
		"DryRunOperation": "", "Forbidden.RAM": alicloud.Unauthorized, "OperationDenied.NoStock": alicloud.Stockout,
	} {
		t.Run(code, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer { return refuse(400, code) })
			assert.Equal(t, class, alicloud.ClassOf(w.client().CheckInstances(t.Context())))
			assert.Equal(t, class, alicloud.ClassOf(w.client().CheckLaunch(t.Context(), launch)))
			for _, action := range []string{"DescribeInstances", "RunInstances"} {
				require.Len(t, w.seen(action), 1)
				assertParameters(t, map[string]string{"DryRun": "true"}, w.seen(action)[0])
			}
		})
	}
}

func TestADryRunThatPassesCountsAsARequestThatSucceeded(t *testing.T) {
	registry := prometheus.NewRegistry()
	rpc.RegisterMetrics(registry)
	succeeded := func() uint64 {
		return observations(t, registry, "gpu_spot_cloud_request_duration_seconds",
			map[string]string{"service": "ecs", "action": "DescribeInstances", "code": "OK", "class": ""})
	}
	before := succeeded() // the metrics are those of the process
	w := newWire(t, func(url.Values) answer { return refuse(400, "DryRunOperation") })
	require.NoError(t, w.client().CheckInstances(t.Context()))
	assert.Equal(t, uint64(1), succeeded()-before)
}

func TestTheRemovalThatIsTriedRemovesNothing(t *testing.T) {
	for code, class := range map[string]alicloud.Class{
		"InvalidInstanceId.NotFound": "", "ScalingActivityInProgress": "", "IncorrectCapacity.MinSize": "", "Forbidden.RAM": alicloud.Unauthorized,
	} {
		t.Run(code, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer { return refuse(400, code) })
			assert.Equal(t, class, alicloud.ClassOf(w.client().CheckRemove(t.Context(), "asg-1")))
			require.Len(t, w.seen("RemoveInstances"), 1)
			assertParameters(t, map[string]string{
				"ScalingGroupId": "asg-1", "InstanceId.1": "i-doesnotexist00000000", "IgnoreInvalidInstance": "false", "DecreaseDesiredCapacity": "false",
			}, w.seen("RemoveInstances")[0])
		})
	}
}

func TestTheQuotaOfSpotVCPUs(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"AccountAttributeItems":{"AccountAttributeItem":[
			{"AttributeName":"max-spot-instance-vcpu-count","AttributeValues":{"ValueItem":[{"Value":"800"}]}},
			{"AttributeName":"used-spot-instance-vcpu-count","AttributeValues":{"ValueItem":[{"Value":"24"}]}}]}}`)
	})
	quota, err := w.client().SpotVCPUQuota(t.Context())
	require.NoError(t, err)
	assert.Equal(t, alicloud.VCPUQuota{Max: 800, Used: 24}, quota)
	assertParameters(t, map[string]string{
		"AttributeName.1": "max-spot-instance-vcpu-count", "AttributeName.2": "used-spot-instance-vcpu-count",
	}, w.seen("DescribeAccountAttributes")[0])

	w = newWire(t, func(url.Values) answer { return raw(`{"AccountAttributeItems":{"AccountAttributeItem":[]}}`) })
	_, err = w.client().SpotVCPUQuota(t.Context())
	assert.Equal(t, alicloud.NotFound, alicloud.ClassOf(err))
	assert.ErrorContains(t, err, "max-spot-instance-vcpu-count")
}
