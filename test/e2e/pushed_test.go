package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

func TestPushedNoticeThatIsFalseTakesNothingFromAnybody(t *testing.T) {
	s := tell(t, world(pool("asg-1", 10)))
	door := s.door()
	s.RunAutoscaler(t, append(door.flags, "--reclaim-poll-interval=1s")...)
	s.deploy("train", 1)
	pods := s.runAll("train", 1)
	id := s.instances("asg-1")[0].ID
	before, err := s.node(t.Context(), id)
	require.NoError(t, err)

	s.pushed(door, interruption(id))
	s.heardFrom(id, "push")
	js := &jobStory{story: s}
	js.asks(pods)
	s.eventually("its replacement is bought", func(context.Context) (bool, error) { return s.bought() == 2, nil })
	s.eventually("the Node is as it was", func(ctx context.Context) (bool, error) {
		if remains, err := js.remain(ctx, pods...); err != nil || !remains {
			require.NoError(t, err)
			require.True(t, remains, "nobody was to be evicted")
		}
		node, err := s.node(ctx, id)
		return node != nil && untouched(node, before), err
	})
	s.told("SpotReclaimCancelled", id)
	s.eventually("the surplus is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 1, nil })
	runs, err := s.runs(t.Context(), pods[0].Name)
	require.NoError(t, err)
	assert.True(t, runs)
	assert.Equal(t, id, s.instances("asg-1")[0].ID, "the pod stays where it is, and what was bought goes")
	s.eventually("the warning is taken off the pod", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, pods[0].Name)
		return pod != nil && pod.Annotations["gpu-spot.autoscaling/reclaim-deadline"] == "", err
	})
}

func TestFloodOfPushedNoticesIsHeldUntilECSConfirmsThem(t *testing.T) {
	const n = 4
	w := world(single("asg-1", 10))
	w.NoticePeriod = metav1.Duration{Duration: 2 * time.Minute}
	s := tell(t, w)
	door := s.door()
	a := s.RunAutoscaler(t, append(door.flags, "--reclaim-poll-interval=1s", "--reclaim-notice-period=2m")...)
	s.deploy("train", n)
	pods := s.runAll("train", n)
	var ids, events []string
	for _, instance := range s.instances("asg-1") {
		ids, events = append(ids, instance.ID), append(events, interruption(instance.ID))
	}
	require.Len(t, ids, n)
	s.pushed(door, "["+strings.Join(events, ",")+"]")
	s.eventually("all but one are held", func(ctx context.Context) (bool, error) {
		metrics, err := a.Metrics(ctx)
		held := metrics["gpu_spot_reclaim_notices_held"].GetMetric()
		return len(held) == 1 && held[0].GetGauge().GetValue() == n-1, err
	})
	js := &jobStory{story: s}
	var held []string
	rig.Always(t, 10*time.Second, "one Node is marked, and nobody is evicted", func(ctx context.Context) (bool, error) {
		var unmarked []string
		for _, id := range ids {
			node, err := s.node(ctx, id)
			if node == nil {
				return false, err
			}
			if !marked(node) {
				unmarked = append(unmarked, id)
			}
		}
		held = unmarked
		remain, err := js.remain(ctx, pods...)
		return remain && len(held) == n-1, err
	})
	for _, id := range held {
		s.told("SpotReclaimHeld", id)
	}
	require.NoError(t, s.Cloud.Reclaim(held[0]))
	s.heardFrom(held[0], "ecs-poll")
	s.emptied(held[0])
}

func TestPushedNoticeOnANoSpotNodeTouchesNothing(t *testing.T) {
	p := pool("asg-1", 10)
	p.SpotStrategy = alisim.NoSpot
	s := tell(t, world(p))
	door := s.door()
	a := s.RunAutoscaler(t, append(door.flags, "--reclaim-notice-period=20s", "--reclaim-poll-interval=1s", "--scale-down-unneeded-time=10m")...)
	id := s.oneNode()
	before, err := s.node(t.Context(), id)
	require.NoError(t, err)
	s.pushed(door, interruption(id))
	s.annotate(id, noticeOfPush, time.Now().Add(20*time.Second).UTC().Format(time.RFC3339)) // as a former version would have
	s.expire(id, corev1.ConditionTrue)

	rig.Always(t, 25*time.Second, "the Node and its pod are left alone", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, id)
		if node == nil || marked(node) || node.Spec.Unschedulable || len(node.Spec.Taints) != len(before.Spec.Taints) {
			return false, err
		}
		return s.runs(ctx, "train")
	})
	assert.Len(t, s.instances("asg-1"), 1, "nothing is bought in its place")
	metrics, err := a.Metrics(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, counter(metrics["gpu_spot_reclaim_pushed_events_total"], "on-demand"))
}

// runAll waits until n replicas run, and returns them.
func (s *story) runAll(name string, n int) (pods []corev1.Pod) {
	s.t.Helper()
	s.eventually("all replicas run", func(ctx context.Context) (bool, error) {
		var err error
		pods, err = s.replicas(ctx, name)
		return len(pods) == n, err
	})
	return pods
}

// runs says whether the pod runs and nobody has asked it to go.
func (s *story) runs(ctx context.Context, name string) (bool, error) {
	pod, err := s.pod(ctx, name)
	return pod != nil && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil, err
}

// pushed sends the event until it is taken: the endpoint may not be open yet.
func (s *story) pushed(door *door, event string) {
	s.t.Helper()
	s.eventually("the notice is taken", func(ctx context.Context) (bool, error) {
		status, err := door.push(ctx, door.token, event)
		return status == http.StatusOK, err
	})
}
