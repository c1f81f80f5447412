package podlist

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestPodsLikeOneThatFoundNoNodeNeedNotWaitForTheScheduler(t *testing.T) {
	found := testutil.NewPod("found", testutil.Unschedulable)
	for name, test := range map[string]struct {
		found, waiting []*apiv1.Pod
		want           []string
	}{
		"a pod of the same kind is added": {
			found: []*apiv1.Pod{found}, waiting: testutil.NewPods(2, "more"), want: []string{"found", "more-0", "more-1"},
		},
		"a pod that is in the list already is not added again": {
			found: []*apiv1.Pod{found}, waiting: []*apiv1.Pod{found}, want: []string{"found"},
		},
		"the scheduler has the first word on a kind": {waiting: testutil.NewPods(2, "more"), want: []string{}},
		"so is one of which the scheduler has said so since": {
			found: []*apiv1.Pod{found}, waiting: testutil.NewPods(1, "late", testutil.Unschedulable), want: []string{"found", "late-0"},
		},
		"a pod of another kind waits": {
			found: []*apiv1.Pod{found}, waiting: testutil.NewPods(1, "two", testutil.Requesting(api.ResourceGPU, "2")), want: []string{"found"},
		},
		"a pod with another node selector waits": {
			found: []*apiv1.Pod{found}, waiting: testutil.NewPods(1, "a10", testutil.Selecting("gpu", "a10")), want: []string{"found"},
		},
		"a pod of another priority waits, since it might preempt": {
			found:   []*apiv1.Pod{found},
			waiting: testutil.NewPods(1, "high", func(pod *apiv1.Pod) { pod.Spec.Priority = ptr.To[int32](100) }), want: []string{"found"},
		},
		"a pod of another scheduler waits": {
			found:   []*apiv1.Pod{found},
			waiting: testutil.NewPods(1, "volcano", func(pod *apiv1.Pod) { pod.Spec.SchedulerName = "volcano" }), want: []string{"found"},
		},
		"a gated pod waits": {
			found:   []*apiv1.Pod{found},
			waiting: testutil.NewPods(1, "gated", func(pod *apiv1.Pod) { pod.Spec.SchedulingGates = []apiv1.PodSchedulingGate{{Name: "quota"}} }),
			want:    []string{"found"},
		},
		"a pod with a ProvisioningRequest waits for that": {
			found:   []*apiv1.Pod{found},
			waiting: testutil.NewPods(1, "request", testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "r")), want: []string{"found"},
		},
		"pods without GPU wait": {
			found: testutil.NewPods(1, "found", testutil.WithoutGPU, testutil.Unschedulable), waiting: testutil.NewPods(1, "more", testutil.WithoutGPU), want: []string{"found-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			assert.ElementsMatch(t, test.want, testutil.Names(withEquivalent(test.found, test.waiting)))
		})
	}
}

func TestBigJobIsAdmittedInOnePieceThoughTheSchedulerIsSlow(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	arrivals := NewArrivals(clk)
	job := testutil.NewPods(100, "p")
	for i, pod := range job {
		clk.SetTime(testutil.Epoch.Add(time.Duration(i) * 10 * time.Millisecond))
		arrivals.Note(pod)
	}
	testutil.Unschedulable(job[0])
	deferral := NewDeferral(Config{Inner: &chain{}, Arrivals: arrivals, Clock: clk, SettleWindow: time.Second})
	ctx, _, _ := testutil.NewContext(nil, nil)
	released, err := deferral.Process(ctx, job[:1])
	require.NoError(t, err)
	assert.Empty(t, released, "the last has only just come")
	clk.SetTime(testutil.Epoch.Add(2 * time.Second))
	released, err = deferral.Process(ctx, job[:1])
	require.NoError(t, err)
	assert.Len(t, released, 100)
}
