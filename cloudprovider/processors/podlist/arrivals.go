package podlist

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Arrivals records the pods without a node, and when each was first seen. Creation timestamps would not do: they are cut to
// the second and come from the clock of another machine. Arrivals is safe for concurrent use: an informer's handler writes
// it, and [Deferral] reads it.
type Arrivals struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	waiting map[types.UID]arrival
}

type arrival struct {
	at time.Time
	// pod is as it was last seen.
	pod *apiv1.Pod
}

// NewArrivals returns an empty record.
func NewArrivals(clk clock.PassiveClock) *Arrivals {
	return &Arrivals{clock: clk, waiting: map[types.UID]arrival{}}
}

// Note records a pod that has no node. The time of its arrival stays that of the first call.
func (a *Arrivals) Note(pod *apiv1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, seen := a.waiting[pod.UID]
	if !seen {
		known.at = a.clock.Now()
	}
	known.pod = pod
	a.waiting[pod.UID] = known
}

// Of returns when the pod was first seen. It returns false if the pod is not recorded.
func (a *Arrivals) Of(pod *apiv1.Pod) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, seen := a.waiting[pod.UID]
	return known.at, seen
}

// Waiting returns all recorded pods, in no order.
func (a *Arrivals) Waiting() []*apiv1.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	pods := make([]*apiv1.Pod, 0, len(a.waiting))
	for _, known := range a.waiting {
		pods = append(pods, known.pod)
	}
	return pods
}

// All returns all recorded pods and when each was first seen, as they are when it is called.
func (a *Arrivals) All() iter.Seq2[*apiv1.Pod, time.Time] {
	a.mu.Lock()
	defer a.mu.Unlock()
	recorded := slices.Collect(maps.Values(a.waiting))
	return func(yield func(*apiv1.Pod, time.Time) bool) {
		for _, known := range recorded {
			if !yield(known.pod, known.at) {
				return
			}
		}
	}
}

// Forget removes a pod that has a node or is gone.
func (a *Arrivals) Forget(pod *apiv1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, pod.UID)
}
