package trigger

import (
	"context"
	"time"

	apiv1 "k8s.io/api/core/v1"
	cametrics "k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// minLoopGap is the least time between the starts of two loops. It limits what a burst of events costs in CPU and in
// requests to the cloud.
const minLoopGap = 250 * time.Millisecond

// lookAgain is how soon after the arrival of a pod Wait asks again when the settle window ends. A burst settles sooner than its first pods
// alone would.
const lookAgain = 100 * time.Millisecond

// A loop that pods or gangs start rests restFactor times as long as the last one took beyond restAfter, and no longer than the interval. In a
// big cluster in which pods come all the time, loops in close succession would take a core without buying anything: the pods wait for
// nodes that were bought before. That core is missed by an API server on the same machine, and by the evictions of a reclaim.
const (
	restAfter  = 500 * time.Millisecond
	restFactor = 5
)

// What starts a loop.
const (
	reasonPod        = "pod"
	reasonGang       = "gang"
	reasonSettled    = "settled"
	reasonNotified   = "notified"
	reasonProductive = "productive"
	reasonInterval   = "interval"
)

// Config configures a Trigger. Clock, Interval and Arrivals are required.
type Config struct {
	Clock clock.Clock
	// Interval is the longest time between two loops.
	Interval time.Duration
	Arrivals *podlist.Arrivals
	// BypassedSchedulers are those whose pods core takes for unschedulable as soon as they exist.
	BypassedSchedulers map[string]bool
}

// Trigger decides when the next loop starts. It has no goroutine of its own: informer events and Notify make a loop due, and
// Wait returns when one is. One loop answers all events that came before it started. Trigger is safe for concurrent use,
// except that only one goroutine at a time may call Wait.
type Trigger struct {
	config Config
	// notified, pods and gangs hold an item if the next loop is due, settling if a pod came that will be deferred for a settle window.
	// All have a capacity of 1.
	notified, pods, gangs, settling chan struct{}
	// started is when Wait last returned.
	started time.Time
}

// New returns a trigger. The caller adds its PodHandler to an informer.
func New(config Config) *Trigger {
	return &Trigger{config: config, notified: make(chan struct{}, 1), pods: make(chan struct{}, 1), gangs: make(chan struct{}, 1), settling: make(chan struct{}, 1)}
}

// Notify starts the next loop at once, for a reason that is not an unschedulable pod, such as a reclaim notice.
func (t *Trigger) Notify() { signal(t.notified) }

// NotifyGang starts the next loop as an unschedulable pod does: there is a gang to look for that was not known. In a reclaim of hundreds of
// jobs there is another one every second, of jobs that are held or that have pods again.
func (t *Trigger) NotifyGang() { signal(t.gangs) }

func signal(events chan<- struct{}) {
	select {
	case events <- struct{}{}:
	default: // there is one already
	}
}

// Wait blocks until the next loop is due. The loop is due at once if productive says that the last one bought or removed
// something, because there may be more to do, and at the time that settled returns if that is not zero. Wait asks
// for that time again when it has come, because it may have moved. Wait returns the context's error if the context ends first.
func (t *Trigger) Wait(ctx context.Context, productive bool, settled func() time.Time) (err error) {
	began := time.Now()
	defer cametrics.UpdateDurationFromStart(cametrics.LoopWait, began)
	rest := t.restUntil()

	reason := reasonProductive
	if !productive {
		if reason, err = t.next(ctx, settled); err != nil {
			return err
		}
	}
	if gap := minLoopGap - t.config.Clock.Since(t.started); gap > 0 && !t.started.IsZero() {
		if err := work.Sleep(ctx, t.config.Clock, gap); err != nil {
			return err
		}
	}
	if reason == reasonPod || reason == reasonGang || reason == reasonSettled {
		if reason, err = t.rest(ctx, reason, rest); err != nil {
			return err
		}
	}
	t.drain()
	t.started = t.config.Clock.Now()
	wakeups.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).V(4).Info("Starting a loop", "reason", reason)
	return ctx.Err()
}

// restUntil returns until when no pod or gang is to start a loop. The last loop has just ended.
func (t *Trigger) restUntil() time.Time {
	if t.started.IsZero() {
		return time.Time{}
	}
	now := t.config.Clock.Now()
	return now.Add(min(restFactor*(now.Sub(t.started)-restAfter), t.config.Interval))
}

// rest waits until that time, unless something else than a pod or gang starts the loop before. It returns what starts it.
func (t *Trigger) rest(ctx context.Context, reason string, until time.Time) (string, error) {
	left := until.Sub(t.config.Clock.Now())
	if left <= 0 {
		return reason, nil
	}
	timer := t.config.Clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-t.notified:
		return reasonNotified, nil
	case <-timer.C():
		return reason, nil
	}
}

// drain drops the events that the loop that starts now answers.
func (t *Trigger) drain() {
	for _, events := range []chan struct{}{t.notified, t.pods, t.gangs, t.settling} {
		select {
		case <-events:
		default:
		}
	}
}

// next waits for an event, the end of a settle window or the end of the interval, whichever comes first. Pods that have to
// settle do not start a loop until their window ends, because it would defer them until then anyway. A big job would start four
// loops a second otherwise.
func (t *Trigger) next(ctx context.Context, settled func() time.Time) (reason string, err error) {
	interval := t.config.Clock.Now().Add(t.config.Interval)
	due, reason := t.due(interval, settled)
	look := due // when the timer fires: at due, or before
	timer := t.config.Clock.NewTimer(look.Sub(t.config.Clock.Now()))
	defer timer.Stop()
	waits := false // a pod waits for the end of a window, which may be that of other pods
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-t.notified:
			return reasonNotified, nil
		case <-t.pods:
			return reasonPod, nil
		case <-t.gangs:
			return reasonGang, nil
		case <-t.settling:
			waits = true
			if reason == reasonSettled {
				if soon := t.config.Clock.Now().Add(lookAgain); soon.Before(look) {
					look = soon
					timer.Reset(lookAgain)
				}
				continue
			}
			if due, reason = t.due(interval, settled); reason != reasonSettled {
				return reasonPod, nil // it arrived before the last loop began
			}
			look = due
			timer.Reset(look.Sub(t.config.Clock.Now()))
		case <-timer.C():
			if reason == reasonSettled {
				if due, reason = t.due(interval, settled); reason != reasonSettled && waits {
					return reasonPod, nil // the window is gone with the pods that it was for
				}
			}
			left := due.Sub(t.config.Clock.Now())
			if left <= 0 {
				return reason, nil
			}
			look = due
			timer.Reset(left)
		}
	}
}

// due returns when the next loop is due if no event comes: when the first settle window ends, or at the end of the interval.
func (t *Trigger) due(interval time.Time, settled func() time.Time) (due time.Time, reason string) {
	if end := settled(); !end.IsZero() && end.Before(interval) {
		return end, reasonSettled
	}
	return interval, reasonInterval
}

// PodHandler returns the handler for an informer of all pods. It records arrivals, and starts a loop when a pod becomes
// unschedulable: once for each pod, not for each update of its conditions.
func (t *Trigger) PodHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*apiv1.Pod); ok {
				t.observe(nil, pod)
			}
		},
		UpdateFunc: func(before, after any) {
			old, ok1 := before.(*apiv1.Pod)
			pod, ok2 := after.(*apiv1.Pod)
			if ok1 && ok2 {
				t.observe(old, pod)
			}
		},
		DeleteFunc: func(obj any) {
			if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = deleted.Obj
			}
			if pod, ok := obj.(*apiv1.Pod); ok {
				t.config.Arrivals.Forget(pod)
			}
		},
	}
}

func (t *Trigger) observe(old, pod *apiv1.Pod) {
	if !waiting(pod) {
		if old == nil || waiting(old) {
			t.config.Arrivals.Forget(pod)
		}
		return
	}
	t.config.Arrivals.Note(pod)
	switch {
	case !t.wanted(pod) || old != nil && t.wanted(old):
	case podlist.MustSettle(pod):
		signal(t.settling)
	default:
		signal(t.pods)
	}
}

// waiting returns whether the pod has no node, has not ended and is not being deleted.
func waiting(pod *apiv1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !podutil.IsPodTerminal(pod)
}

// wanted returns whether core counts the pod among the unschedulable ones.
func (t *Trigger) wanted(pod *apiv1.Pod) bool {
	if !waiting(pod) {
		return false
	}
	_, condition := podutil.GetPodCondition(&pod.Status, apiv1.PodScheduled)
	if condition == nil {
		return t.config.BypassedSchedulers[pod.Spec.SchedulerName]
	}
	return condition.Status == apiv1.ConditionFalse && condition.Reason == apiv1.PodReasonUnschedulable
}
