package handshake

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/jobs/batchjob"
	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/pace"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// trackedWait is how long the Job controller is left to end the pods of a suspended Job. It makes 20 requests per second by
	// default, and two for each pod, so that hundreds of pods would wait for minutes.
	// Source: deleteJobPods in pkg/controller/job, SetDefaults_KubeControllerManagerConfiguration.
	trackedWait = 10 * time.Second
	// untrackMargin is how long before pods may be evicted they are taken out of the account, if there is less time than trackedWait.
	untrackMargin = 3 * time.Second
	// untrackPatience is for how much longer pods stay that are not untracked by then, because the API server is slow, or there are
	// hundreds of jobs.
	untrackPatience = 15 * time.Second
	// paceCheck is how often it is looked at whether the system will get to the pods in time.
	paceCheck = 5 * time.Second
	// untrackRetry is how soon a Job is read again that is not suspended yet.
	untrackRetry = 5 * time.Second
)

// untrackFrom returns from when the pods are untracked, if they may be evicted from evictFrom on. Pods that start again in place
// count by their restarts, whether they are tracked or not, so that they are left to the controller as long as possible. So are those
// of a Job that is suspended by the controller of another system, which may have been too busy for that so far.
// Source: pastBackoffLimitOnFailure in pkg/controller/job of Kubernetes 1.36.
func untrackFrom(l loss, now, evictFrom time.Time) time.Time {
	last := evictFrom.Add(-untrackMargin)
	if l.restartsInPlace() || l.party.System != batchjob.Name {
		return last
	}
	return notice.Earlier(now.Add(trackedWait), last)
}

// isTracked returns whether the Job controller counts the end of one of the pods.
func (l *loss) isTracked() bool {
	return slices.ContainsFunc(l.leaving, func(pod leavingPod) bool { return batchjob.IsTracked(pod.Pod) })
}

// untracker lets the pods of suspended jobs go whose system does not end them in time, and takes those of Jobs out of the account of the
// Job controller before. It is safe for concurrent use.
type untracker struct {
	config Config
	queue  work.Queue[cluster.Party]
	table  *table
	pace   *pace.Pace
}

// hurry lets the pods of a suspended job go if its system turns out to be too slow. Those that the Job controller counts are first
// taken out of its account.
func (u *untracker) hurry(l loss, s state) {
	now := u.config.Clock.Now()
	if !s.suspended || !now.Before(s.evictFrom) {
		return
	}
	u.queue.AddAfter(l.party, paceCheck)
	from := notice.Later(u.pace.Until(l.party, s.evictFrom), now)
	if !from.Before(s.evictFrom) {
		return
	}
	if !s.untrack.IsZero() {
		if from.Before(s.untrack) && u.table.update(l.party, s.id, func(s *state) { s.untrack = from }) {
			u.queue.AddAfter(l.party, from.Sub(now))
		}
		return // sync lets them go
	}
	if u.table.update(l.party, s.id, func(s *state) { s.evictFrom = from }) {
		for node := range l.nodes() {
			u.config.Drains.AddAfter(node, from.Sub(now))
		}
	}
}

// sync has the Job controller count the end of no pod of a suspended Job, and lets the pods go. Pods that stay are part of it: they
// fail when the others leave, and a few failures may be the end of the Job.
func (u *untracker) sync(ctx context.Context, l loss, s state) error {
	now := u.config.Clock.Now()
	if s.untrack.IsZero() || !now.Before(s.evictFrom.Add(untrackPatience)) || len(tracked(l.pods)) == 0 {
		return nil
	}
	if now.Before(s.untrack) {
		u.queue.AddAfter(l.party, s.untrack.Sub(now))
		return nil
	}
	pods := tracked(l.pods)
	suspended, err := u.areSuspended(ctx, jobsOf(pods))
	if err != nil {
		return err
	}
	if !suspended { // Kueue or the JobSet controller has yet to suspend it, or it was resumed: the Job controller would make the pods again
		u.queue.AddAfter(l.party, untrackRetry)
		return nil
	}
	if err := u.untrack(ctx, pods); err != nil {
		return err
	}
	if u.table.update(l.party, s.id, func(s *state) { s.evictFrom = notice.Earlier(s.evictFrom, now) }) {
		klog.FromContext(ctx).Info("The Job controller has not ended the pods of a suspended job; they are evicted uncounted", "job", l.party)
		for node := range l.nodes() {
			u.config.Drains.AddAfter(node, 0)
		}
	}
	return nil
}

// tracked returns those of the pods whose end the Job controller counts.
func tracked(pods []*corev1.Pod) (counted []*corev1.Pod) {
	for _, pod := range pods {
		if batchjob.IsTracked(pod) && !kubepod.IsPodTerminal(pod) {
			counted = append(counted, pod)
		}
	}
	return counted
}

// jobsOf returns the Jobs of Kubernetes of which the pods are.
func jobsOf(pods []*corev1.Pod) sets.Set[types.NamespacedName] {
	names := sets.New[types.NamespacedName]()
	for _, pod := range pods {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			names.Insert(types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name})
		}
	}
	return names
}

// areSuspended returns whether each of the Jobs is suspended or gone. That the job is suspended which they are part of says nothing of them:
// its controller suspends one after the other, when it gets to it. Source: suspendJobs in pkg/controllers/jobset_controller.go of JobSet 0.8.1.
func (u *untracker) areSuspended(ctx context.Context, names sets.Set[types.NamespacedName]) (bool, error) {
	for name := range names {
		if suspended, err := u.isSuspended(ctx, name); !suspended || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isSuspended returns whether the Job is suspended or gone.
func (u *untracker) isSuspended(ctx context.Context, name types.NamespacedName) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	job, err := u.config.Client.BatchV1().Jobs(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the Job %s, whose pods are to be taken out of its account: %w", name, err)
	}
	return ptr.Deref(job.Spec.Suspend, false), nil
}

func (u *untracker) untrack(ctx context.Context, pods []*corev1.Pod) error {
	return u.config.Requests.ForEach(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error {
		client := u.config.Client.CoreV1().Pods(pod.Namespace)
		_, err := patch.Send(ctx, client, pod, types.StrategicMergePatchType, batchjob.UntrackPatch(), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take pod %s out of the account of its job: %w", klog.KObj(pod), err)
		}
		return nil
	})
}
