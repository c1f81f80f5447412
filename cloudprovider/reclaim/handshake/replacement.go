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
	// replaced and ready are those of Config.
	replaced, ready func(node string) bool
	clock           clock.PassiveClock

	mu sync.Mutex
	// found are the instances for which there was a place, readied those for which that was on nodes that are ready.
	found, readied sets.Set[string]
}

func newReplacements(config Config) *replacements {
	return &replacements{
		replaced: config.Replaced, ready: config.ReplacementReady, clock: config.Clock, found: sets.New[string](), readied: sets.New[string](),
	}
}

// check observes whether there is a place for what is on the Node, and whether it is ready. A Node for which there was one is not
// checked again.
func (r *replacements) check(node string, n notice.Notice) {
	if r.note(r.found, n.InstanceID, func() bool { return r.replaced(node) }) {
		noticeToReplacement.WithLabelValues(string(n.Source)).Observe(r.clock.Since(n.FirstSeen).Seconds())
	}
	if r.ready != nil && r.note(r.readied, n.InstanceID, func() bool { return r.ready(node) }) {
		noticeToReady.WithLabelValues(string(n.Source)).Observe(r.clock.Since(n.FirstSeen).Seconds())
	}
}

// note adds the instance to the set if it is so, and returns whether that was the first time.
func (r *replacements) note(set sets.Set[string], instance string, isSo func() bool) (first bool) {
	r.mu.Lock()
	known := set.Has(instance)
	r.mu.Unlock()
	if known || !isSo() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !set.Has(instance)
	set.Insert(instance)
	return first
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

// areReady returns whether each of those places was on nodes that are ready, or need not be.
func (r *replacements) areReady(instances sets.Set[string]) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready == nil || r.readied.IsSuperset(instances)
}

// forget is for an instance whose Node is gone, or whose notice was withdrawn.
func (r *replacements) forget(instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found.Delete(instance)
	r.readied.Delete(instance)
}
