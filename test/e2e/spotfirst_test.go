package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	s.Cloud.SetStock(a10, zoneA, 1)
	s.RunAutoscaler(t)

	pods := gpuPods("train", 3)
	pods[2].Annotations = map[string]string{api.AnnotationOnDemandAfter: api.OnDemandNever}
	submitted := time.Now().Add(-time.Second) // creation timestamps are cut to the second
	s.Submit(t, pods...)
	s.eventually("spot has what there is", func(context.Context) (bool, error) { return len(s.instances("asg-spot")) == 1, nil })
	s.awaitEvent("NotTriggerScaleUp", "on demand, and not bought yet")
	assert.Empty(t, s.instances("asg-on-demand"))
	s.eventually("on-demand has the rest", func(context.Context) (bool, error) { return len(s.instances("asg-on-demand")) > 0, nil })
	assert.GreaterOrEqual(t, time.Since(submitted), onDemandWait)
	s.eventually("all run but one, which takes spot only", func(ctx context.Context) (bool, error) {
		running := 0
		for _, pod := range pods {
			current, err := s.pod(ctx, pod.Name)
			if err != nil {
				return false, err
			}
			if current.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running >= 2, nil
	})
	assert.LessOrEqual(t, len(s.instances("asg-on-demand")), 2)
}
