package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// freshTime is how old a pod is before its job is read, readQPS how many jobs are read in a second.
	freshTime = 10 * time.Second
	readQPS   = 20
	// rereadEvery is how often a job that waits is read again, for a maximum wait that was changed.
	rereadEvery = 5 * time.Minute
	// recheckEvery is how often a job is looked at whose maximum wait is over, until its pods are gone.
	recheckEvery = 10 * time.Second
	// lateTime is for how long after that nodes may still come that were bought for it: core gives up on them then.
	lateTime = 15 * time.Minute
	// unjudgedTime bounds how long a new leader buys nothing for pods that were there before it, until it has read whether
	// their jobs have waited for long enough.
	unjudgedTime = 10 * time.Second
)

// wait is what is known of a job of which pods are pending.
type wait struct {
	// judged is true once the job's maximum wait was read.
	judged bool
	// expired is when the maximum wait was found to be over, zero before.
	expired time.Time
	// told is true once the job, or its owner, was.
	told bool
	// last is the pod that waited longest when the maximum wait was found to be over.
	last *corev1.Pod
}

// Abandoned says whether the maximum wait of the pod's job is over. A new leader says so too, for a moment, of pods of which
// it has yet to find out.
func (s *Supervisor) Abandoned(pod *corev1.Pod) bool {
	ref := s.Jobs.Member(pod).Ref
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.waits[ref]
	if known != nil && !known.expired.IsZero() {
		return !pod.CreationTimestamp.After(known.expired)
	}
	judged := known != nil && known.judged
	return !judged && pod.CreationTimestamp.Time.Before(s.started) && s.Clock.Since(s.started) < unjudgedTime
}

// syncWait sees whether the job's maximum wait is over, and does what is due then.
func (s *Supervisor) syncWait(ctx context.Context, ref jobs.Ref) (again time.Duration, err error) {
	s.mu.Lock()
	counted := s.crews.census(ref)
	known := s.waits[ref]
	late := counted.pods == counted.leaving && known != nil && known.last != nil && s.Clock.Since(known.expired) < lateTime
	switch {
	case late:
		counted.first = known.last
	case counted.first == nil:
		delete(s.waits, ref)
	}
	s.mu.Unlock()
	switch {
	case late:
		return recheckEvery, s.giveBackAll(ctx, ref, counted)
	case counted.first == nil:
		return 0, nil
	}
	job, limit, err := s.read(ctx, ref, counted.first)
	if err != nil {
		return 0, err
	}
	left := counted.since().Add(limit).Sub(s.Clock.Now())
	over := limit > 0 && left <= 0 && !job.Finished
	s.judge(ref, over, counted.first)
	switch {
	case over:
		return recheckEvery, s.expire(ctx, ref, job, limit, counted)
	case limit > 0:
		return min(max(left, time.Second), rereadEvery), nil
	}
	return rereadEvery, nil
}

// read returns the job and its maximum wait. That of a job without an object is on its pods.
func (s *Supervisor) read(ctx context.Context, ref jobs.Ref, pod *corev1.Pod) (jobs.Job, time.Duration, error) {
	if err := s.reads.Wait(ctx); err != nil {
		return jobs.Job{}, 0, err
	}
	job, err := s.Jobs.Get(ctx, ref)
	if errors.Is(err, jobs.ErrNoObject) {
		return jobs.Job{Ref: ref}, waitOf(pod), nil
	}
	return job, job.MaxWait, err
}

// waitOf is zero where the pod does not say, or says it wrongly.
func waitOf(pod *corev1.Pod) time.Duration {
	if limit, err := time.ParseDuration(pod.Annotations[api.AnnotationMaxWait]); err == nil {
		return limit
	}
	seconds, _ := strconv.Atoi(pod.Annotations[api.AnnotationSupervisorMaxWait])
	return time.Duration(seconds) * time.Second
}

// judge records what was found out. From here on, loops buy nothing for a job whose wait is over.
func (s *Supervisor) judge(ref jobs.Ref, over bool, first *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.waits[ref]
	if known == nil {
		return
	}
	known.judged = true
	switch {
	case !over:
		known.expired, known.told, known.last = time.Time{}, false, nil // its owner lets it wait for longer
	case known.expired.IsZero():
		known.expired, known.last = s.Clock.Now(), first
		waitsExpired.WithLabelValues(ref.System).Inc()
	}
}

// expire suspends the job, and gives back what was bought for it. A job that runs with its minimum goes on with what it
// has. The ref is that of the pods: the job may be what theirs was made for, and have another.
func (s *Supervisor) expire(ctx context.Context, ref jobs.Ref, job jobs.Job, limit time.Duration, counted census) error {
	if counted.workers >= max(1, job.Min) {
		s.tell(ref, job, counted, "SpotJobWaitOver", fmt.Sprintf("Goes on with %d workers: no more came within its maximum wait of %v", counted.workers, limit))
		return nil
	}
	marked, err := s.markAll(ctx, ref, s.boughtFor(ref, counted))
	if err != nil {
		return err
	}
	switch err := s.Jobs.Suspend(ctx, job, jobs.ReasonMaxWait); {
	case errors.Is(err, jobs.ErrUnsupported) || errors.Is(err, jobs.ErrNoObject):
		s.tell(ref, job, counted, jobs.ReasonTimedOut, fmt.Sprintf("There was no capacity within the maximum wait of %v: nothing more is bought for this job", limit))
		return s.unmarkAll(ctx, marked) // its pods stay
	case err != nil:
		return err
	}
	s.release(marked)
	return nil
}

// giveBackAll gives back what was under way when the job was suspended.
func (s *Supervisor) giveBackAll(ctx context.Context, ref jobs.Ref, counted census) error {
	marked, err := s.markAll(ctx, ref, s.boughtFor(ref, counted))
	s.release(marked)
	return err
}

func (s *Supervisor) release(marked []string) {
	for _, node := range marked {
		s.queue.Add(task{kind: taskGiveBack, node: node})
	}
}

// tell writes an Event, once for each wait: on the job, or where it has no object on the pod that waited longest.
func (s *Supervisor) tell(ref jobs.Ref, job jobs.Job, counted census, reason, message string) {
	s.mu.Lock()
	known := s.waits[ref]
	told := known == nil || known.told
	if known != nil {
		known.told = true
	}
	s.mu.Unlock()
	if told {
		return
	}
	klog.Infof("%s: %s", job.Ref, message)
	if job.Object != nil {
		s.Recorder.Event(job.Object, corev1.EventTypeWarning, reason, message)
	} else {
		s.Recorder.Event(counted.first, corev1.EventTypeWarning, reason, message)
	}
}
