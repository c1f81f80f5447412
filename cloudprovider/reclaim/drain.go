package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// marksFirst is how long a drain steps aside while Nodes wait for their marks. Until all of a correlated reclaim are
	// marked, what is evicted from one could be scheduled onto the next.
	marksFirst = 100 * time.Millisecond
	// podWorkers is how many pods of one Node or job are asked after at once.
	podWorkers = 8
	// podsInFlight is how many pods of all Nodes and jobs are asked after at once: what an API server answers well within
	// podTimeout. Requests that time out are made again, while the server is still busy with the first.
	podsInFlight = 64
	// podTimeout bounds one request. Some refusals name a time to wait, and client-go waits inside the call.
	podTimeout = 5 * time.Second
	// checkAfter is when to look again after pods were deleted: to delete anew what came back.
	checkAfter = 5 * time.Second
	// sightAfter is how long the informer may take to show that a pod is on its way out. Until then it is not asked to go
	// again.
	sightAfter = 5 * time.Second

	// lateGrace is how long a job is heard whose round began when its pods were to be deleted already, because no leader
	// was there before; unless less than lateMargin is left.
	lateGrace  = 5 * time.Second
	lateMargin = 15 * time.Second
)

// syncDrain takes one step toward a Node without pods: evictions while there is time, deletions after. It looks again when
// one of the pods changes, when one's job has got further, and when time alone changes what may go.
func (c *Controller) syncDrain(ctx context.Context, name string) error {
	node := c.node(name)
	if node == nil || !isMarked(node) {
		return nil
	}
	notice, doomed := c.noticeOf(node)
	if !doomed || c.verdictOf(notice.InstanceID) != pending {
		return nil
	}
	if c.marksWaiting(marksPatience) {
		c.drains.AddAfter(name, marksFirst)
		return nil
	}
	pods := drainable(c.podsOn(name))
	if len(pods) == 0 {
		return c.noteDrained(ctx, node, notice)
	}
	d := &drain{Controller: c, node: node, notice: notice, asked: c.handshakes.askedOn(name, pods)}
	now := c.Clock.Now()
	next, doubtful := c.isDoubtful(notice)
	if doubtful {
		d.evictSome(ctx, pods, now) // none, but their jobs are warned
	} else if now.Before(notice.DeleteFrom()) {
		next = earlier(d.evictSome(ctx, pods, now), notice.DeleteFrom())
	} else {
		next = d.deleteAll(ctx, pods, now)
	}
	c.drains.AddAfter(name, next.Sub(c.Clock.Now()))
	return nil
}

// drainable leaves out the pods that belong to the machine and those that have ended.
func drainable(pods []*corev1.Pod) []*corev1.Pod {
	var left []*corev1.Pod
	for _, pod := range pods {
		if !hasEnded(pod) && !belongsToMachine(pod) {
			left = append(left, pod)
		}
	}
	return left
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func belongsToMachine(pod *corev1.Pod) bool {
	return podutil.IsMirrorPod(pod) || podutil.IsStaticPod(pod) || podutil.IsDaemonSetPod(pod)
}

// drain is one step of one Node's.
type drain struct {
	*Controller
	node   *corev1.Node
	notice Notice
	asked  attempts
}

// mayGo says why the pod must stay for now, and from when it need not, where time alone decides that. The reason is empty
// where it may go.
func (d *drain) mayGo(pod *corev1.Pod) (reason string, from time.Time) {
	member := d.Jobs.Member(pod)
	p := d.partyOf(pod)
	r, open := d.handshakes.round(p)
	until, doubtful := d.isDoubtful(d.notice)
	switch {
	case !doubtful && isReturner(pod, &fate{doomed: true, notice: d.notice, drained: timeOf(d.node, api.AnnotationReclaimDrained)}, r, open):
		return "", time.Time{}
	case !open || !r.doomed.Has(pod.UID):
		d.handshakes.queue.Add(p)
		return "its job is to be looked at", time.Time{}
	case doubtful:
		return "nothing has confirmed the notice", until
	case !r.decided:
		return "its job is being asked", time.Time{}
	case r.shrinking:
		return "its job's system is taking it out of the job", time.Time{}
	case d.Clock.Now().Before(r.release):
		return "its job's system is ending it", r.release
	case pod.Annotations[api.AnnotationCheckpointRequest] != r.id && d.Clock.Since(r.seen) < d.notice.warnPatience():
		return "it is not warned", r.seen.Add(d.notice.warnPatience())
	case !d.isNext(pod, member, r):
		return "others of its job go before it", time.Time{}
	}
	return "", time.Time{}
}

// evictSome evicts those of the pods that may go, and returns when to look again at the latest.
func (d *drain) evictSome(ctx context.Context, pods []*corev1.Pod, now time.Time) (next time.Time) {
	next = d.notice.DeleteFrom()
	var ready []*corev1.Pod
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue // it is left to go
		}
		reason, from := d.mayGo(pod)
		if reason == "" {
			if from = d.asked[pod.UID].next; from.After(now) {
				reason = "its eviction was asked for"
			}
		}
		if reason == "" {
			ready = append(ready, pod)
			continue
		}
		klog.FromContext(ctx).V(2).Info("The pod stays for now", "pod", klog.KObj(pod), "node", d.node.Name, "reason", reason)
		if !from.IsZero() {
			next = earlier(next, from)
		}
	}
	return earlier(next, d.insist(ctx, ready, d.evict))
}

// deleteAll is for when there is no more time to ask. Only who has not been asked yet is, for seconds.
func (d *drain) deleteAll(ctx context.Context, pods []*corev1.Pod, now time.Time) (next time.Time) {
	next = now.Add(checkAfter)
	var ready []*corev1.Pod
	for _, pod := range pods {
		switch asked := d.asked[pod.UID]; {
		case d.isHeardLate(pod, now):
			next = now.Add(replaceCheck)
		case asked.refusals == 0 && asked.next.After(now): // it is going
		default:
			ready = append(ready, pod)
		}
	}
	return earlier(next, d.insist(ctx, ready, d.delete))
}

// isHeardLate says whether the pod's job has begun to be heard only now, and there still is time to.
func (d *drain) isHeardLate(pod *corev1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp != nil || d.notice.Deadline.Sub(now) < lateMargin {
		return false
	}
	if reason, _ := d.mayGo(pod); reason == "" {
		return false
	}
	r, open := d.handshakes.round(d.partyOf(pod))
	return !open || now.Sub(r.seen) < lateGrace
}

// insist does it to all pods, and returns when to do so again for those that were refused: for each of them later and
// later, so that a budget is not hammered, and one pod's refusal does not hold up the others.
func (d *drain) insist(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) (next time.Time) {
	next = d.notice.Deadline.Add(time.Hour)
	var mu sync.Mutex
	err := d.forEach(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error {
		err := do(ctx, pod)
		mu.Lock()
		defer mu.Unlock()
		next = earlier(next, d.asked.add(pod, d.Clock.Now(), err))
		if err == nil {
			return nil
		}
		if errors.Is(err, errRefused) {
			klog.FromContext(ctx).V(2).Info("Will ask again", "pod", klog.KObj(pod), "node", d.node.Name, "answer", err.Error())
			return nil
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Will try again", "node", klog.KObj(d.node))
	}
	return next
}

// errRefused says that a pod may not go just now.
var errRefused = errors.New("not now")

// evict asks for the pod to go.
func (d *drain) evict(ctx context.Context, pod *corev1.Pod) error {
	options := d.deleteOptions(pod)
	err := d.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &options,
	})
	switch {
	case err == nil:
		podsRemoved.WithLabelValues(d.Jobs.Member(pod).System, methodEvict).Inc()
		d.podEvent(pod, ReasonEvicted, "Evicted: spot instance %s of node %s will be released at %s",
			d.notice.InstanceID, pod.Spec.NodeName, formatTime(d.notice.Deadline))
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case ctx.Err() != nil || isRefusal(err):
		return fmt.Errorf("%w: %w", errRefused, err)
	default:
		return fmt.Errorf("evicting pod %s: %w", klog.KObj(pod), err)
	}
}

// isRefusal knows the answers of the API server that more patience may change.
func isRefusal(err error) bool {
	return apierrors.IsTooManyRequests(err) || // a PodDisruptionBudget stands against it
		apierrors.IsInternalError(err) || // two of them
		apierrors.IsTimeout(err) || // many are evicted under one of them at once
		apierrors.IsConflict(err) // the pod changed meanwhile, or another has its name
}

// delete takes the pod away. One that is on its way out, but would take longer than is left, is hurried.
func (d *drain) delete(ctx context.Context, pod *corev1.Pod) error {
	if pod.DeletionTimestamp != nil && !pod.DeletionTimestamp.After(d.notice.Deadline) {
		return nil
	}
	if err := d.noteForced(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Noting on the node that pods are deleted", "node", klog.KObj(d.node))
	}
	err := d.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, d.deleteOptions(pod))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting pod %s: %w", klog.KObj(pod), err)
	}
	podsRemoved.WithLabelValues(d.Jobs.Member(pod).System, methodDelete).Inc()
	d.podEvent(pod, ReasonDeleted, "Deleted without regard to PodDisruptionBudgets: spot instance %s of node %s will be released at %s",
		d.notice.InstanceID, pod.Spec.NodeName, formatTime(d.notice.Deadline))
	return nil
}

// deleteOptions cap the pod's grace at what is left until the deadline. It is never zero: that would take the pod out of
// the API while its containers still run.
func (d *drain) deleteOptions(pod *corev1.Pod) metav1.DeleteOptions {
	grace := int64(d.notice.Deadline.Sub(d.Clock.Now()).Seconds())
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = min(grace, *own)
	}
	grace = max(grace, 1)
	return metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
}

// noteForced writes on the Node that it is not emptied by evictions alone. Whoever is leader then counts it so.
func (d *drain) noteForced(ctx context.Context) error {
	_, err := patchNode(ctx, d.Client, d.node, func(node *corev1.Node) nodePatch {
		patch := nodePatch{}
		if isMarked(node) && !isDrained(node) && node.Annotations[api.AnnotationReclaimForced] == "" {
			patch.annotate(api.AnnotationReclaimForced, "true")
		}
		return patch
	})
	return err
}

// attempts are those to move the pods of one Node, which one worker drains at a time.
type attempts map[types.UID]attempt

type attempt struct {
	refusals int
	// next is when to ask again.
	next time.Time
}

// askedOn forgets the attempts on pods that are gone.
func (h *handshakes) askedOn(node string, pods []*corev1.Pod) attempts {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := attempts{}
	for _, pod := range pods {
		if attempt, ok := h.attempts[node][pod.UID]; ok {
			left[pod.UID] = attempt
		}
	}
	h.attempts[node] = left
	return left
}

// add notes the answer, and returns when to ask again.
func (a attempts) add(pod *corev1.Pod, now time.Time, err error) (next time.Time) {
	if err == nil {
		next = now.Add(sightAfter)
		a[pod.UID] = attempt{next: next}
		return next
	}
	refusals := a[pod.UID].refusals
	next = now.Add(min(retryFirst<<min(refusals, 10), retryMost))
	a[pod.UID] = attempt{refusals + 1, next}
	return next
}

// forEach does it to all pods, and returns the errors. The time of a request begins when it may be sent.
func (c *Controller) forEach(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) error {
	var mu sync.Mutex
	var errs []error
	workqueue.ParallelizeUntil(ctx, podWorkers, len(pods), func(i int) {
		if c.inFlight.Acquire(ctx, 1) != nil {
			return // ctx ended
		}
		defer c.inFlight.Release(1)
		ctx, cancel := context.WithTimeout(ctx, podTimeout)
		defer cancel()
		if err := do(ctx, pods[i]); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	})
	return errors.Join(errs...)
}

// noteDrained says once that the Node is without pods. Pods that come back later are evicted again without a word.
func (c *Controller) noteDrained(ctx context.Context, node *corev1.Node, notice Notice) error {
	now := c.Clock.Now()
	changed, err := patchNode(ctx, c.Client, node, func(node *corev1.Node) nodePatch { return drainedPatch(node, now) })
	if err != nil || !changed {
		return err
	}
	left := notice.Deadline.Sub(now)
	noticeToEmpty.WithLabelValues(string(notice.Source)).Observe(now.Sub(notice.FirstSeen).Seconds())
	leftWhenEmpty.WithLabelValues(string(notice.Source)).Observe(left.Seconds())
	klog.FromContext(ctx).Info("Drained", "node", klog.KObj(node), "instance", notice.InstanceID, "left", left)
	c.event(node, ReasonDrained, "No pods are left on spot instance %s, %s before its release", notice.InstanceID, left.Round(time.Second))
	return nil
}

// outcomeOf is how the reclaim of a Node ended that is gone now.
func (c *Controller) outcomeOf(node *corev1.Node) string {
	switch {
	case !isDrained(node) || len(drainable(c.podsOn(node.Name))) > 0:
		return outcomeLate
	case node.Annotations[api.AnnotationReclaimForced] != "":
		return outcomeDeleted
	}
	return outcomeDrained
}

// bury takes out of the API what is left of the pods of a released instance. Nothing of them runs any more, and whoever makes
// them anew, under the same names perhaps, need not wait for the garbage collector.
func (c *Controller) bury(ctx context.Context, node *corev1.Node) {
	err := c.forEach(ctx, drainable(c.podsOn(node.Name)), func(ctx context.Context, pod *corev1.Pod) error {
		options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Removing the pods of a released instance; they are left to the garbage collector", "node", klog.KObj(node))
	}
}
