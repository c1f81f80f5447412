package reclaim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/status"
)

func TestStatusTellsHowFarAReclaimHasGot(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		f.add("train", 1, 2)
		w.addNode("a")
		w.addNode("b")
		w.addPod("on-a", "a", of("train", jobs.RoleWorker), awaiting)
		w.addPod("on-b", "b", of("train", jobs.RoleWorker), awaiting)
		f.start()
		assert.Equal(t, []status.Reclaim{}, w.controller.Reclaims(), "a list, not null")
		assert.Equal(t, []status.JobReclaim{}, w.controller.JobReclaims())

		w.cloud.reclaim("a")
		noticed := time.Now()
		w.poll()
		w.pass(time.Second)
		reclaims, said := w.controller.Reclaims(), w.controller.JobReclaims()
		require.Len(t, reclaims, 1)
		assert.WithinDuration(t, noticed.Add(notice.DefaultPeriod), reclaims[0].Deadline, 5*time.Second)
		assert.Equal(t, status.Reclaim{
			Node: "a", Instance: "i-a", Phase: status.PhaseDraining, Source: string(notice.SourcePoll), Pods: 1,
			Noticed: reclaims[0].Noticed, Deadline: reclaims[0].Deadline, DeletedFrom: reclaims[0].DeletedFrom,
		}, reclaims[0])
		assert.WithinDuration(t, reclaims[0].Deadline.Add(-time.Minute), reclaims[0].DeletedFrom, time.Second)
		require.Len(t, said, 1)
		assert.Equal(t, status.JobReclaim{
			System: "fake", Namespace: "default", Name: "train", Phase: status.JobPhaseWaiting, Pods: 1,
			Requested: said[0].Requested, Deadline: reclaims[0].Deadline,
		}, said[0])

		w.say("on-b")
		w.pass(time.Second)
		assert.Equal(t, []string{"on-a"}, w.gone())
		w.pass(time.Second)
		reclaims = w.controller.Reclaims()
		require.Len(t, reclaims, 1)
		assert.Equal(t, []any{status.PhaseDrained, 0}, []any{reclaims[0].Phase, reclaims[0].Pods})
		assert.Empty(t, w.controller.JobReclaims(), "the job has nothing more to lose")
	})
}
