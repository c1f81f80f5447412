package drain

import (
	"sync"
	"time"

	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// manyPods is how many pods without a budget there are at least when they wait for those that have one: the ReplicaSet
	// controller replaces 20 pods a second by default, for all ReplicaSets together, so fewer than that are no obstacle for long.
	// Source: SetDefaults_KubeControllerManagerConfiguration.
	manyPods = 100
	// evictionsPerSecond is how many pods can be evicted when the wait is over, at least.
	evictionsPerSecond = 100
	// turnMargin is how long before evictions turn into deletions all pods are to be evicted.
	turnMargin = 20 * time.Second
	// turnPatience is how long others wait while no pod that has a budget leaves.
	turnPatience = time.Minute
	// turnCheck is how soon pods are looked at again that wait for their turn.
	turnCheck = 2 * time.Second
)

// turns let pods that have a PodDisruptionBudget leave before others in a reclaim of hundreds of pods. Each of them leaves once
// the last one is replaced, and if thousands of others are to be replaced first, that takes minutes. The others keep
// training meanwhile. It is safe for concurrent use.
type turns struct {
	mu sync.Mutex
	// nodes are by name; total is their sum.
	nodes map[string]waiting
	total waiting
	// left is when a pod with a budget was last evicted, or the first began to wait.
	left time.Time
}

// waiting are how many pods have yet to leave: those that have a PodDisruptionBudget, and others that are replaced once they leave.
type waiting struct{ guarded, others int }

func (w *waiting) add(guarded bool, answer handshake.Answer) {
	switch {
	case guarded:
		w.guarded++
	case answer.Replaced || answer.Unknown:
		w.others++
	}
}

func newTurns() *turns { return &turns{nodes: map[string]waiting{}} }

// enter notes what is waiting on a Node.
func (t *turns) enter(node string, now time.Time, w waiting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.total.guarded == 0 && w.guarded > 0 {
		t.left = now
	}
	last := t.nodes[node]
	t.total.guarded += w.guarded - last.guarded
	t.total.others += w.others - last.others
	if w == (waiting{}) {
		delete(t.nodes, node)
	} else {
		t.nodes[node] = w
	}
}

// guardedLeft notes that a pod with a budget was evicted.
func (t *turns) guardedLeft(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left = now
}

// othersWait returns whether pods without a budget, on a Node with the notice, have to wait.
func (t *turns) othersWait(now time.Time, n notice.Notice) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	need := time.Duration(t.total.others) * time.Second / evictionsPerSecond
	return t.total.guarded > 0 && t.total.others >= manyPods && now.Sub(t.left) < turnPatience &&
		now.Before(n.DeleteFrom().Add(-need-turnMargin))
}
