package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/nodepatch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// seenAfter is how long the informer may take to show that a pod is terminating. Until then the request is not repeated.
	seenAfter = 5 * time.Second
	// leastGrace is the shortest grace period that is asked for: with zero the API server removes a pod whose containers still run.
	leastGrace = time.Second
	// slowestRetry is how long a request that was refused waits at most.
	slowestRetry = 10 * time.Second
)

// errRefused says that a pod may not be evicted just now.
var errRefused = errors.New("not now")

// evict requests the eviction of the pod.
func (s *step) evict(ctx context.Context, pod *corev1.Pod) error {
	options := s.deleteOptions(pod)
	err := s.config.Client.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &options,
	})
	switch {
	case err == nil:
		drainedPods.WithLabelValues(s.config.Cluster.SystemOf(pod), methodEvict).Inc()
		what := s.notice.Prefix() + "Evicted: instance %s of node %s will be released at %s"
		if s.notice.IsMove() {
			what = "Evicted: its job moves from instance %s of node %s to a spot instance, until %s"
		}
		s.config.Events.PodEventf(pod, events.ReasonEvicted, what,
			s.notice.InstanceID, pod.Spec.NodeName, events.FormatTime(s.notice.Deadline))
		return nil
	case apierrors.IsNotFound(err):
		return nil
	}
	if !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		s.pdbs.giveBack(pod)
	}
	if ctx.Err() != nil || isRefusal(err) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return fmt.Errorf("evict pod %s: %w", klog.KObj(pod), err)
}

// isRefusal returns whether the API server may answer otherwise later.
func isRefusal(err error) bool {
	return apierrors.IsTooManyRequests(err) || // a PodDisruptionBudget forbids it
		apierrors.IsInternalError(err) || // the pod has two of them
		apierrors.IsTimeout(err) || // many pods under one of them are evicted at once
		apierrors.IsConflict(err) // the pod changed meanwhile, or another has its name
}

// takesTooLong returns whether the pod would not be gone by the deadline, or after that at once, without being deleted now.
func (s *step) takesTooLong(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil || pod.DeletionTimestamp.After(notice.Later(s.notice.Deadline, s.now.Add(leastGrace)))
}

// noteForced notes on the Node, once for all its pods, that they are deleted.
func (s *step) noteForced(ctx context.Context) {
	if !nodepatch.Changes(s.node, mark.Forced) {
		return
	}
	if _, err := nodepatch.Apply(ctx, s.config.Client, s.node, mark.Forced); err != nil {
		klog.FromContext(ctx).Error(err, "Could not note on the node that pods are deleted", "node", klog.KObj(s.node))
	}
}

// delete deletes the pod. If it is terminating but would take longer than is left, it is hurried.
func (s *step) delete(ctx context.Context, pod *corev1.Pod) error {
	if !s.takesTooLong(pod) {
		return nil
	}
	err := s.config.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, s.deleteOptions(pod))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", klog.KObj(pod), err)
	}
	drainedPods.WithLabelValues(s.config.Cluster.SystemOf(pod), methodDelete).Inc()
	s.config.Events.PodEventf(pod, events.ReasonDeleted, "Deleted without regard to PodDisruptionBudgets: instance %s of node %s will be released at %s",
		s.notice.InstanceID, pod.Spec.NodeName, events.FormatTime(s.notice.Deadline))
	return nil
}

// deleteOptions limit the pod's grace period to what is left until the deadline, and to leastGrace after it. In a drill or a move the pod has all of it, because nobody takes
// its instance.
func (s *step) deleteOptions(pod *corev1.Pod) metav1.DeleteOptions {
	preconditions := &metav1.Preconditions{UID: &pod.UID}
	if s.notice.Yields() {
		return metav1.DeleteOptions{Preconditions: preconditions}
	}
	grace := int64(s.notice.Deadline.Sub(s.config.Clock.Now()).Seconds())
	if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = min(grace, *own)
	}
	grace = max(grace, int64(leastGrace.Seconds()))
	return metav1.DeleteOptions{GracePeriodSeconds: &grace, Preconditions: preconditions}
}

// attempts are the requests to move the pods of one Node. One worker at a time has them.
type attempts map[types.UID]attempt

type attempt struct {
	refusals int
	// next is when to request it again.
	next time.Time
}

// attemptsOn forgets the attempts on pods that are gone, and returns the others.
func (d *Drainer) attemptsOn(node string, pods []*corev1.Pod) attempts {
	d.mu.Lock()
	defer d.mu.Unlock()
	left := attempts{}
	for _, pod := range pods {
		if attempt, ok := d.attempts[node][pod.UID]; ok {
			left[pod.UID] = attempt
		}
	}
	d.attempts[node] = left
	return left
}

// add enters the answer, and returns when to make the request again.
func (a attempts) add(pod *corev1.Pod, now time.Time, err error) (next time.Time) {
	if err == nil {
		next = now.Add(seenAfter)
		a[pod.UID] = attempt{next: next}
		return next
	}
	refusals := a[pod.UID].refusals
	next = now.Add(min(work.FirstRetry<<min(refusals, 10), slowestRetry))
	a[pod.UID] = attempt{refusals + 1, next}
	return next
}
