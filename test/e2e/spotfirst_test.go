package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
)

// onDemandWait is longer than the purchase of spot instances takes here, and the refusal.
const onDemandWait = 30 * time.Second

func TestPodsWaitForSpotBeforeOnDemandIsBought(t *testing.T) {
	onDemand := singleOfferingPool("asg-on-demand", 10)
	onDemand.SpotStrategy = alisim.NoSpot
	onDemand.Tags[api.TagOnDemandAfter] = onDemandWait.String()
	s := newSuite(t, newWorld(singleOfferingPool("asg-spot", 10), onDemand))
	s.Cloud.SetStock(a10, zoneA, 0)
	autoscaler := s.RunAutoscaler(t)

	ordinary, spotOnly := gpuPods("train", 1), gpuPods("spot-only", 2)
	for _, pod := range spotOnly {
		pod.Annotations = map[string]string{api.AnnotationOnDemandAfter: api.OnDemandNever}
	}
	submitted := time.Now().Add(-time.Second) // creation timestamps are cut to the second
	s.Submit(t, append(ordinary, spotOnly...)...)
	s.awaitEvent("NotTriggerScaleUp", "not bought for such pods now")
	assert.Empty(t, s.instances("asg-on-demand"))
	s.eventually("on-demand is bought", func(context.Context) (bool, error) { return len(s.instances("asg-on-demand")) > 0, nil })
	assert.GreaterOrEqual(t, time.Since(submitted), onDemandWait)
	// The scheduler knows nothing of this, and may place any of the pods on the node.
	s.eventually("one of them runs", func(ctx context.Context) (bool, error) {
		for _, wanted := range slices.Concat(ordinary, spotOnly) {
			pod, err := s.pod(ctx, wanted.Name)
			if err != nil || pod.Status.Phase == corev1.PodRunning {
				return true, err
			}
		}
		return false, nil
	})
	s.deletePods(ordinary...)
	loops, err := autoscaler.Loops(t.Context())
	require.NoError(t, err)
	require.NoError(t, autoscaler.AwaitLoops(t.Context(), loops.Count+5, soon))
	assert.LessOrEqual(t, len(s.instances("asg-on-demand")), 2, "one, and another if the scheduler gave the first to a pod that takes spot only")
}

func TestPodsOnDemandAndTheOnDemandFloorOfAGangAreBoughtForAtOnce(t *testing.T) {
	onDemand := singleOfferingPool("asg-on-demand", 10)
	onDemand.SpotStrategy = alisim.NoSpot
	onDemand.Tags[api.TagOnDemandAfter] = "1h"
	s := newSuite(t, newWorld(singleOfferingPool("asg-spot", 10), onDemand))
	autoscaler := s.RunAutoscaler(t)

	server := gpuPods("server", 1)
	server[0].Annotations = map[string]string{api.AnnotationCapacity: api.CapacityOnDemand}
	s.Submit(t, server...)
	s.eventuallyRun(server...)
	assert.Len(t, s.instances("asg-on-demand"), 1)
	assert.Empty(t, s.instances("asg-spot"), "though spot costs less")

	gang := gpuPods("train", 4)
	for _, pod := range gang {
		pod.Annotations = map[string]string{api.AnnotationGangName: "train", api.AnnotationGangSize: "4", api.AnnotationOnDemandFloor: "25%"}
	}
	s.Submit(t, gang...)
	s.eventuallyRun(gang...)
	loops, err := autoscaler.Loops(t.Context())
	require.NoError(t, err)
	require.NoError(t, autoscaler.AwaitLoops(t.Context(), loops.Count+5, soon))
	assert.Len(t, s.instances("asg-on-demand"), 2, "one of them, and the server")
	assert.Len(t, s.instances("asg-spot"), 3)
}

// eventuallyRun waits until all of the pods run.
func (s *suite) eventuallyRun(pods ...*corev1.Pod) {
	s.t.Helper()
	s.eventually("they run", func(ctx context.Context) (bool, error) {
		for _, wanted := range pods {
			pod, err := s.pod(ctx, wanted.Name)
			if err != nil || pod.Status.Phase != corev1.PodRunning {
				return false, err
			}
		}
		return true, nil
	})
}
