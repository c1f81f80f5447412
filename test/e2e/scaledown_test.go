package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/test/rig"
)

func (s *story) countRunning(ctx context.Context, pods []*corev1.Pod) int {
	n := 0
	for _, wanted := range pods {
		if pod, err := s.pod(ctx, wanted.Name); err == nil && pod != nil && pod.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

func TestIdleNodesAreGivenBackAfterTheDelayAndOutsideTheCooldown(t *testing.T) {
	for name, test := range map[string]struct {
		tags map[string]string
		stay time.Duration // after the last pod has gone
	}{
		"the delay is the pool's own": {
			tags: map[string]string{"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": "8s"},
			stay: 7 * time.Second,
		},
		"the cooldown outlasts the delay": {
			tags: map[string]string{
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": "1s",
				"gpu-spot.autoscaling/cooldown": "60s",
			},
			stay: 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			patient := pool("asg-1", 10)
			for key, value := range test.tags {
				patient.Tags[key] = value
			}
			s := tell(t, world(patient))
			s.RunAutoscaler(t)
			pods := gpuPods("train", 2)
			s.Submit(t, pods...)
			s.running(pods...)
			s.remove(pods...)
			rig.Always(t, test.stay, "both nodes stay", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
			s.eventually("both nodes are given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 0, nil })
			assert.Len(t, s.requests("RemoveInstances"), 1, "together")
			s.eventually("their Nodes go", func(ctx context.Context) (bool, error) {
				nodes, err := s.nodes(ctx)
				return len(nodes) == 0, err
			})
		})
	}
}

func TestMinimumOfAPoolHolds(t *testing.T) {
	kept := pool("asg-1", 10)
	kept.Instances = 3
	kept.Tags["gpu-spot.autoscaling/min-size"] = "2"
	s := tell(t, world(kept))
	s.RunAutoscaler(t)
	s.eventually("one of three is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	rig.Always(t, 10*time.Second, "two are kept", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
}
