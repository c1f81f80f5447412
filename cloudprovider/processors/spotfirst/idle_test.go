package spotfirst

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestAJobIsIdleWhileNoneOfItsPodsHasAPlace(t *testing.T) {
	timed := testutil.Annotated(api.AnnotationDeadline, "2026-12-31T18:00:00Z")
	of := func(name, job string, options ...testutil.PodOption) *apiv1.Pod {
		return testutil.NewPod(name, append([]testutil.PodOption{testutil.Labelled("job", job), testutil.Requesting(api.ResourceGPU, "1")}, options...)...)
	}
	deleted := func(pod *apiv1.Pod) { pod.DeletionTimestamp = &pod.CreationTimestamp }
	elsewhere := func(pod *apiv1.Pod) { pod.Namespace = "other" }
	requested := testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "request")
	for name, c := range map[string]struct {
		running *apiv1.Pod
		pending *apiv1.Pod
		idle    bool
	}{
		"nothing runs":                  {nil, of("a", "train", timed), true},
		"another runs":                  {of("r", "train"), of("a", "train", timed), false},
		"one of another job does":       {of("r", "other"), of("a", "train", timed), true},
		"one of another namespace does": {of("r", "train", elsewhere), of("a", "train", timed), true},
		"one that is being deleted":     {of("r", "train", deleted), of("a", "train", timed), true},
		"its launcher":                  {of("r", "train", testutil.WithoutGPU), of("a", "train", timed), true},
		"another of a job without GPUs": {of("r", "train", testutil.WithoutGPU), of("a", "train", timed, testutil.WithoutGPU), false},
		"a maximum wait":                {nil, of("a", "train", timed, testutil.Labelled("max-wait", "30m")), false},
		"no deadline":                   {nil, of("a", "train"), false},
		"of a ProvisioningRequest":      {nil, of("a", "train", timed, requested), false},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeOf("n", "SpotAsPriceGo")
			var running []*apiv1.Pod
			if c.running != nil {
				c.running.Spec.NodeName = "n"
				running = append(running, c.running)
			}
			ctx, _, _ := testutil.NewContext(nil, nil)
			require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{node}, running, nil))
			idle := NewIdle(func(pod *apiv1.Pod) string { return pod.Labels["job"] }, func(pod *apiv1.Pod) bool { return pod.Labels["max-wait"] != "" })
			assert.False(t, idle.Has(c.pending), "no loop has looked yet")
			left, err := idle.After(pods.NewCombinedPodListProcessor(nil)).Process(ctx, []*apiv1.Pod{c.pending})
			require.NoError(t, err)
			assert.Equal(t, []*apiv1.Pod{c.pending}, left)
			assert.Equal(t, c.idle, idle.Has(c.pending))
			_, err = idle.After(pods.NewCombinedPodListProcessor(nil)).Process(ctx, nil)
			require.NoError(t, err)
			assert.False(t, idle.Has(c.pending), "nothing is remembered")
		})
	}
	var none *Idle
	assert.False(t, none.Has(of("a", "train", timed)))
}
