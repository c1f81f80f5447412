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
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	door := newNoticeEndpoint(s)
	s.RunAutoscaler(t, append(door.flags, "--reclaim-poll-interval=1s")...)
	deployGPUPods(s, "train", 1)
	pods := awaitReplicas(s, "train", 1)
	id := s.instances("asg-1")[0].ID
	before, err := s.node(t.Context(), id)
	require.NoError(t, err)

	pushNotice(s, door, interruption(id))
	awaitMarkFrom(s, id, "push")
	js := &jobSuite{suite: s}
	awaitCheckpointRequest(js, pods)
	s.eventually("its replacement is bought", func(context.Context) (bool, error) { return boughtInstances(s) == 2, nil })
	s.eventually("the Node is as it was", func(ctx context.Context) (bool, error) {
		if remains, err := podsRemain(ctx, js, pods...); err != nil || !remains {
			require.NoError(t, err)
			require.True(t, remains, "nobody was to be evicted")
		}
		node, err := s.node(ctx, id)
		return node != nil && untouched(node, before), err
	})
	s.awaitEvent("SpotReclaimCancelled", id)
	s.eventually("the surplus is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 1, nil })
	runs, err := podRuns(t.Context(), s, pods[0].Name)
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
	w := newWorld(singleOfferingPool("asg-1", 10))
	w.NoticePeriod = metav1.Duration{Duration: 2 * time.Minute}
	s := newSuite(t, w)
	door := newNoticeEndpoint(s)
	a := s.RunAutoscaler(t, append(door.flags, "--reclaim-poll-interval=1s", "--reclaim-notice-period=2m")...)
	deployGPUPods(s, "train", n)
	pods := awaitReplicas(s, "train", n)
	var ids, events []string
	for _, instance := range s.instances("asg-1") {
		ids, events = append(ids, instance.ID), append(events, interruption(instance.ID))
	}
	require.Len(t, ids, n)
	pushNotice(s, door, "["+strings.Join(events, ",")+"]")
	s.eventually("all but one are held", func(ctx context.Context) (bool, error) {
		metrics, err := a.Metrics(ctx)
		held := metrics["gpu_spot_reclaim_notices_held"].GetMetric()
		return len(held) == 1 && held[0].GetGauge().GetValue() == n-1, err
	})
	js := &jobSuite{suite: s}
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
		remain, err := podsRemain(ctx, js, pods...)
		return remain && len(held) == n-1, err
	})
	for _, id := range held {
		s.awaitEvent("SpotReclaimHeld", id)
	}
	require.NoError(t, s.Cloud.Reclaim(held[0]))
	awaitMarkFrom(s, held[0], "ecs-poll")
	awaitEmptyNode(s, held[0])
}

func TestPushedNoticeOnANoSpotNodeTouchesNothing(t *testing.T) {
	p := spotPool("asg-1", 10)
	p.SpotStrategy = alisim.NoSpot
	s := newSuite(t, newWorld(p))
	door := newNoticeEndpoint(s)
	a := s.RunAutoscaler(t, append(door.flags, "--reclaim-notice-period=20s", "--reclaim-poll-interval=1s", "--scale-down-unneeded-time=10m")...)
	id := buyOneNode(s)
	before, err := s.node(t.Context(), id)
	require.NoError(t, err)
	pushNotice(s, door, interruption(id))
	annotateNode(s, id, noticeOfPush, time.Now().Add(20*time.Second).UTC().Format(time.RFC3339)) // as a former version would have
	setExpiringCondition(s, id, corev1.ConditionTrue)

	rig.Always(t, 25*time.Second, "the Node and its pod are left alone", func(ctx context.Context) (bool, error) {
		node, err := s.node(ctx, id)
		if node == nil || marked(node) || node.Spec.Unschedulable || len(node.Spec.Taints) != len(before.Spec.Taints) {
			return false, err
		}
		return podRuns(ctx, s, "train")
	})
	assert.Len(t, s.instances("asg-1"), 1, "nothing is bought in its place")
	metrics, err := a.Metrics(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 1, counter(metrics["gpu_spot_reclaim_pushed_events_total"], "on-demand"))
}

// awaitReplicas waits until n replicas run, and returns them.
func awaitReplicas(s *suite, name string, n int) (pods []corev1.Pod) {
	s.t.Helper()
	s.eventually("all replicas run", func(ctx context.Context) (bool, error) {
		var err error
		pods, err = runningReplicas(ctx, s, name)
		return len(pods) == n, err
	})
	return pods
}

// podRuns reports whether the pod runs and is not being deleted.
func podRuns(ctx context.Context, s *suite, name string) (bool, error) {
	pod, err := s.pod(ctx, name)
	return pod != nil && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil, err
}

// pushNotice sends the event until it is taken: the endpoint may not be open yet.
func pushNotice(s *suite, door *noticeEndpoint, event string) {
	s.t.Helper()
	s.eventually("the notice is taken", func(ctx context.Context) (bool, error) {
		status, err := door.push(ctx, door.token, event)
		return status == http.StatusOK, err
	})
}
