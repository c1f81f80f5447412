// Package progress keeps how much of the work of a job is saved, for jobs whose pods state their work and their deadline. Pods that are made again
// after a reclaim state all of the work again, so that their job would look late.
//
// What a job did until it acknowledged a request for a checkpoint is saved. It is written on the job's object, where the next leader and the next
// reclaim find it.
package progress

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// readEvery is how old what is known of a job may be: its owner may write it, too.
	readEvery = 2 * time.Minute
	// readTime is for how long a job is waited for that is read for the first time.
	readTime = 10 * time.Second
	// forgetAfter is for how long a job is remembered that nobody asks for, and that saves nothing.
	forgetAfter = 24 * time.Hour
	// slowestRetry bounds the time between two attempts to read or write a job.
	slowestRetry = time.Minute
	// workers are few: reclaims share the client.
	workers = 4
)

// Jobs reads and writes the objects of jobs. jobs.Notes implements it.
type Jobs interface {
	Member(pod *corev1.Pod) jobs.Membership
	UnitOf(pod *corev1.Pod) string
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	NoteWork(ctx context.Context, job jobs.Job, saved jobs.SavedWork) error
}

// Pods are those that exist. *podindex.Index implements it.
type Pods interface {
	OfJob(ref jobs.Ref) []*corev1.Pod
}

// Config is what a Progress is made of. All of it is required.
type Config struct {
	Jobs  Jobs
	Pods  Pods
	Clock clock.WithTicker
	// Restart is how long a job that starts does no useful work.
	Restart time.Duration
}

// Progress knows of jobs how much of their work is saved. It is safe for concurrent use.
type Progress struct {
	config Config
	queue  work.Queue[jobs.Ref]

	mu sync.Mutex
	// known are the jobs that somebody asked for, or that have saved something; saved is what they have acknowledged that is not written yet.
	known map[jobs.Ref]*entry
	saved map[jobs.Ref]run
	swept time.Time
}

// entry is what is known of a job.
type entry struct {
	jobs.SavedWork
	// replicas are how many workers the job asks for.
	replicas int
	// read is when it was read last, zero if it was not, first and last when somebody asked or it saved something.
	read, first, last time.Time
}

// New returns a Progress, which knows nothing until it runs.
func New(config Config) *Progress {
	return &Progress{
		config: config, queue: work.NewQueue[jobs.Ref]("progress", config.Clock, slowestRetry),
		known: map[jobs.Ref]*entry{}, saved: map[jobs.Ref]run{},
	}
}

// Run reads and writes jobs until ctx ends.
func (p *Progress) Run(ctx context.Context) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { p.queue.Work(ctx, p.sync) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	running.Wait()
}

// Done returns how much of the work that the pod states its job has done: what is saved, and, if the job is to be asked to save its work, what it has
// done since. It returns false for some seconds after somebody asked for the job first, until that is read.
func (p *Progress) Done(pod *corev1.Pod, isAsked bool) (done time.Duration, known bool) {
	ref := p.config.Jobs.Member(pod).Ref
	if !isTimed(pod) || ref.System == jobs.SystemPod {
		return 0, true
	}
	now := p.config.Clock.Now()
	job := p.ask(ref, pod.CreationTimestamp.Time, now)
	if job.read.IsZero() && now.Sub(job.first) < readTime {
		return 0, false
	}
	saved := job.SavedWork
	if saved.Of != "" && saved.Of != pod.Annotations[api.AnnotationWork] {
		saved = jobs.SavedWork{} // the owner has said anew how much is left
	}
	if isAsked {
		if r, counts := p.runOf(p.config.Pods.OfJob(ref), now, now); counts {
			saved = r.after(saved, job.replicas, p.config.Restart)
		}
	}
	return saved.Work, true
}

// ask returns what is known of the job, and has it read if that is too old, or older than a pod of it, which may be of another job of that name.
func (p *Progress) ask(ref jobs.Ref, created, now time.Time) entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	job := p.entry(ref, now)
	if now.Sub(job.read) >= readEvery || job.read.Before(created) {
		p.queue.Add(ref)
	}
	return *job
}

// entry returns that of the job, which it makes if there is none. The lock is held.
func (p *Progress) entry(ref jobs.Ref, now time.Time) *entry {
	job := p.known[ref]
	if job == nil {
		job = &entry{first: now}
		p.known[ref] = job
	}
	job.last = now
	return job
}

// isTimed returns whether the pod states its work and its deadline.
func isTimed(pod *corev1.Pod) bool {
	_, hasDeadline := pod.Annotations[api.AnnotationDeadline]
	return hasDeadline && pod.Annotations[api.AnnotationWork] != ""
}

// Note enters that the job has acknowledged at a time that its work is saved, as it was asked before. Pods are those that were asked. It does not
// block.
func (p *Progress) Note(ref jobs.Ref, pods []*corev1.Pod, asked, at time.Time) {
	r, counts := p.runOf(pods, asked, at)
	if !counts || ref.System == jobs.SystemPod {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entry(ref, p.config.Clock.Now())
	p.saved[ref] = r
	p.queue.Add(ref)
}

// sync reads the job, and writes what it has saved since.
func (p *Progress) sync(ctx context.Context, ref jobs.Ref) error {
	began := p.config.Clock.Now()
	p.mu.Lock()
	r, hasSaved := p.saved[ref]
	p.mu.Unlock()
	job, err := p.config.Jobs.Get(ctx, ref)
	if err != nil && !errors.Is(err, jobs.ErrNoObject) {
		p.noteFailure(ref, began)
		return err
	}
	saved := job.SavedWork()
	if hasSaved && err == nil && !r.isOfBefore(job) {
		if saved, err = p.write(ctx, ref, job, r, began); err != nil {
			return err
		}
	}
	p.enter(ref, job, saved, began)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved[ref] == r { // and it has not saved more meanwhile
		delete(p.saved, ref)
	}
	return nil
}

// write writes what the job has saved with the run, and returns what is saved. If that cannot be written now, it counts all the same.
func (p *Progress) write(ctx context.Context, ref jobs.Ref, job jobs.Job, r run, began time.Time) (jobs.SavedWork, error) {
	saved := r.after(job.SavedWork(), job.FullReplicas(), p.config.Restart)
	p.enter(ref, job, saved, began)
	switch err := p.config.Jobs.NoteWork(ctx, job, saved); {
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).Error(err, "It may not be written how much of its work a job has saved", "job", ref)
		return job.SavedWork(), nil
	case errors.Is(err, jobs.ErrUnsupported), errors.Is(err, jobs.ErrNoObject):
		return job.SavedWork(), nil
	case err != nil:
		return saved, err
	}
	klog.FromContext(ctx).Info("Noted how much of its work a job has saved", "job", ref, "saved", saved.Work, "of", saved.Of)
	return saved, nil
}

// enter enters what is known of the job, and forgets others.
func (p *Progress) enter(ref jobs.Ref, job jobs.Job, saved jobs.SavedWork, read time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[ref]; known != nil {
		known.SavedWork, known.replicas, known.read = saved, job.FullReplicas(), read
	}
	if read.Sub(p.swept) >= readEvery {
		p.swept = read
		maps.DeleteFunc(p.known, func(_ jobs.Ref, job *entry) bool { return read.Sub(job.last) > forgetAfter })
	}
}

// noteFailure has the queue alone decide when a job is read again that could not be.
func (p *Progress) noteFailure(ref jobs.Ref, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[ref]; known != nil {
		known.read = at
	}
}
