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
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	// marksFirst is how long a drain steps aside while Nodes wait for their marks. Until all of a correlated reclaim are
	// marked, what is evicted from one could be scheduled onto the next.
	marksFirst = 50 * time.Millisecond
	// podWorkers is how many pods of one Node are evicted at once.
	podWorkers = 8
	// podTimeout bounds one eviction. Some refusals name a time to wait, and client-go waits inside the call.
	podTimeout = 5 * time.Second
	// checkAfter is when to look again after pods were deleted: to delete anew what came back.
	checkAfter = 5 * time.Second
)

// errRefused says that a pod may not go just now.
var errRefused = errors.New("not now")

// syncDrain takes one step toward a Node without pods: evictions while there is time, deletions after.
func (c *Controller) syncDrain(ctx context.Context, name string) error {
	node := c.node(name)
	if node == nil || !isMarked(node) {
		return nil
	}
	notice, doomed := c.noticeOf(node)
	if !doomed || c.verdictOf(notice.InstanceID) != pending {
		return nil
	}
	if c.marksWaiting() {
		c.drains.AddAfter(name, marksFirst)
		return nil
	}
	pods := drainable(c.podsOn(name))
	if len(pods) == 0 {
		return c.noteDrained(ctx, node, notice)
	}
	if wait := notice.DeleteFrom().Sub(c.Clock.Now()); wait > 0 {
		c.drains.AddAfter(name, wait)
		return forEach(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return c.evict(ctx, pod, notice) })
	}
	c.drains.AddAfter(name, checkAfter)
	return forEach(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error { return c.delete(ctx, pod, notice) })
}

// drainable leaves out the pods that belong to the machine and those that have ended.
func drainable(pods []*corev1.Pod) []*corev1.Pod {
	var left []*corev1.Pod
	for _, pod := range pods {
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if !ended && !podutil.IsMirrorPod(pod) && !podutil.IsStaticPod(pod) && !podutil.IsDaemonSetPod(pod) {
			left = append(left, pod)
		}
	}
	return left
}

// evict asks for the pod to go; one that is on its way out is left to go.
func (c *Controller) evict(ctx context.Context, pod *corev1.Pod, notice Notice) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	options := c.deleteOptions(pod, notice)
	err := c.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &options,
	})
	switch {
	case err == nil:
		podsRemoved.WithLabelValues("evict").Inc()
		c.event(pod, ReasonEvicted, "Evicted: spot instance %s of node %s will be released at %s",
			notice.InstanceID, pod.Spec.NodeName, formatTime(notice.Deadline))
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case ctx.Err() != nil || isRefusal(err):
		return fmt.Errorf("%w: pod %s: %w", errRefused, klog.KObj(pod), err)
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

// delete is for when there is no more time to ask. A pod that is on its way out, but would take longer than is left, is
// hurried.
func (c *Controller) delete(ctx context.Context, pod *corev1.Pod, notice Notice) error {
	if pod.DeletionTimestamp != nil && !pod.DeletionTimestamp.After(notice.Deadline) {
		return nil
	}
	err := c.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, c.deleteOptions(pod, notice))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting pod %s: %w", klog.KObj(pod), err)
	}
	podsRemoved.WithLabelValues("delete").Inc()
	c.event(pod, ReasonDeleted, "Deleted without regard to PodDisruptionBudgets: spot instance %s of node %s will be released at %s",
		notice.InstanceID, pod.Spec.NodeName, formatTime(notice.Deadline))
	return nil
}

// deleteOptions cap the pod's grace at what is left until the deadline. It is never zero: that would take the pod out of
// the API while its containers still run.
func (c *Controller) deleteOptions(pod *corev1.Pod, notice Notice) metav1.DeleteOptions {
	grace := int64(notice.Deadline.Sub(c.Clock.Now()).Seconds())
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = min(grace, *own)
	}
	grace = max(grace, 1)
	return metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
}

func forEach(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) error {
	var mu sync.Mutex
	var errs []error
	workqueue.ParallelizeUntil(ctx, podWorkers, len(pods), func(i int) {
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
	left := notice.Deadline.Sub(now).Round(time.Second)
	noticeToEmpty.WithLabelValues(string(notice.Source)).Observe(now.Sub(notice.FirstSeen).Seconds())
	klog.FromContext(ctx).Info("Drained", "node", klog.KObj(node), "instance", notice.InstanceID, "left", left)
	c.event(node, ReasonDrained, "No pods are left on spot instance %s, %s before its release", notice.InstanceID, left)
	return nil
}
