package processors

import (
	"context"
	"time"

	apiv1 "k8s.io/api/core/v1"
	cametrics "k8s.io/autoscaler/cluster-autoscaler/metrics"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"
)

// minLoopGap is the least time between the starts of two loops, so that a burst of events costs a few loops and the
// cloud's rate limits are left in peace.
const minLoopGap = 250 * time.Millisecond

// Waker knows when the next loop is due on its own account.
type Waker interface {
	// NextWake is false when it is not.
	NextWake() (time.Time, bool)
}

// TriggerConfig is what a Trigger is made of. Clock, Interval and Arrivals are required.
type TriggerConfig struct {
	Clock clock.Clock
	// Interval is the longest time between two loops.
	Interval time.Duration
	Arrivals *Arrivals
	// Waker says when settle windows end.
	Waker Waker
	// BypassedSchedulers are those whose pods core takes for unschedulable as soon as they exist.
	BypassedSchedulers map[string]bool
}

// Trigger starts the loops. It has no goroutine of its own: it lives from informer events, calls of Notify and the
// caller of Wait. All events before a loop starts are answered by that loop. It is safe for concurrent use, except
// that one goroutine at a time may call Wait.
type Trigger struct {
	config TriggerConfig
	// events holds the reason for the next loop, settling that a pod came that will be held for a while. Both have a
	// capacity of 1.
	events   chan string
	settling chan struct{}
	// started is when the last Wait returned.
	started time.Time
}

// NewTrigger makes a trigger. Its pod handler has to be added to an informer.
func NewTrigger(config TriggerConfig) *Trigger {
	return &Trigger{config: config, events: make(chan string, 1), settling: make(chan struct{}, 1)}
}

// Notify has the next loop start at once, for a reason that lies outside of it, such as a reclaim notice.
func (t *Trigger) Notify() { t.signal("notified") }

func (t *Trigger) signal(reason string) {
	select {
	case t.events <- reason:
	default: // a loop is due already
	}
}

// Wait blocks until the next loop is due. That is at once if productive says that the last one bought or removed
// something, because a loop does one thing at a time. It returns the context's error when that ends first.
func (t *Trigger) Wait(ctx context.Context, productive bool) error {
	began := time.Now()
	defer cametrics.UpdateDurationFromStart(cametrics.LoopWait, began)

	reason := "productive"
	if !productive {
		var err error
		if reason, err = t.next(ctx); err != nil {
			return err
		}
	}
	if gap := minLoopGap - t.config.Clock.Since(t.started); gap > 0 && !t.started.IsZero() {
		if err := t.sleep(ctx, gap); err != nil {
			return err
		}
	}
	t.drain()
	t.started = t.config.Clock.Now()
	wakeups.WithLabelValues(reason).Inc()
	klog.V(4).Infof("Loop starts: %s", reason)
	return ctx.Err()
}

// drain forgets the events that the loop that starts now answers.
func (t *Trigger) drain() {
	select {
	case <-t.events:
	default:
	}
	select {
	case <-t.settling:
	default:
	}
}

// next waits for the first of event, end of a settle window and end of the interval. While pods settle others that
// would have to do so are left to the loop at the end: they are held until their own window ends, which is no earlier,
// and a big job would start four loops a second for nothing.
func (t *Trigger) next(ctx context.Context) (reason string, err error) {
	wait, reason := t.config.Interval, "interval"
	if t.config.Waker != nil {
		if at, ok := t.config.Waker.NextWake(); ok {
			if settled := max(0, at.Sub(t.config.Clock.Now())); settled < wait {
				wait, reason = settled, "settled"
			}
		}
	}
	timer := t.config.Clock.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case event := <-t.events:
			return event, nil
		case <-t.settling:
			if reason != "settled" {
				return "pod", nil
			}
		case <-timer.C():
			return reason, nil
		}
	}
}

func (t *Trigger) sleep(ctx context.Context, d time.Duration) error {
	timer := t.config.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// PodHandler returns the handler for an informer of all pods. It records arrivals and starts a loop for each pod that
// becomes one to buy for, once per pod, not for every word the scheduler says about it.
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
			if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = lost.Obj
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
	case settles(pod):
		select {
		case t.settling <- struct{}{}:
		default:
		}
	default:
		t.signal("pod")
	}
}

// settles says whether Hold would have the pod wait for others like it.
func settles(pod *apiv1.Pod) bool {
	gang, _, _ := gangOf(pod)
	return gang == "" && gpuDemand(pod) != "" && !isProvisioningRequest(pod)
}

// waiting says whether the pod lives and has no node.
func waiting(pod *apiv1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !podutil.IsPodTerminal(pod)
}

// wanted says whether core would count the pod among those to buy for.
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
