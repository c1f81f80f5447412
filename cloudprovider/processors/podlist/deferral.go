package podlist

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// Config configures a Deferral. Inner, Arrivals and Clock are required.
type Config struct {
	// Inner is the chain of processors that places pods on existing and upcoming nodes, normally core's.
	Inner    pods.PodListProcessor
	Arrivals *Arrivals
	// Supervision knows the jobs that are suspended or have waited for too long. It may be nil.
	Supervision Supervision
	// Natives knows the gangs of pods that declare none themselves. It may be nil.
	Natives NativeGangs
	Clock   clock.PassiveClock
	// SettleWindow is how long no new pod of a GPU demand must have appeared before the pods of that demand are bought for.
	// With zero or less they are bought for at once.
	SettleWindow time.Duration
	// ClaimsSimulated is whether core simulates the resource claims of pods.
	ClaimsSimulated bool
	// Skipped is told which pods each loop looks for no offering for, and why. It may be nil.
	Skipped *reasons.Skipped
}

// Deferral defers pods for which it is too early to buy:
//
//   - GPU pods of a demand (equal GPU requests, equal node selector) of which another pod appeared within the settle window. A
//     job of eight pods is created over some hundred milliseconds, and eight GPUs in one node are cheaper than one after the
//     other. See settling for how long they wait.
//   - Pods of a gang that is not complete: it has fewer pending and scheduled pods than its declared size. A complete gang does
//     not wait for a settle window, since its size says how many pods are to come.
//
// It leaves out pods that wait for what they claim by Dynamic Resource Allocation, see claims.
//
// The inner chain never sees the pods of an incomplete gang. It would place them on existing nodes in the snapshot, and
// scale-down would take those nodes for used as long as the gang is incomplete. That may be for ever: the last pod exceeds a
// quota, and the scheduler binds none of the others. All other pods pass through the chain before some of them are deferred, so
// scale-down keeps the nodes that settling pods will need.
type Deferral struct {
	inner    pods.PodListProcessor
	arrivals *Arrivals
	gangs    *gangs
	settling *settling
	claims   *claims
	// standIns is nil without a Supervision.
	standIns *standIns
	skipped  *reasons.Skipped
}

var _ pods.PodListProcessor = (*Deferral)(nil)

// NewDeferral returns a processor for the pods of all loops.
func NewDeferral(config Config) *Deferral {
	d := &Deferral{
		inner: config.Inner, arrivals: config.Arrivals, gangs: newGangs(config.Natives, config.Clock),
		settling: newSettling(config.Arrivals, config.Clock, config.SettleWindow), skipped: config.Skipped,
		claims: newClaims(config.ClaimsSimulated),
	}
	if config.Supervision != nil {
		d.standIns = &standIns{supervision: config.Supervision, clock: config.Clock}
	}
	return d
}

// BeginLoop must be called at the start of each loop, before core lists the pods.
func (d *Deferral) BeginLoop() {
	d.settling.beginLoop()
	if d.standIns != nil {
		d.standIns.beginLoop()
	}
}

// Process returns the pods to buy for now.
func (d *Deferral) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	unschedulable = copied(withEquivalent(unschedulable, d.arrivals.Waiting()))
	listed := unschedulable
	d.claims.tell(ctx, listed)
	unschedulable = d.claims.readable(unschedulable)
	if d.standIns != nil {
		unschedulable = d.standIns.admit(ctx, unschedulable)
	}
	// The UIDs are taken now, because the chain may reorder and reuse the slice.
	pending := sets.New[types.UID]()
	for _, pod := range unschedulable {
		pending.Insert(pod.UID)
	}
	counts := d.gangs.countPending(ctx, unschedulable)
	if err := d.gangs.addRunning(ctx, counts); err != nil {
		// Without the running pods a gang is complete only if all of it is pending. To buy later is better than to buy in pieces.
		klog.ErrorS(err, "Cannot list pods, deferring gangs that may have running pods")
	}
	d.gangs.dropAssumed(counts)
	d.gangs.forgetOthers(pending)
	d.settling.forgetOthers(pending)
	d.settling.seen = pending

	left, err := d.inner.Process(ctx, d.withoutIncomplete(counts, unschedulable))
	if err != nil {
		return nil, err
	}
	if d.standIns != nil {
		left = d.standIns.report(ctx, left)
	}
	d.gangs.addUnplaced(counts, pending, left)
	d.gangs.update(counts)
	admitted := d.claims.buyable(d.admit(counts, pending, left))
	if d.skipped != nil {
		d.skipped.Replace(d.reasons(listed, counts, left))
	}
	return admitted, nil
}

// withoutIncomplete returns the pods without those of gangs that are not complete.
func (d *Deferral) withoutIncomplete(counts gangCounts, pods []*apiv1.Pod) []*apiv1.Pod {
	kept := make([]*apiv1.Pod, 0, len(pods))
	for _, pod := range pods {
		if gang := d.gangs.of(counts, pod); gang != nil && !gang.complete() && !processors.IsProvisioningRequest(pod) {
			klog.V(2).InfoS("Deferring a pod until its gang is complete", "pod", klog.KObj(pod), "pods", gang.running+gang.pending, "size", gang.size)
			continue
		}
		kept = append(kept, pod)
	}
	deferredPods.WithLabelValues("gang").Set(float64(len(pods) - len(kept)))
	return kept
}

// admit returns the pods to buy for now of those that are left without a place, and defers the others.
func (d *Deferral) admit(counts gangCounts, pending sets.Set[types.UID], left []*apiv1.Pod) []*apiv1.Pod {
	var admitted, ordinary []*apiv1.Pod
	for _, pod := range left {
		gang := d.gangs.of(counts, pod)
		switch {
		case !pending.Has(pod.UID) || processors.IsProvisioningRequest(pod):
			admitted = append(admitted, pod) // added by the chain, not by a user
		case gang == nil || gang.missing() == 0:
			ordinary = append(ordinary, pod) // or a pod beyond the minimum of its gang
		default:
			admitted = append(admitted, pod)
		}
	}
	settled, waiting := d.settling.split(ordinary)
	deferredPods.WithLabelValues("settling").Set(float64(waiting))
	return append(admitted, settled...)
}

// NextWake returns when the next loop is due on behalf of this processor: when the first of the settle windows ends, or at
// once if a job can return in the next loop. It returns zero if nothing waits. Pods that arrive move the end of a window, so
// that time may change between two loops. NextWake must not be called during a loop.
func (d *Deferral) NextWake() time.Time {
	if d.standIns != nil && d.standIns.moreNextLoop {
		return d.settling.clock.Now()
	}
	return d.settling.next()
}

// Reopen defers pods again that [Deferral.Process] has admitted in this loop, if further pods of their demand have arrived since.
// It returns the others, for which it is not too early to buy. Pods that have waited for as long as pods may wait are among them.
func (d *Deferral) Reopen(pods []*apiv1.Pod) []*apiv1.Pod { return d.settling.reopen(pods) }

// Missing returns the gang of a pod and how many of its pods have to be bought for at once to let the gang run at its
// minimum. The gang is "" for a pod that may be bought for alone: it belongs to no gang, or to one that has its minimum.
func (d *Deferral) Missing(pod *apiv1.Pod) (gang string, count int) { return d.gangs.missingFor(pod) }

// GangOf returns the gang of a pod, whether the gang has its minimum or not, and "" for a pod that belongs to none. A stand-in belongs to the gang of
// the pod that it stands for.
func (d *Deferral) GangOf(pod *apiv1.Pod) string { return d.gangs.nameOf(d.StandsFor(pod)) }

// StandsFor returns the pod that the pod stands for, or the pod itself if it is no stand-in of the last loop.
func (d *Deferral) StandsFor(pod *apiv1.Pod) *apiv1.Pod {
	if d.standIns == nil {
		return pod
	}
	at, isStandIn := d.standIns.members[pod.UID]
	if !isStandIn {
		return pod
	}
	return d.standIns.gangs[at.gang].Pods[at.pod]
}

// SupervisedJobOf returns the Ref of the gang of stand-ins that the pod is of, which is that of its job; "" if it is no stand-in of the last loop.
func (d *Deferral) SupervisedJobOf(pod *apiv1.Pod) string {
	if d.standIns == nil {
		return ""
	}
	at, isStandIn := d.standIns.members[pod.UID]
	if !isStandIn {
		return ""
	}
	return d.standIns.gangs[at.gang].Ref
}

// AnyZone returns whether the gang of the pod may be bought in several zones.
func (d *Deferral) AnyZone(pod *apiv1.Pod) bool {
	allowed, _ := anyZone(pod) // the error was reported
	return allowed
}

// CleanUp cleans up the inner chain.
func (d *Deferral) CleanUp() { d.inner.CleanUp() }
