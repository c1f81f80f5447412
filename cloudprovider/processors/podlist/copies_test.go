package podlist

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/utils"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestLoopsChangeNoPodOfTheInformers(t *testing.T) {
	pod := testutil.NewPod("a", testutil.WithoutGPU)
	pod.Spec.Containers[0].Env = []apiv1.EnvVar{{Name: "RANK", Value: "0"}}
	before := pod.DeepCopy()
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: 0})
	ctx, _, _ := testutil.NewContext(nil, nil)
	released, err := deferral.Process(ctx, []*apiv1.Pod{pod})
	require.NoError(t, err)
	require.Len(t, released, 1)
	utils.PodSpecSemanticallyEqual(released[0].Spec, released[0].Spec)
	assert.Empty(t, released[0].Spec.Containers[0].Env, "core does so")
	assert.Equal(t, before, pod)
}
