package podlist

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

func claiming(pod *apiv1.Pod) {
	pod.Spec.ResourceClaims = []apiv1.PodResourceClaim{{Name: "device"}}
}

func TestWhatBecomesOfPodsWithResourceClaims(t *testing.T) {
	for name, test := range map[string]struct {
		simulated bool
		pod       *apiv1.Pod
		fits      bool
		asked     bool // whether core's chain sees the pod
		bought    bool
		reason    reasons.Code
		event     string
	}{
		"its GPUs are claimed":                    {pod: testutil.NewPod("p", testutil.WithoutGPU, claiming), reason: reasons.ResourceClaims, event: "Warning SpotPodHasResourceClaims The pod is not bought for: "},
		"its GPUs are claimed, and it would fit":  {pod: testutil.NewPod("p", testutil.WithoutGPU, claiming), fits: true, reason: reasons.ResourceClaims, event: "Warning SpotPodHasResourceClaims The pod is not bought for: "},
		"it requests GPUs beside the claim":       {pod: testutil.NewPod("p", claiming), asked: true, bought: true, event: "Normal SpotPodHasResourceClaims Nodes are bought by the other requests"},
		"simulated, and it fits no node":          {simulated: true, pod: testutil.NewPod("p", testutil.WithoutGPU, claiming), asked: true, reason: reasons.ResourceClaims, event: "Warning SpotPodHasResourceClaims The pod is placed on nodes that have"},
		"simulated, and it fits a node":           {simulated: true, pod: testutil.NewPod("p", testutil.WithoutGPU, claiming), fits: true, asked: true, reason: reasons.HasPlace, event: "Warning SpotPodHasResourceClaims The pod is placed on nodes that have"},
		"simulated, and it requests GPUs as well": {simulated: true, pod: testutil.NewPod("p", claiming), asked: true, reason: reasons.ResourceClaims, event: "Warning SpotPodHasResourceClaims The pod is placed on nodes that have"},
		"none":                           {pod: testutil.NewPod("p"), asked: true, bought: true},
		"none, and claims are simulated": {simulated: true, pod: testutil.NewPod("p"), asked: true, bought: true},
	} {
		t.Run(name, func(t *testing.T) {
			clk, skipped, inner := testingclock.NewFakePassiveClock(testutil.Epoch), &reasons.Skipped{}, &chain{}
			if test.fits {
				inner.fits = []string{"p"}
			}
			deferral := NewDeferral(Config{Inner: inner, Arrivals: NewArrivals(clk), Clock: clk, ClaimsSimulated: test.simulated, Skipped: skipped})
			ctx, _, recorder := testutil.NewContext(nil, nil)
			for range 2 {
				bought, err := deferral.Process(ctx, []*apiv1.Pod{test.pod})
				require.NoError(t, err)
				assert.Equal(t, test.asked, slices.Contains(inner.asked, "p"), "core's chain saw it")
				assert.Equal(t, test.bought, len(bought) > 0, "bought for")
			}
			if test.reason == "" {
				assert.Nil(t, skipped.Of(test.pod.UID))
			} else if assert.NotNil(t, skipped.Of(test.pod.UID)) {
				assert.Equal(t, test.reason, skipped.Of(test.pod.UID).Code)
			}
			close(recorder.Events)
			var events []string
			for event := range recorder.Events {
				events = append(events, event)
			}
			if test.event == "" {
				assert.Empty(t, events)
				return
			}
			require.Len(t, events, 1, "one Event for a pod, not one for a loop")
			assert.Contains(t, events[0], test.event)
		})
	}
}

func TestNothingIsBoughtForAPodOfAReclaimingNodeWhoseGPUsAreClaimed(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	inner := &chain{adds: []*apiv1.Pod{testutil.NewPod("reclaimed", testutil.WithoutGPU, claiming), testutil.NewPod("other")}}
	deferral := NewDeferral(Config{Inner: inner, Arrivals: NewArrivals(clk), Clock: clk, Skipped: &reasons.Skipped{}})
	ctx, _, _ := testutil.NewContext(nil, nil)
	bought, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"other"}, testutil.Names(bought))
}

func TestAGangThatClaimsItsGPUsIsNotBoughtInPart(t *testing.T) {
	clk, skipped := testingclock.NewFakePassiveClock(testutil.Epoch), &reasons.Skipped{}
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: NewArrivals(clk), Clock: clk, Skipped: skipped})
	launcher := testutil.NewPod("launcher", testutil.WithoutGPU, testutil.InGang("g", 3))
	all := append(testutil.NewPods(2, "worker", testutil.WithoutGPU, testutil.InGang("g", 3), claiming), launcher)
	ctx, _, _ := testutil.NewContext(all, nil)
	bought, err := deferral.Process(ctx, slices.Clone(all))
	require.NoError(t, err)
	assert.Empty(t, bought)
	assert.Equal(t, reasons.ResourceClaims, skipped.Of(all[0].UID).Code)
	assert.Equal(t, reasons.ResourceClaims, skipped.Of(launcher.UID).Code)
}
