package client

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestCallSendsParametersAndReturnsTheReplyAsTheyAre(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return raw(`{"RequestId":"r","A":{"Field":["nobody","knows"]}}`) })
	reply, err := w.client().Call(t.Context(), "ess", "DescribeScalingGroups", map[string]string{"ScalingGroupId.1": "asg-1", "NoSuchParameter": "x"})
	require.NoError(t, err)
	assert.JSONEq(t, `{"RequestId":"r","A":{"Field":["nobody","knows"]}}`, string(reply))
	assertParameters(t, map[string]string{"ScalingGroupId.1": "asg-1", "NoSuchParameter": "x"}, w.seen("DescribeScalingGroups")[0])
}

func TestCallReturnsRefusalsAsEveryCallDoes(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return refuse(400, "ScalingActivityInProgress") })
	_, err := w.client().Call(t.Context(), "ess", "RemoveInstances", nil)
	assert.Equal(t, alicloud.Conflict, alicloud.ClassOf(err))
	_, err = w.client().Call(t.Context(), "oss", "GetObject", nil)
	assert.Equal(t, alicloud.Invalid, alicloud.ClassOf(err), "a service that this package does not speak")
	assert.Empty(t, w.seen("GetObject"))
}
