package supervisor

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/queues"
)

// queued puts a held job into the queue gpu. It is to be the last change.
func queued(j *jobs.Job) {
	labels := j.Object.GetLabels()
	labels[api.LabelKueueQueue] = "gpu"
	j.Object.SetLabels(labels)
}

// queue has the queue gpu lead to a ClusterQueue with a quota of eight GPUs, of which so many are reserved.
func (f *fixture) queue(reserved string) {
	f.systems.mu.Lock()
	defer f.systems.mu.Unlock()
	gpus := func(field, n string) any {
		return []any{map[string]any{"name": "default", "resources": []any{map[string]any{"name": "nvidia.com/gpu", field: n}}}}
	}
	f.systems.quotas = func() *queues.Quotas {
		return queues.New([]unstructured.Unstructured{{Object: map[string]any{
			"metadata": map[string]any{"namespace": "ml", "name": "gpu"}, "spec": map[string]any{"clusterQueue": "all"},
		}}}, []unstructured.Unstructured{{Object: map[string]any{
			"metadata": map[string]any{"name": "all"},
			"spec":     map[string]any{"resourceGroups": []any{map[string]any{"coveredResources": []any{"nvidia.com/gpu"}, "flavors": gpus("nominalQuota", "8")}}},
			"status":   map[string]any{"flavorsReservation": gpus("total", reserved)},
		}}}, nil)
	}
}

// queuedJob suspends a job that is in the queue.
func (f *fixture) queuedJob(name string) {
	f.job(name, held(jobs.HeldSuspended, jobs.HeldForReclaim), queued)
}

func TestNothingIsTriedForAJobWhoseQuotaOthersHaveAndItIsQueuedAgain(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.queue("5")
		f.start()
		f.queuedJob("train")
		f.pass(releaseTime)
		assert.Empty(t, f.asked(), "nothing is to be bought for it")
		assert.Empty(t, f.systems.done(), "Kueue may be about to give its quota back")
		f.pass(2 * lookEvery)
		assert.Empty(t, f.asked())
		assert.Equal(t, []string{"queue train "}, f.systems.done())
	})
}

func TestAJobIsOfferedOnceKueueHasGivenItsQuotaBack(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.queue("8") // its own quota is among that
		f.start()
		f.queuedJob("train")
		f.pass(2 * lookEvery)
		require.Empty(t, f.asked())
		f.queue("4")
		f.pass(lookEvery)
		require.Empty(t, f.asked(), "one that waits for it may be about to be admitted")
		f.pass(lookEvery)
		assert.Equal(t, []int{4}, f.asked())
		f.loop(4, 0)
		assert.Equal(t, []string{"resume train 4"}, f.systems.done())
	})
}

func TestAJobIsNotBoughtForAnyLongerOnceOthersTakeItsQuota(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.queue("0")
		f.start()
		f.queuedJob("train")
		f.pass(2 * lookEvery)
		require.Equal(t, []int{4}, f.asked())
		f.queue("6")
		f.pass(lookEvery)
		assert.Empty(t, f.asked())
		f.pass(releaseTime + lookEvery)
		assert.Equal(t, []string{"queue train "}, f.systems.done())
	})
}

func TestQuotaThatAJobCountsOnIsNotPromisedToOthers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.queue("2")
		f.start()
		f.queuedJob("train")
		f.pass(2 * lookEvery)
		require.Equal(t, []int{4}, f.asked())
		f.queuedJob("another")
		for range 5 {
			f.pass(lookEvery)
			require.Len(t, f.supervisor.Returning(), 1)
			assert.Equal(t, ref("train").String(), f.supervisor.Returning()[0].Ref)
		}
		f.pass(releaseTime)
		assert.Equal(t, []string{"queue another "}, f.systems.done())
	})
}

// TestAJobThatNeedsItsNodesBeforeItIsAdmittedWaitsForQuota is about topology-aware scheduling: in its queue it would wait for nodes for ever.
func TestAJobThatNeedsItsNodesBeforeItIsAdmittedWaitsForQuota(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.systems.annotations = map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"}
		f.queue("5")
		f.start()
		f.queuedJob("train")
		f.pass(time.Minute)
		assert.Empty(t, f.asked())
		assert.Empty(t, f.systems.done())
		assert.Equal(t, 1, f.eventCount(ReasonOverQuota))
		f.queue("4")
		f.pass(lastPause + lookEvery)
		assert.Equal(t, []int{4}, f.asked())
	})
}

func TestAJobThatNeedsItsNodesIsBoughtForInTheEndBecauseItMayBorrow(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.systems.annotations = map[string]string{"kueue.x-k8s.io/podset-required-topology": "rack"}
		f.queue("5")
		f.start()
		f.queuedJob("train")
		f.pass(nodesTime - time.Minute)
		require.Empty(t, f.asked())
		f.pass(time.Minute + lastPause + lookEvery)
		assert.Equal(t, []int{4}, f.asked())
		f.pass(lookEvery)
		assert.Equal(t, []int{4}, f.asked(), "and stays so")
	})
}

func TestNothingNewIsBoughtWhileQuotasCannotBeReadForAMoment(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.queue("8")
		f.systems.quotaErr = errors.New("timeout")
		f.start()
		f.queuedJob("train")
		f.pass(quotasUnreadTime - lookEvery)
		assert.Empty(t, f.asked())
		f.pass(2 * lookEvery)
		assert.Equal(t, []int{4}, f.asked(), "a right that is missing must not hold it for ever")
	})
}

func TestAJobOfNoQueueOrOfOneThatCannotBeReadIsOffered(t *testing.T) {
	for name, set := range map[string]func(f *fixture){
		"no queue": func(f *fixture) { f.queue("8"); f.job("train", held(jobs.HeldSuspended, jobs.HeldForReclaim)) },
		"no Kueue": func(f *fixture) { f.queuedJob("train") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.start()
				set(f)
				f.pass(lookEvery)
				assert.Equal(t, []int{4}, f.asked())
			})
		})
	}
}
