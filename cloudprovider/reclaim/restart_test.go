package reclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// killer cuts the leader off after so many of its writes and calls; nothing of what it does after that arrives.
type killer struct {
	mu    sync.Mutex
	left  int
	armed bool
}

func (k *killer) strike() (dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.armed {
		return false
	}
	k.left--
	return k.left < 0
}

func (k *killer) set(armed bool, left int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed, k.left = armed, left
}

// mortal is Jobs as the leader sees it.
type mortal struct {
	*fakeJobs
	killer *killer
}

func (m mortal) call(do func() error) error {
	if m.killer.strike() {
		return fmt.Errorf("the leader is dead")
	}
	return do()
}

func (m mortal) Warn(ctx context.Context, job jobs.Job, warning jobs.Warning) error {
	return m.call(func() error { return m.fakeJobs.Warn(ctx, job, warning) })
}

func (m mortal) Shrink(ctx context.Context, job jobs.Job, pods []string) error {
	return m.call(func() error { return m.fakeJobs.Shrink(ctx, job, pods) })
}

func (m mortal) Suspend(ctx context.Context, job jobs.Job, reason jobs.HoldReason) error {
	return m.call(func() error { return m.fakeJobs.Suspend(ctx, job, reason) })
}

// TestALeaderMayBeKilledBetweenAnyTwoSteps kills the leader after its first write, in another bubble after its second, and
// so on until it has nothing more to write.
func TestALeaderMayBeKilledBetweenAnyTwoSteps(t *testing.T) {
	shrunk := []string{"shrink train train-worker-0,train-worker-1"}
	for name, tc := range map[string]struct {
		least    int
		reshrunk error
		want     []string
	}{
		"of a job that is shrunk":                        {1, nil, shrunk},
		"of a job whose system is busy when asked again": {1, &jobs.BusyError{With: "ScaleIn"}, shrunk},
		"of a job that is suspended":                     {2, nil, []string{"suspend train"}},
	} {
		t.Run(name, func(t *testing.T) {
			finished := false
			for writes := 0; !finished; writes++ {
				require.Less(t, writes, 60, "it never ends")
				t.Run(fmt.Sprint(writes), func(t *testing.T) {
					withJobs(t, func(w *world, f *fakeJobs) {
						f.reshrunk = tc.reshrunk
						finished = killAfter(w, f, writes, tc.least, tc.want)
					})
				})
			}
		})
	}
}

// killAfter says whether the leader lived to the end.
func killAfter(w *world, f *fakeJobs, writes, least int, want []string) (lived bool) {
	k := &killer{}
	w.client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetVerb() {
		case "patch", "create", "delete":
			return k.strike(), nil, apierrors.NewInternalError(fmt.Errorf("the leader is dead"))
		}
		return false, nil, nil
	})
	f.add("train", least, 3)
	f.scales = 20 * time.Second
	w.gang("train", "worker", 3, awaiting)
	w.addPod("neighbour", "train-worker-1")
	w.cloud.reclaim("train-worker-0", "train-worker-1")
	leader := func() { w.start(func(c *settings) { c.Jobs = mortal{f, k} }) }

	k.set(true, writes)
	leader()
	w.pass(2 * time.Second)
	ids := map[string]bool{}
	look := func() {
		for _, pod := range []string{"train-worker-0", "train-worker-1", "train-worker-2"} {
			if slices.Contains(w.pods(), pod) && w.request(pod) != "" {
				ids[w.request(pod)] = true
			}
		}
	}
	look()
	// The job gives its word once it was asked, whoever is leader then.
	speak := func() {
		if slices.Contains(w.pods(), "train-worker-2") && w.request("train-worker-2") != "" {
			w.say("train-worker-2")
		}
	}
	k.pause(speak)
	w.pass(suspendWait + 5*time.Second)
	lived = !k.struck()
	w.stop()
	w.seen() // the dead tell what they like
	k.set(false, 0)
	leader()
	w.pass(2 * time.Second)
	look()
	speak()
	w.pass(suspendWait + 5*time.Second)

	assert.Equal(w, []string{"train-worker-2"}, w.pods(), "the reclaiming Nodes are empty, and nobody else is gone")
	assert.Equal(w, want, f.called(), "one decision")
	assert.Len(w, ids, 1, "one request")
	assert.Empty(w, w.request("train-worker-2"), "which is over")
	assert.NotContains(w, w.seen(), "SpotReclaimUnprepared train")
	for _, node := range []string{"train-worker-0", "train-worker-1"} {
		assert.True(w, cluster.IsDrained(w.node(node)))
	}
	return lived
}

// pause lets others than the leader write.
func (k *killer) pause(write func()) {
	k.mu.Lock()
	armed, left := k.armed, k.left
	k.armed = false
	k.mu.Unlock()
	write()
	k.set(armed, left)
}

func (k *killer) struck() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.left < 0
}
