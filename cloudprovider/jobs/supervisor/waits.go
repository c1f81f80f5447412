package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// readDelay is how old a pod is before its job is read: most pods have a node by then. readQPS is how many jobs are read in
	// a second, so that a reclaim, which has to read jobs too, comes first.
	readDelay = 10 * time.Second
	readQPS   = 20
	// rereadEvery is how often a job that waits is read again, in case its maximum wait was changed.
	rereadEvery = 5 * time.Minute
	// recheckEvery is how often a job is looked at whose maximum wait is over, until its pods are gone.
	recheckEvery = 10 * time.Second
	// lateNodeTime is for how long after the end of a wait nodes may still come that were bought for the job: core gives up on
	// them then.
	lateNodeTime = 15 * time.Minute
	// unreadTime bounds how long a new leader buys nothing for pods that are older than it, until it has read the maximum wait
	// of their jobs.
	unreadTime = 10 * time.Second
)

// waits knows since when jobs wait for capacity, and ends waits that are over. It is safe for concurrent use.
type waits struct {
	jobs     Jobs
	pods     podCounter
	giveBack *giveBack
	held     *heldJobs
	recorder record.EventRecorder
	clock    clock.PassiveClock
	queue    work.Queue[jobs.Ref]
	reads    flowcontrol.RateLimiter

	mu      sync.Mutex
	started time.Time // of this leader, cut to the second as creation timestamps are; zero before
	byJob   map[jobs.Ref]*jobWait
	// cordoned are the nodes that were cordoned for a job which is yet to be suspended. They are given back once it is, and kept if its
	// wait ends another way.
	cordoned map[jobs.Ref]sets.Set[string]
}

// jobWait is what is known of a job that has pending pods.
type jobWait struct {
	// isRead is true once the job's maximum wait was read.
	isRead bool
	// limit is the maximum wait, zero for none.
	limit time.Duration
	// expired is when the maximum wait was found to be over, zero before.
	expired time.Time
	// hasEvent is true once an Event was written about the end of the wait.
	hasEvent bool
	// oldest is the pod that had waited longest when the maximum wait was found to be over.
	oldest *corev1.Pod
}

// start notes that this leader has begun its work.
func (w *waits) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.started = w.clock.Now().Truncate(time.Second)
}

// add notes that the pod is pending.
func (w *waits) add(ref jobs.Ref, pod *corev1.Pod) {
	w.mu.Lock()
	isNew := w.byJob[ref] == nil
	if isNew {
		w.byJob[ref] = &jobWait{}
	}
	started := w.started
	w.mu.Unlock()
	if !isNew {
		return
	}
	after := time.Duration(0)
	if created := pod.CreationTimestamp.Time; !created.Before(started) {
		after = readDelay - w.clock.Since(created)
	}
	w.queue.AddAfter(ref, after)
}

// abandoned returns whether the maximum wait of the pod's job is over. A new leader returns true, too, for a moment, of pods of which
// it has yet to find out.
func (w *waits) abandoned(pod *corev1.Pod) bool {
	ref := w.jobs.Member(pod).Ref
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.byJob[ref]
	if known != nil && !known.expired.IsZero() {
		return !pod.CreationTimestamp.After(known.expired)
	}
	isRead := known != nil && known.isRead
	return !isRead && pod.CreationTimestamp.Time.Before(w.started) && w.clock.Since(w.started) < unreadTime
}

// hasLimit returns whether the pod's job has a maximum wait, as far as that was read.
func (w *waits) hasLimit(pod *corev1.Pod) bool {
	ref := w.jobs.Member(pod).Ref
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.byJob[ref]
	return known != nil && known.limit > 0
}

// sync finds out whether the job's maximum wait is over, and ends the wait then.
func (w *waits) sync(ctx context.Context, ref jobs.Ref) (again time.Duration, err error) {
	counts, isLate := w.count(ref)
	switch {
	case isLate:
		return recheckEvery, w.giveBackLate(ctx, ref, counts)
	case counts.first == nil:
		return 0, w.keep(ctx, ref)
	}
	job, limit, err := w.read(ctx, ref, counts.first)
	if err != nil {
		return 0, err
	}
	left := counts.since().Add(limit).Sub(w.clock.Now())
	isOver := limit > 0 && left <= 0 && !job.Finished
	w.record(ref, limit, isOver, counts.first)
	if isOver {
		return recheckEvery, w.end(ctx, ref, job, limit, counts)
	}
	if err := w.keep(ctx, ref); err != nil {
		return 0, err
	}
	if limit > 0 {
		return min(max(left, time.Second), rereadEvery), nil
	}
	return rereadEvery, nil
}

// count counts the job's pods, and forgets its wait where none is pending. The wait is late if it is over and its pods have
// gone or are going, while nodes that were bought for it may still come: first is the pod that had waited longest then.
func (w *waits) count(ref jobs.Ref) (counts podCounts, isLate bool) {
	w.mu.Lock() // while counting: a pod that is added meanwhile is either counted, or finds no wait and begins one
	defer w.mu.Unlock()
	counts = w.pods.count(ref)
	known := w.byJob[ref]
	isLate = counts.total == counts.terminating && known != nil && known.oldest != nil && w.clock.Since(known.expired) < lateNodeTime
	switch {
	case isLate:
		counts.first = known.oldest
	case counts.first == nil:
		delete(w.byJob, ref)
	}
	return counts, isLate
}

// read returns the job and its maximum wait, which is on the pods where the job has no object.
func (w *waits) read(ctx context.Context, ref jobs.Ref, pod *corev1.Pod) (jobs.Job, time.Duration, error) {
	if err := w.reads.Wait(ctx); err != nil {
		return jobs.Job{}, 0, err
	}
	job, err := w.jobs.Get(ctx, ref)
	if errors.Is(err, jobs.ErrNoObject) {
		limit, _ := jobs.MaxWait(pod.Annotations) // a malformed one is none
		return jobs.Job{Ref: ref}, limit, nil
	}
	return job, job.MaxWait, err
}

// record notes the maximum wait, and whether the wait is over. From then on, loops buy nothing for the job.
func (w *waits) record(ref jobs.Ref, limit time.Duration, isOver bool, first *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.byJob[ref]
	if known == nil {
		return
	}
	known.isRead, known.limit = true, limit
	switch {
	case !isOver:
		known.expired, known.hasEvent, known.oldest = time.Time{}, false, nil // its owner lets it wait for longer
	case known.expired.IsZero():
		known.expired, known.oldest = w.clock.Now(), first
		waitsExpired.WithLabelValues(ref.System).Inc()
	}
}

// end suspends the job, and gives back what was bought for it. A job that runs with its minimum goes on with what it has. The
// Ref is that of the pods: the job may be the parent of what they belong to, and have another.
func (w *waits) end(ctx context.Context, ref jobs.Ref, job jobs.Job, limit time.Duration, counts podCounts) error {
	if counts.running >= max(1, job.Min) {
		w.recordEvent(ctx, ref, job, counts, "SpotJobWaitOver",
			fmt.Sprintf("Goes on with %d workers: no more came within its maximum wait of %v", counts.running, limit))
		return w.keep(ctx, ref)
	}
	cordoned, err := w.giveBack.cordon(ctx, ref, w.boughtFor(ref, counts))
	w.note(ref, cordoned)
	if err != nil {
		return err
	}
	switch err := w.jobs.Suspend(ctx, job, jobs.HeldForMaxWait); {
	case errors.Is(err, jobs.ErrUnsupported) || errors.Is(err, jobs.ErrNoObject):
		w.recordEvent(ctx, ref, job, counts, jobs.ReasonTimedOut,
			fmt.Sprintf("There was no capacity within the maximum wait of %v: nothing more is bought for this job", limit))
		return w.keep(ctx, ref) // its pods stay
	case err != nil:
		return err
	}
	cordoned = w.noted(ref)
	w.giveBack.enqueue(cordoned)
	w.forget(ref, cordoned...)
	return nil
}

// note remembers the nodes that are cordoned for a job which is to be suspended.
func (w *waits) note(ref jobs.Ref, cordoned []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(cordoned) > 0 {
		w.cordoned[ref] = sets.New(cordoned...).Union(w.cordoned[ref])
	}
}

// noted returns the nodes that are cordoned for the job, which is yet to be suspended.
func (w *waits) noted(ref jobs.Ref) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sets.List(w.cordoned[ref])
}

// forget forgets nodes that are cordoned for the job.
func (w *waits) forget(ref jobs.Ref, cordoned ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if left := w.cordoned[ref].Difference(sets.New(cordoned...)); left.Len() > 0 {
		w.cordoned[ref] = left
	} else {
		delete(w.cordoned, ref)
	}
}

// keep keeps the nodes that are cordoned for the job, since its wait ends without a suspension.
func (w *waits) keep(ctx context.Context, ref jobs.Ref) error {
	cordoned := w.noted(ref)
	if err := w.giveBack.uncordon(ctx, cordoned); err != nil {
		return err
	}
	w.forget(ref, cordoned...)
	return nil
}

// giveBackLate gives back nodes that were still to come when the job was suspended.
func (w *waits) giveBackLate(ctx context.Context, ref jobs.Ref, counts podCounts) error {
	cordoned, err := w.giveBack.cordon(ctx, ref, w.boughtFor(ref, counts))
	w.giveBack.enqueue(cordoned)
	w.forget(ref, cordoned...)
	return errors.Join(err, w.keep(ctx, ref)) // another job has a use for the others
}

// boughtFor returns the nodes that were bought for the job. Empty nodes are among them where they cannot have been bought for
// another job: none waits, is to be resumed or grown, or loses nodes.
func (w *waits) boughtFor(ref jobs.Ref, counts podCounts) []*corev1.Node {
	withEmpty := !w.giveBack.hasReclaimingNodeOfOthers(ref) && !w.held.isAnyToReturn() && !w.isOtherWaiting(ref)
	return w.giveBack.boughtFor(ref, counts.first, withEmpty)
}

// isOtherWaiting returns whether another job waits, and may go on doing so.
func (w *waits) isOtherWaiting(ref jobs.Ref) bool {
	return slices.ContainsFunc(w.othersWaiting(ref), func(other jobs.Ref) bool { return w.pods.count(other).first != nil })
}

// othersWaiting returns the jobs whose maximum wait is not over. Some of them may not wait any more: to count the pods of all of them
// under the lock would hold up the loop, which takes it for each pod.
func (w *waits) othersWaiting(ref jobs.Ref) (others []jobs.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for other, known := range w.byJob {
		if other != ref && known.expired.IsZero() {
			others = append(others, other)
		}
	}
	return others
}

// recordEvent writes an Event, once for each wait: on the job, or where it has no object on the pod that waited longest.
func (w *waits) recordEvent(ctx context.Context, ref jobs.Ref, job jobs.Job, counts podCounts, reason, message string) {
	w.mu.Lock()
	known := w.byJob[ref]
	isDone := known == nil || known.hasEvent
	if known != nil {
		known.hasEvent = true
	}
	w.mu.Unlock()
	if isDone {
		return
	}
	klog.FromContext(ctx).Info("The maximum wait of a job is over", "job", job.Ref, "reason", reason, "message", message)
	if job.Object != nil {
		w.recorder.Event(job.Object, corev1.EventTypeWarning, reason, message)
	} else {
		w.recorder.Event(counts.first, corev1.EventTypeWarning, reason, message)
	}
}
