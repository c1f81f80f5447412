package processors

import (
	"maps"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	provreqpods "k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/pods"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// DefaultSettleWindow is how long no new pod of a demand must have appeared before it is bought for.
const DefaultSettleWindow = time.Second

const (
	// maxSettleWindows bounds the wait in all, so that a steady stream of pods cannot starve those already there.
	maxSettleWindows = 5
	// Of a crowd the last has come when none follows for many times as long as one took to follow the other. That is at
	// least a fraction of the window: controllers make pods in batches.
	crowd      = 32
	crowdGaps  = 20
	crowdHaste = 5
)

// Hold keeps pods back for which it is too early to buy:
//
//   - GPU pods of a demand (same GPUs, same node selector) of which another pod appeared within the settle window: a
//     job of eight pods is created over some hundred milliseconds, and eight GPUs in one node are cheaper than one
//     after the other. The wait ends after five windows at the latest. Of a crowd that comes fast a fifth of the window
//     is enough;
//   - pods of a gang that is not complete: pending and scheduled ones together are fewer than its declared size. A
//     complete gang does not settle, since it said how many are to come.
//
// The chain of processors that it wraps never sees the pods of an incomplete gang. It would place them in the snapshot
// on nodes that exist, and those would look used to scale-down for as long as the gang is incomplete, which may be for
// ever: the last pod is over a quota, and no scheduler binds the others. All other pods pass through the chain before
// some are held: whatever fits nodes that exist or are on their way is placed there. So scale-down sees the nodes that
// settling pods would need as used, and need not be stopped.
type Hold struct {
	inner    pods.PodListProcessor
	arrivals *Arrivals
	gangs    *Gangs
	clock    clock.PassiveClock
	window   time.Duration
	// supervised is nil where nobody supervises jobs.
	supervised *supervised

	// The following are about pending pods. arrived is when each that waits came, settled are those whose wait is over,
	// complained those whose gang was found malformed.
	arrived             map[types.UID]time.Time
	settled, complained sets.Set[types.UID]

	mu       sync.Mutex
	nextWake time.Time
}

var _ pods.PodListProcessor = (*Hold)(nil)

// NewHold wraps inner, normally core's whole chain. What it learns of gangs it writes to gangs. A window of zero or
// less lets pods pass at once.
func NewHold(inner pods.PodListProcessor, arrivals *Arrivals, gangs *Gangs, clk clock.PassiveClock, window time.Duration) *Hold {
	return &Hold{
		inner: inner, arrivals: arrivals, gangs: gangs, clock: clk, window: window,
		arrived: map[types.UID]time.Time{}, settled: sets.New[types.UID](), complained: sets.New[types.UID](),
	}
}

// Supervise has the loops leave out and take in pods as the supervision says. It must be called before the first loop.
func (h *Hold) Supervise(supervision Supervision) {
	h.supervised = &supervised{supervision: supervision, clock: h.clock}
}

// BeginLoop is to be called before core lists the pods of a loop.
func (h *Hold) BeginLoop() {
	if h.supervised != nil {
		h.supervised.beginLoop()
	}
}

// Process returns the pods to buy for now.
func (h *Hold) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	unschedulable = detached(withKin(unschedulable, h.arrivals.Waiting()))
	if h.supervised != nil {
		unschedulable = h.supervised.admit(ctx, unschedulable)
	}
	// The chain may reorder and reuse the slice.
	pending := sets.New[types.UID]()
	for _, pod := range unschedulable {
		pending.Insert(pod.UID)
	}
	gangs := h.countPending(ctx, unschedulable)
	if err := countRunning(ctx, gangs); err != nil {
		// Without the count a gang is complete only if all of it is pending: better late than in pieces.
		klog.Errorf("Holding gangs back of which some may run, cannot list pods: %v", err)
	}
	h.prune(pending)

	left, err := h.inner.Process(ctx, withoutIncomplete(gangs, unschedulable))
	if err != nil {
		return nil, err
	}
	if h.supervised != nil {
		left = h.supervised.judge(ctx, left)
	}
	h.countUnplaced(gangs, pending, left)
	return h.release(gangs, pending, left), nil
}

// withoutIncomplete leaves out the pods of gangs that are not complete.
func withoutIncomplete(gangs map[string]*census, pods []*apiv1.Pod) []*apiv1.Pod {
	kept := make([]*apiv1.Pod, 0, len(pods))
	for _, pod := range pods {
		if gang := censusOf(gangs, pod); gang != nil && !gang.complete() && !isProvisioningRequest(pod) {
			klog.V(2).Infof("Holding pod %s/%s: its gang has %d of %d pods", pod.Namespace, pod.Name, gang.running+gang.pending, gang.size)
			continue
		}
		kept = append(kept, pod)
	}
	heldPods.WithLabelValues("gang").Set(float64(len(pods) - len(kept)))
	return kept
}

// release splits what is left into what is bought for now, which it returns, and what is held.
func (h *Hold) release(gangs map[string]*census, pending sets.Set[types.UID], left []*apiv1.Pod) []*apiv1.Pod {
	h.gangs.missing = map[string]int{}
	for name, gang := range gangs {
		h.gangs.missing[name] = gang.missing()
	}
	var released, ordinary []*apiv1.Pod
	for _, pod := range left {
		gang := censusOf(gangs, pod)
		switch {
		case !pending.Has(pod.UID) || isProvisioningRequest(pod):
			released = append(released, pod) // added by the chain, not by a user: nothing to wait for
		case gang == nil || gang.missing() == 0:
			ordinary = append(ordinary, pod) // also what a gang wants beyond its minimum
		default:
			released = append(released, pod)
		}
	}
	settled, settling := h.settle(ordinary)
	heldPods.WithLabelValues("settling").Set(float64(settling))
	return append(released, settled...)
}

// settle returns the pods that need not or no longer wait for their like, and how many still do.
func (h *Hold) settle(left []*apiv1.Pod) (passed []*apiv1.Pod, waiting int) {
	type batch struct {
		pods          []*apiv1.Pod
		first, latest time.Time
	}
	batches := map[string]*batch{}
	for _, pod := range left {
		demand := gpuDemand(pod)
		if demand == "" || h.window <= 0 || h.settled.Has(pod.UID) {
			passed = append(passed, pod)
			continue
		}
		at := h.arrival(pod)
		b := batches[demand]
		if b == nil {
			b = &batch{first: at, latest: at}
			batches[demand] = b
		}
		b.pods = append(b.pods, pod)
		if at.Before(b.first) {
			b.first = at
		}
		if at.After(b.latest) {
			b.latest = at
		}
	}

	now, next := h.clock.Now(), time.Time{}
	for demand, b := range batches {
		due := b.latest.Add(h.patience(len(b.pods), b.latest.Sub(b.first)))
		if bound := b.first.Add(maxSettleWindows * h.window); bound.Before(due) {
			due = bound
		}
		if due.After(now) {
			waiting += len(b.pods)
			if next.IsZero() || due.Before(next) {
				next = due
			}
			klog.V(2).Infof("Holding %d pods of demand %s for %v, more may come", len(b.pods), demand, due.Sub(now))
			continue
		}
		for _, pod := range b.pods {
			h.settled.Insert(pod.UID)
		}
		passed = append(passed, b.pods...)
	}
	if h.supervised != nil && h.supervised.unripe {
		next = now
	}
	h.mu.Lock()
	h.nextWake = next
	h.mu.Unlock()
	return passed, waiting
}

// patience is how long after the last pod no other must have come, where so many came within the span.
func (h *Hold) patience(pods int, span time.Duration) time.Duration {
	if pods < crowd {
		return h.window
	}
	gap := span / time.Duration(pods-1)
	return min(h.window, max(h.window/crowdHaste, crowdGaps*gap))
}

// arrival is when the pod was first seen, by the informer or else by the loop.
func (h *Hold) arrival(pod *apiv1.Pod) time.Time {
	at, known := h.arrived[pod.UID]
	if !known {
		if at, known = h.arrivals.Of(pod); !known {
			at = h.clock.Now()
		}
		h.arrived[pod.UID] = at
	}
	return at
}

// NextWake returns when the first of the held pods will have settled, and at once where a gang returns in the next loop;
// false when nothing waits. It is safe for concurrent use.
func (h *Hold) NextWake() (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nextWake, !h.nextWake.IsZero()
}

// countPending finds the gangs among the pending pods. Pods that fail to declare theirs are complained about once.
func (h *Hold) countPending(ctx *cacontext.AutoscalingContext, pending []*apiv1.Pod) map[string]*census {
	gangs := map[string]*census{}
	for _, pod := range pending {
		if isProvisioningRequest(pod) {
			continue
		}
		name, size, err := gangOf(pod)
		if err != nil && !h.complained.Has(pod.UID) {
			h.complained.Insert(pod.UID)
			malformedGangs.Inc()
			ctx.Recorder.Eventf(pod, apiv1.EventTypeWarning, "SpotGangMalformed", "Treated as an ordinary pod: %v", err)
		}
		if name == "" {
			continue
		}
		gang := gangs[name]
		if gang == nil {
			gang = &census{}
			gangs[name] = gang
		}
		gang.pending++
		gang.size = max(gang.size, size)
	}
	return gangs
}

func (h *Hold) countUnplaced(gangs map[string]*census, pending sets.Set[types.UID], left []*apiv1.Pod) {
	for _, pod := range left {
		if gang := censusOf(gangs, pod); gang != nil && pending.Has(pod.UID) {
			gang.unplaced++
		}
	}
}

// countRunning adds the members that have a node, from all pods of the cluster that have not ended.
func countRunning(ctx *cacontext.AutoscalingContext, gangs map[string]*census) error {
	if len(gangs) == 0 {
		return nil
	}
	all, err := ctx.AllPodLister().List()
	if err != nil {
		return err
	}
	for _, pod := range all {
		if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
			continue
		}
		if gang := censusOf(gangs, pod); gang != nil {
			gang.running++
		}
	}
	return nil
}

// prune forgets pods that are no longer pending.
func (h *Hold) prune(pending sets.Set[types.UID]) {
	maps.DeleteFunc(h.arrived, func(uid types.UID, _ time.Time) bool { return !pending.Has(uid) })
	h.settled = h.settled.Intersection(pending)
	h.complained = h.complained.Intersection(pending)
}

// CleanUp is called when the autoscaler ends.
func (h *Hold) CleanUp() { h.inner.CleanUp() }

// isProvisioningRequest says whether the pod stands for, or consumes, a ProvisioningRequest, which has its own all or nothing.
func isProvisioningRequest(pod *apiv1.Pod) bool {
	_, consumes := pod.Annotations[provreqv1.ProvisioningRequestPodAnnotationKey]
	_, consumed := pod.Annotations[provreqpods.DeprecatedProvisioningRequestPodAnnotationKey]
	return consumes || consumed
}
