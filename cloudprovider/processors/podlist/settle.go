package podlist

import (
	"iter"
	"maps"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// DefaultSettleWindow is how long no new pod of a demand must have appeared before its pods are bought for.
const DefaultSettleWindow = time.Second

const (
	// maxSettleWindows limits the wait to so many windows, so that a steady stream of pods cannot starve the first of them.
	maxSettleWindows = 5
	// Of a burst of at least burstSize pods, the last one has come when no other follows for burstGaps times the average
	// time between two of them, and at least for a burstShare-th of the window: controllers create pods in batches. What stops a
	// burst for longer is found by reopen, which looks again after the evaluation.
	burstSize  = 32
	burstGaps  = 20
	burstShare = 10
)

// settling defers GPU pods until no other pod with the same GPU demand has arrived for the settle window. The wait ends
// after five windows at the latest. For a burst that arrives fast, a tenth of the window is enough.
type settling struct {
	arrivals *Arrivals
	clock    clock.PassiveClock
	window   time.Duration
	// arrived is when each waiting pod arrived, settled are the pods whose wait is over.
	arrived map[types.UID]time.Time
	settled sets.Set[types.UID]
	// open are the pods that this loop has deferred, by demand. loopBegan is when it began, seen are the pods that it has seen.
	open      map[string]*batch
	loopBegan time.Time
	seen      sets.Set[types.UID]
	// reopened are the pods that this loop has deferred again. Core's orchestrator may be called with them once more.
	reopened sets.Set[types.UID]
}

func newSettling(arrivals *Arrivals, clk clock.PassiveClock, window time.Duration) *settling {
	return &settling{arrivals: arrivals, clock: clk, window: window, arrived: map[types.UID]time.Time{}, settled: sets.New[types.UID](),
		open: map[string]*batch{}, reopened: sets.New[types.UID](),
	}
}

// InGang returns whether the pod declares itself the gang that it is in.
func InGang(pod *apiv1.Pod) bool {
	gang, _, _ := gangOf(pod)
	return gang != ""
}

// MustSettle returns whether [Deferral] would defer the pod until its settle window ends, as long as that is not zero.
func MustSettle(pod *apiv1.Pod) bool {
	return !InGang(pod) && processors.GPUDemand(pod) != "" && !processors.IsProvisioningRequest(pod)
}

// batch is the waiting pods of one demand.
type batch struct {
	pods          []*apiv1.Pod
	first, latest time.Time
}

func (b *batch) add(pod *apiv1.Pod, at time.Time) {
	b.pods = append(b.pods, pod)
	if b.first.IsZero() || at.Before(b.first) {
		b.first = at
	}
	if at.After(b.latest) {
		b.latest = at
	}
}

// split returns the pods that need not wait or have waited long enough, and the number of the others.
func (s *settling) split(pods []*apiv1.Pod) (passed []*apiv1.Pod, waiting int) {
	s.open = map[string]*batch{}
	batches := map[string]*batch{}
	for _, pod := range pods {
		demand := processors.GPUDemand(pod)
		if demand == "" || s.window <= 0 || s.settled.Has(pod.UID) {
			passed = append(passed, pod)
			continue
		}
		if batches[demand] == nil {
			batches[demand] = &batch{}
		}
		batches[demand].add(pod, s.arrival(pod))
	}
	now := s.clock.Now()
	for demand, b := range batches {
		if due := s.due(b); due.After(now) {
			waiting += len(b.pods)
			s.open[demand] = b
			klog.V(2).InfoS("Deferring pods until their settle window ends", "pods", len(b.pods), "demand", demand, "wait", due.Sub(now))
			continue
		}
		for _, pod := range b.pods {
			s.settled.Insert(pod.UID)
		}
		passed = append(passed, b.pods...)
	}
	return passed, waiting
}

// next returns when the first settle window ends: of the pods that were deferred, and of those that have arrived since that loop
// began. It is zero if none waits.
func (s *settling) next() (next time.Time) {
	batches := map[string]*batch{}
	for demand, b := range s.open {
		batches[demand] = &batch{pods: slices.Clip(b.pods), first: b.first, latest: b.latest}
	}
	for pod, at := range s.newcomers() {
		demand := processors.GPUDemand(pod)
		if batches[demand] == nil {
			batches[demand] = &batch{}
		}
		batches[demand].add(pod, at)
	}
	for _, b := range batches {
		if due := s.due(b); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next
}

// beginLoop forgets what the last loop has deferred. If this one ends before it looks at pods, it makes no other due.
func (s *settling) beginLoop() {
	s.open, s.reopened = map[string]*batch{}, sets.New[types.UID]()
	s.loopBegan = s.clock.Now()
}

// newcomers returns the pods that have to settle and have arrived too late for this loop.
func (s *settling) newcomers() iter.Seq2[*apiv1.Pod, time.Time] {
	return func(yield func(*apiv1.Pod, time.Time) bool) {
		for pod, at := range s.arrivals.All() {
			if s.seen.Has(pod.UID) || at.Before(s.loopBegan) || !MustSettle(pod) || len(pod.Spec.SchedulingGates) > 0 {
				continue
			}
			if !yield(pod, at) {
				return
			}
		}
	}
}

// reopen defers those of the pods again of whose demand further pods have arrived since, and returns the others. What keeps the
// API server or this process busy may stop a burst for longer than its pause.
func (s *settling) reopen(pods []*apiv1.Pod) []*apiv1.Pod {
	batches := map[string]*batch{}
	for _, pod := range pods {
		if !s.settled.Has(pod.UID) {
			continue
		}
		demand := processors.GPUDemand(pod)
		if batches[demand] == nil {
			batches[demand] = &batch{}
		}
		batches[demand].add(pod, s.arrival(pod))
	}
	size := map[string]int{}
	for demand, b := range batches {
		size[demand] = len(b.pods)
	}
	for pod, at := range s.newcomers() {
		if b := batches[processors.GPUDemand(pod)]; b != nil {
			b.add(pod, at)
		}
	}
	now := s.clock.Now()
	for demand, b := range batches {
		settled := b.pods[:size[demand]]
		if len(settled) == len(b.pods) || !s.limit(b).After(now) {
			continue
		}
		klog.V(2).InfoS("Deferring pods again, more of them have arrived meanwhile", "pods", len(settled), "more", len(b.pods)-len(settled), "demand", demand)
		for _, pod := range settled {
			s.settled.Delete(pod.UID)
			s.reopened.Insert(pod.UID)
		}
		s.open[demand] = &batch{pods: settled, first: b.first, latest: b.latest}
	}
	return slices.DeleteFunc(slices.Clone(pods), func(pod *apiv1.Pod) bool { return s.reopened.Has(pod.UID) })
}

// due returns when the settle window of the batch ends.
func (s *settling) due(b *batch) time.Time {
	due := b.latest.Add(s.pause(len(b.pods), b.latest.Sub(b.first)))
	if limit := s.limit(b); limit.Before(due) {
		return limit
	}
	return due
}

// limit returns when the settle window of the batch ends at the latest.
func (s *settling) limit(b *batch) time.Time { return b.first.Add(maxSettleWindows * s.window) }

// pause returns for how long no further pod must have arrived, if so many pods arrived within the span.
func (s *settling) pause(pods int, span time.Duration) time.Duration {
	if pods < burstSize {
		return s.window
	}
	gap := span / time.Duration(pods-1)
	return min(s.window, max(s.window/burstShare, burstGaps*gap))
}

// arrival returns when the informer first saw the pod, or else when the loop did.
func (s *settling) arrival(pod *apiv1.Pod) time.Time {
	at, known := s.arrived[pod.UID]
	if !known {
		if at, known = s.arrivals.Of(pod); !known {
			at = s.clock.Now()
		}
		s.arrived[pod.UID] = at
	}
	return at
}

// forgetOthers drops the pods that are not pending any more.
func (s *settling) forgetOthers(pending sets.Set[types.UID]) {
	maps.DeleteFunc(s.arrived, func(uid types.UID, _ time.Time) bool { return !pending.Has(uid) })
	s.settled = s.settled.Intersection(pending)
}
