package reclaim

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

func TestEveryStepOfAReclaimIsTimed(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		toMark := observe(t, "gpu_spot_reclaim_notice_to_mark_seconds", sourcePoll)
		toReplacement := observe(t, "gpu_spot_reclaim_notice_to_replacement_seconds", sourcePoll)
		toAcknowledgement := observe(t, "gpu_spot_reclaim_notice_to_acknowledgement_seconds", "fake")
		toEmpty := observe(t, "gpu_spot_reclaim_notice_to_empty_seconds", sourcePoll)
		left := observe(t, "gpu_spot_reclaim_left_when_empty_seconds", sourcePoll)
		const replacedAfter, saidAfter, step = 5 * time.Second, 20 * time.Second, 2.1 // seconds
		var replaced atomic.Bool
		f.add("train", 1, 2)
		w.addNode("a")
		w.addNode("b")
		never := func(pod *corev1.Pod) { pod.Spec.RestartPolicy = corev1.RestartPolicyNever }
		w.addPod("on-a", "a", of("train", jobs.RoleWorker), awaiting, never)
		w.addPod("on-b", "b", of("train", jobs.RoleWorker), awaiting, never)
		w.cloud.reclaim("a")
		f.start(func(c *settings) { c.Replaced = func(string) bool { return replaced.Load() } })
		require.True(t, cluster.IsMarked(w.node("a")))
		w.pass(replacedAfter - time.Second)
		replaced.Store(true) // while the acknowledgement is still awaited
		w.pass(saidAfter - replacedAfter)
		require.Empty(t, w.gone())
		w.say("on-b")
		w.pass(5 * time.Second)
		require.Equal(t, []string{"on-a"}, w.gone())
		assert.EqualValues(t, 1, value(t, "gpu_spot_reclaims_in_progress"))
		deadline, err := time.Parse(time.RFC3339, w.node("a").Annotations[api.AnnotationReclaimDeadline])
		require.NoError(t, err)
		assert.EqualValues(t, deadline.Unix(), value(t, "gpu_spot_reclaim_next_deadline_timestamp_seconds"))

		assert.InDelta(t, 0, toMark.one(), step)
		assert.InDelta(t, replacedAfter.Seconds(), toReplacement.one(), step)
		assert.InDelta(t, saidAfter.Seconds(), toAcknowledgement.one(), step)
		assert.InDelta(t, saidAfter.Seconds(), toEmpty.one(), step)
		assert.InDelta(t, (notice.DefaultPeriod - saidAfter).Seconds(), left.one(), step)

		w.cloud.release("a")
		w.poll()
		w.poll()
		assert.Zero(t, value(t, "gpu_spot_reclaims_in_progress"))
		assert.Zero(t, value(t, "gpu_spot_reclaim_next_deadline_timestamp_seconds"))
	})
}
