package reclaim

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/move"
	"gpu-spot-autoscaler/cloudprovider/reclaim/pace"
)

// moving has a job of two workers on on-demand Nodes, which are to move to spot instances.
type moving struct {
	*world
	jobs  *fakeJobs
	pools *fakePools
}

// leaves is how long it takes until pods of a suspended job are evicted that its system does not end.
const leaves = pace.SuspendWait + 30*time.Second

// workers are the pods of the job, and their Nodes.
var workers = []string{"train-worker-0", "train-worker-1"}

// withMove runs a test in which the move of the job has begun. By default there are spot instances that are ready for it.
func withMove(t *testing.T, test func(m moving), change ...func(*settings)) {
	t.Helper()
	withJobs(t, func(w *world, f *fakeJobs) {
		m := moving{w, f, &fakePools{w: w}}
		f.add("train", 2, 2)
		w.gang("train", "worker", 2, awaiting)
		for _, node := range workers {
			w.cloud.buyOnDemand(node)
			w.updateNode(node, labelled(api.LabelSpotStrategy, alicloud.NoSpot))
		}
		w.addNode("spot")
		m.start(change...)
		w.seen()
		m.begin(workers...)
		test(m)
	})
}

func (m moving) start(change ...func(*settings)) {
	m.Helper()
	ready := func(string) bool { return true }
	m.jobs.start(append([]func(*settings){pollRarely, m.pools.watchFaults, func(c *settings) { c.Replaced, c.ReplacementReady, c.MovesReady = ready, ready, ready }}, change...)...)
}

func (m moving) begin(names ...string) {
	m.Helper()
	var nodes []*corev1.Node
	for _, name := range names {
		nodes = append(nodes, m.node(name))
	}
	m.controller.Move(m.Context(), nodes)
	m.pass(time.Second)
}

// requireStayed checks that the job goes on where it is.
func (m moving) requireStayed(outcome move.Outcome, before float64) {
	m.Helper()
	for _, name := range workers {
		requireUnmarked(m.T, m.node(name))
		assert.False(m, m.node(name).Spec.Unschedulable)
		assert.Empty(m, m.request(name), "the request is taken back")
	}
	assert.Equal(m, workers, m.world.pods())
	assert.Empty(m, m.pools.gone())
	assert.Equal(m, before+2, endedMoves(m.T, outcome))
	assert.Contains(m, m.seen(), "SpotMoveEnded "+workers[0])
}

func endedMoves(t *testing.T, outcome move.Outcome) float64 {
	t.Helper()
	return value(t, "gpu_spot_moves_total", string(outcome))
}

func TestAJobMovesOnceItsWorkIsSavedAndItsInstancesAreGivenBack(t *testing.T) {
	completed := endedMoves(t, move.Completed)
	withMove(t, func(m moving) {
		for _, node := range workers {
			requireMarked(t, m.node(node), time.Now().Add(move.Period-time.Second))
		}
		assert.Equal(t, 2.0, value(t, "gpu_spot_moves_in_progress"))
		assert.Zero(t, value(t, "gpu_spot_reclaims_in_progress"))
		assert.Empty(t, m.notices.Lost(), "the market takes nothing")
		m.pass(5 * time.Minute)
		assert.Equal(t, workers, m.world.pods(), "it has not acknowledged")
		assert.Empty(t, m.jobs.called())
		m.say(workers[0])
		m.pass(leaves)
		assert.Equal(t, []string{"suspend train"}, m.jobs.called(), "too few survive")
		assert.Empty(t, m.world.pods())
		assert.Equal(t, workers, m.pools.gone())
		m.pass(time.Minute)
		assert.Nil(t, m.node(workers[0]), "its instance is gone")
		assert.NotNil(t, m.node("spot"))
		assert.Equal(t, completed+2, endedMoves(t, move.Completed))
	})
}

func TestAJobThatDoesNotSaveItsWorkStaysOnDemand(t *testing.T) {
	missed := endedMoves(t, move.Missed)
	withMove(t, func(m moving) {
		m.pass(move.Period)
		m.requireStayed(move.Missed, missed)
		assert.Empty(t, m.jobs.called())
	})
}

func TestAJobWhosePlaceIsNotReadyStaysOnDemand(t *testing.T) {
	expired := endedMoves(t, move.Expired)
	withMove(t, func(m moving) {
		m.say(workers[0])
		m.pass(move.Period - 2*time.Second)
		assert.Equal(t, workers, m.world.pods(), "it waits for its place")
		m.pass(3 * time.Second)
		m.requireStayed(move.Expired, expired)
		assert.Empty(t, m.jobs.called())
	}, func(c *settings) { c.MovesReady = func(string) bool { return false } })
}

func TestAJobStaysIfItsPlaceIsGoneByTheTimeThatItsWorkIsSaved(t *testing.T) {
	var ready atomic.Bool
	ready.Store(true)
	withMove(t, func(m moving) {
		m.pass(time.Minute)
		ready.Store(false) // the spot instance was reclaimed, or another pod came to it
		m.say(workers[0])
		m.pass(5 * time.Minute)
		assert.Empty(t, m.jobs.called())
		ready.Store(true)
		m.pass(2 * time.Second)
		assert.Contains(t, m.request(workers[0]), "-last", "it has trained since")
		m.say(workers[0])
		m.pass(time.Second)
		assert.Equal(t, []string{"suspend train"}, m.jobs.called(), "there is another")
	}, func(c *settings) { c.MovesReady = func(string) bool { return ready.Load() } })
}

func TestNoJobLeavesWhenThereIsNoTimeForThat(t *testing.T) {
	withMove(t, func(m moving) {
		m.pass(move.Period - pace.SuspendWait)
		m.say(workers[0])
		m.pass(time.Minute)
		assert.Empty(t, m.jobs.called(), "it would be suspended when its Nodes are restored")
	})
}

func TestAJobThatCannotBePreparedStaysOnDemand(t *testing.T) {
	missed := endedMoves(t, move.Missed)
	withMove(t, func(m moving) {
		m.jobs.mu.Lock()
		m.jobs.fails["suspend"] = errors.New("the webhook is down")
		m.jobs.mu.Unlock()
		m.say(workers[0])
		m.pass(3 * time.Minute)
		m.requireStayed(move.Missed, missed)
	})
}

// A Job whose pods leave one by one would count each as a failure.
func TestAJobThatIsNeitherSuspendedNorShrunkStaysOnDemand(t *testing.T) {
	missed := endedMoves(t, move.Missed)
	withMove(t, func(m moving) {
		m.jobs.mu.Lock()
		m.jobs.jobs["train"].Finished = true // then nothing is done to it
		m.jobs.mu.Unlock()
		m.say(workers[0])
		m.pass(time.Minute)
		assert.Equal(t, workers, m.world.pods())
		assert.Equal(t, missed+2, endedMoves(t, move.Missed))
	})
}

func TestAMoveThatIsDecidedGoesOnThoughTheJobLosesAnotherNode(t *testing.T) {
	completed := endedMoves(t, move.Completed)
	withJobs(t, func(w *world, f *fakeJobs) {
		m := moving{w, f, &fakePools{w: w}}
		f.add("train", 3, 3)
		w.gang("train", "worker", 3, awaiting)
		w.cloud.buyOnDemand("train-worker-0")
		w.updateNode("train-worker-0", labelled(api.LabelSpotStrategy, alicloud.NoSpot))
		m.start()
		m.begin("train-worker-0")
		m.say("train-worker-1")
		w.pass(2 * time.Second)
		require.Equal(t, []string{"suspend train"}, f.called())
		w.updateNode("train-worker-2", agentSays(time.Now().Add(4*time.Minute)))
		w.pass(leaves)
		assert.Equal(t, []string{"train-worker-0"}, m.pools.gone(), "it is suspended already")
		assert.Equal(t, completed+1, endedMoves(t, move.Completed))
	})
}

func TestNoPodDisruptionBudgetIsBrokenForAMove(t *testing.T) {
	expired := endedMoves(t, move.Expired)
	withMove(t, func(m moving) {
		for _, pod := range workers {
			m.protect(pod)
		}
		m.say(workers[0])
		m.pass(move.Period + 5*time.Minute + time.Second)
		assert.Equal(t, workers, m.world.pods())
		assert.Equal(t, expired+2, endedMoves(t, move.Expired))
		requireUnmarked(t, m.node(workers[0]))
	})
}

func TestAMoveEndsWhenTheJobLosesAnotherNode(t *testing.T) {
	overtaken := endedMoves(t, move.Overtaken)
	withJobs(t, func(w *world, f *fakeJobs) {
		m := moving{w, f, &fakePools{w: w}}
		f.add("train", 1, 3)
		w.gang("train", "worker", 3, awaiting)
		w.cloud.buyOnDemand("train-worker-0")
		w.updateNode("train-worker-0", labelled(api.LabelSpotStrategy, alicloud.NoSpot))
		m.start()
		m.begin("train-worker-0")
		require.True(t, cluster.IsMarked(m.node("train-worker-0")))
		w.updateNode("train-worker-2", agentSays(time.Now().Add(4*time.Minute)))
		w.pass(5 * time.Second)
		requireUnmarked(t, m.node("train-worker-0"))
		assert.True(t, cluster.IsMarked(m.node("train-worker-2")))
		m.say("train-worker-1")
		w.pass(3 * time.Minute)
		assert.Equal(t, []string{"train-worker-0", "train-worker-1"}, w.pods(), "it survives")
		assert.Equal(t, overtaken+1, endedMoves(t, move.Overtaken))
	})
}

func TestAFaultTakesThePlaceOfAMove(t *testing.T) {
	withMove(t, func(m moving) {
		m.updateNode(workers[0], lost(corev1.ConditionTrue))
		m.pass(fault.Persistence + 2*time.Second)
		assert.Equal(t, "fault", m.node(workers[0]).Annotations[api.AnnotationReclaimSource])
		requireUnmarked(t, m.node(workers[1]))
		m.say(workers[1])
		m.pass(fault.DefaultPeriod + time.Minute)
		assert.Equal(t, workers[:1], m.pools.gone())
	})
}

func TestANewLeaderCallsOffAMoveOfWhichNothingIsSettled(t *testing.T) {
	interrupted := endedMoves(t, move.Interrupted)
	withMove(t, func(m moving) {
		m.stop()
		m.start()
		m.pass(5 * time.Second)
		m.requireStayed(move.Interrupted, interrupted)
		assert.Empty(t, m.jobs.called())
	})
}

func TestANewLeaderGoesOnWithAMoveOfAJobThatIsSuspendedForIt(t *testing.T) {
	completed := endedMoves(t, move.Completed)
	withMove(t, func(m moving) {
		m.say(workers[1])
		m.pass(5 * time.Second)
		require.True(t, m.jobs.suspended("train"))
		require.Equal(t, workers, m.world.pods())
		m.stop()
		m.start()
		m.pass(leaves)
		assert.Equal(t, workers, m.pools.gone())
		assert.Equal(t, completed+2, endedMoves(t, move.Completed))
	})
}

func TestANodeWhoseInstanceHasToStayServesOnAfterAMove(t *testing.T) {
	refused := endedMoves(t, move.Refused)
	withMove(t, func(m moving) {
		m.pools.refuse(ess.ErrBelowMinimum)
		m.say(workers[0])
		m.pass(leaves)
		assert.Empty(t, m.world.pods())
		for _, node := range workers {
			requireUnmarked(t, m.node(node))
		}
		assert.Equal(t, refused+2, endedMoves(t, move.Refused))
	})
}

func TestANodeIsRestoredWhoseInstanceTheCloudDoesNotRemove(t *testing.T) {
	refused := endedMoves(t, move.Refused)
	withMove(t, func(m moving) {
		m.pools.refuse(errors.New("IncorrectCapacity.MinSize"))
		m.say(workers[0])
		m.pass(move.Period + 4*time.Minute)
		assert.True(t, cluster.IsMarked(m.node(workers[0])), "it is tried again")
		m.pass(2 * time.Minute)
		requireUnmarked(t, m.node(workers[0]))
		assert.Equal(t, refused+2, endedMoves(t, move.Refused))
	})
}

func TestNobodyElseBeginsAMove(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		m := moving{w, f, &fakePools{w: w}}
		f.add("train", 1, 1)
		w.gang("train", "worker", 1, awaiting)
		w.updateNode(workers[0], labelled(api.LabelSpotStrategy, alicloud.NoSpot), annotated(api.AnnotationReclaimSource, "move"),
			annotated(api.AnnotationReclaimDeadline, "2099-01-01T00:00:00Z"))
		w.cloud.buyOnDemand(workers[0])
		m.start()
		m.pass(10 * time.Second)
		requireUnmarked(t, m.node(workers[0]))
		assert.Equal(t, workers[:1], w.pods())
	})
}

func TestNoJobMovesAwayFromASpotInstance(t *testing.T) {
	withJobs(t, func(w *world, f *fakeJobs) {
		m := moving{w, f, &fakePools{w: w}}
		f.add("train", 1, 1)
		w.gang("train", "worker", 1, awaiting)
		m.start()
		m.begin(workers[0])
		requireUnmarked(t, m.node(workers[0]))
	})
}
