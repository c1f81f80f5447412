package handshake

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// replacements knows for which Nodes there was a place elsewhere at some time. It is safe for concurrent use.
type replacements struct {
	replaced func(node string) bool
	clock    clock.PassiveClock

	mu    sync.Mutex
	found sets.Set[string]
}

func newReplacements(replaced func(node string) bool, clk clock.PassiveClock) *replacements {
	return &replacements{replaced: replaced, clock: clk, found: sets.New[string]()}
}

// check observes whether there is a place for what is on the Node. A Node for which there was one is not checked again.
func (r *replacements) check(node string, n notice.Notice) {
	if r.haveAll(sets.New(node)) || !r.replaced(node) {
		return
	}
	r.mu.Lock()
	first := !r.found.Has(node)
	r.found.Insert(node)
	r.mu.Unlock()
	if first {
		noticeToReplacement.WithLabelValues(string(n.Source)).Observe(r.clock.Since(n.FirstSeen).Seconds())
	}
}

// checkAll checks the Nodes that the job loses.
func (r *replacements) checkAll(l loss) {
	checked := sets.New[string]()
	for _, pod := range l.leaving {
		if node := pod.Spec.NodeName; !checked.Has(node) {
			checked.Insert(node)
			r.check(node, pod.notice)
		}
	}
}

// haveAll returns whether there was a place for what is on each of the Nodes.
func (r *replacements) haveAll(nodes sets.Set[string]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found.IsSuperset(nodes)
}

// forget is for a Node that is gone, or whose notice was withdrawn.
func (r *replacements) forget(node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Delete(node)
}
