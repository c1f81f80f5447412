package reclaim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
)

func TestWorkersGoFirstThenHostsThenLaunchers(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		w.addNode("a")
		w.addPod("launcher", "a", of("train", jobs.RoleLauncher))
		w.gang("train", "host", 1)
		w.gang("train", "worker", 2)
		w.protect("train-worker-1")
		w.cloud.reclaim("a", "train-host-0", "train-worker-0", "train-worker-1")
		f.start()
		w.pass(20 * time.Second)
		require.NotContains(t, w.pods(), "train-worker-0")
		require.Equal(t, []string{"launcher", "train-host-0", "train-worker-1"}, w.pods(), "they wait for the last of the workers")

		w.client.ClearActions()
		w.unprotect("train-worker-1")
		w.pass(slowestRetry + time.Second)
		assert.Equal(t, []string{"train-worker-1", "train-host-0", "launcher"}, w.gone())
	})
}

func TestNobodyWaitsForWorkersThatStay(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		w.gang("train", "launcher", 1)
		w.gang("train", "worker", 2)
		w.cloud.reclaim("train-launcher-0")
		f.start()
		assert.Equal(t, []string{"train-launcher-0"}, w.gone())
	})
}

func TestNobodyWaitsForWorkersThatHaveEnded(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		w.gang("train", "launcher", 1)
		w.gang("train", "worker", 1)
		w.protect("train-worker-0")
		w.cloud.reclaim("train-launcher-0", "train-worker-0")
		f.start()
		require.Len(t, w.pods(), 2, "the PDB keeps the worker, and the order the launcher")
		w.updatePod("train-worker-0", succeeded)
		w.pass(time.Second)
		assert.Equal(t, []string{"train-worker-0"}, w.pods())
	})
}

func TestInTheLastMinuteOrderCountsNoMore(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		w.gang("train", "launcher", 1)
		w.gang("train", "worker", 1)
		w.protect("train-worker-0")
		w.cloud.reclaim("train-launcher-0", "train-worker-0")
		f.start()
		w.pass(4*time.Minute - 2*time.Second)
		require.Len(t, w.pods(), 2)
		w.pass(2 * time.Second)
		assert.Empty(t, w.pods())
	})
}

func TestALauncherDoesNotWaitForAWorkerWhoseNodeIsGivenBack(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		w.gang("train", "launcher", 1)
		w.gang("train", "worker", 1)
		w.protect("train-worker-0")
		w.cloud.reclaim("train-launcher-0", "train-worker-0")
		f.start()
		w.pass(10 * time.Second)
		require.Len(t, w.pods(), 2)
		w.cloud.withdraw("train-worker-0")
		w.pass(5 * poll.DefaultInterval)
		assert.Equal(t, []string{"train-worker-0"}, w.pods())
	})
}

func (w *world) unprotect(pod string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.guarded.Delete(pod)
}
