package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/rig"
)

// bought is how many instances were bought of all pools so far, without those that were rolled back.
func (s *story) bought() int { return drill.Bought(drill.Purchases(s.Rig, time.Time{})) }

func TestPodsThatComeWhileNodesAreGivenBackAreBoughtForOnce(t *testing.T) {
	w := world(single("asg-1", 20))
	w.RemovalDelay = metav1.Duration{Duration: 15 * time.Second}
	s := tell(t, w)
	s.RunAutoscaler(t)
	first := gpuPods("first", 3)
	s.Submit(t, first...)
	s.running(first...)
	s.remove(first...)
	s.eventually("the nodes are given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 0, nil })
	second := gpuPods("second", 3)
	s.Submit(t, second...)
	s.running(second...)
	assert.Equal(t, 6, s.bought(), "three for each three pods")
}

func TestInstancesThatESSWasToldToKeepAreNotGivenBack(t *testing.T) {
	kept := single("asg-1", 10)
	kept.Instances = 3
	s := tell(t, world(kept))
	protected, standing := s.instances("asg-1")[0].ID, s.instances("asg-1")[1].ID
	require.NoError(t, s.Cloud.SetLifecycle(protected, "Protected"))
	require.NoError(t, s.Cloud.SetLifecycle(standing, "Standby"))
	s.RunAutoscaler(t)
	s.told("SpotPoolProblem", "standby", "asg-1")
	s.eventually("what nobody keeps is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	rig.Always(t, 8*time.Second, "the others stay", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	for _, id := range []string{protected, standing} {
		instance, known := s.Cloud.Instance(id)
		assert.True(t, known && instance.Status == "Running", id)
	}
}

func TestAnInstanceThatIsNotRemovedCountsAgain(t *testing.T) {
	s := tell(t, world(single("asg-1", 10)))
	s.RunAutoscaler(t)
	first := gpuPods("first", 1)
	s.Submit(t, first...)
	s.running(first...)
	id := s.instances("asg-1")[0].ID
	require.NoError(t, s.Cloud.Stay(id))
	s.remove(first...)
	s.told("SpotRemovalFailed", "asg-1", id)
	assert.Len(t, s.instances("asg-1"), 1)
}
