package handshake

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// replacements knows for which instances there was a place elsewhere at some time. Names of Nodes are used again. It is safe for
// concurrent use.
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
	if r.haveAll(sets.New(n.InstanceID)) || !r.replaced(node) {
		return
	}
	r.mu.Lock()
	first := !r.found.Has(n.InstanceID)
	r.found.Insert(n.InstanceID)
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

// haveAll returns whether there was a place for what is on each of the instances.
func (r *replacements) haveAll(instances sets.Set[string]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.found.IsSuperset(instances)
}

// forget is for an instance whose Node is gone, or whose notice was withdrawn.
func (r *replacements) forget(instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Delete(instance)
}
