package processors

import (
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Arrivals remembers when each pod without a node was first seen. Creation timestamps would not do: they are cut to
// the second and belong to another machine's clock. It is safe for concurrent use.
type Arrivals struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	times map[types.UID]time.Time
}

// NewArrivals makes an empty record.
func NewArrivals(clk clock.PassiveClock) *Arrivals {
	return &Arrivals{clock: clk, times: map[types.UID]time.Time{}}
}

// Note records a pod that has no node, unless it was seen before.
func (a *Arrivals) Note(pod *apiv1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, seen := a.times[pod.UID]; !seen {
		a.times[pod.UID] = a.clock.Now()
	}
}

// Of returns when the pod was first seen; false if it was not.
func (a *Arrivals) Of(pod *apiv1.Pod) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at, seen := a.times[pod.UID]
	return at, seen
}

// Forget drops a pod that has a node or is gone.
func (a *Arrivals) Forget(pod *apiv1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.times, pod.UID)
}
