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
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// readEvery is how old what is known of a job may be: its owner may write it, too.
	readEvery = 2 * time.Minute
	// forgetAfter is for how long a job is remembered that nobody asks for.
	forgetAfter = time.Hour
	// slowestRetry bounds the time between two attempts to read or write a job.
	slowestRetry = time.Minute
	workers      = 4
)

// Jobs reads and writes the objects of jobs. jobs.Notes implements it.
type Jobs interface {
	Member(pod *corev1.Pod) jobs.Membership
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	NoteWork(ctx context.Context, job jobs.Job, saved jobs.SavedWork) error
}

// Config is what a Progress is made of. All of it is required.
type Config struct {
	Jobs  Jobs
	Clock clock.WithTicker
	// Restart is how long a job that starts does no useful work.
	Restart time.Duration
}

// Progress knows of jobs how much of their work is saved. It is safe for concurrent use.
type Progress struct {
	config Config
	queue  work.Queue[jobs.Ref]

	mu sync.Mutex
	// known are the jobs that somebody asked for, saved what they have acknowledged that is not written yet.
	known map[jobs.Ref]*entry
	saved map[jobs.Ref]run
	swept time.Time
}

// entry is what is known of a job, since when, and when somebody asked for it last.
type entry struct {
	jobs.SavedWork
	read, asked time.Time
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

// Saved returns how much of the work that the pod states its job had saved, and when. Both are zero as long as that is not known, and for a job that
// has saved nothing. It may be called for nil.
func (p *Progress) Saved(pod *corev1.Pod) (saved time.Duration, at time.Time) {
	if p == nil || !isTimed(pod) {
		return 0, time.Time{}
	}
	ref := p.config.Jobs.Member(pod).Ref
	if ref.System == jobs.SystemPod {
		return 0, time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.config.Clock.Now()
	job := p.known[ref]
	if job == nil {
		job = &entry{}
		p.known[ref] = job
	}
	job.asked = now
	if now.Sub(job.read) >= readEvery || job.read.Before(pod.CreationTimestamp.Time) {
		p.queue.Add(ref) // which may be another job of that name
	}
	if job.Of != "" && job.Of != pod.Annotations[api.AnnotationWork] {
		return 0, time.Time{} // the owner has said anew how much is left
	}
	return job.Work, job.At
}

// isTimed returns whether the pod states its work and its deadline.
func isTimed(pod *corev1.Pod) bool {
	_, hasDeadline := pod.Annotations[api.AnnotationDeadline]
	return hasDeadline && pod.Annotations[api.AnnotationWork] != ""
}

// Note enters that the job has acknowledged at a time that its work is saved, as it was asked before. Pods are all of the job. It does not block.
func (p *Progress) Note(ref jobs.Ref, pods []*corev1.Pod, asked, at time.Time) {
	r, counts := p.runOf(pods, asked)
	if !counts || ref.System == jobs.SystemPod {
		return
	}
	r.until = at
	p.mu.Lock()
	p.saved[ref] = r
	p.mu.Unlock()
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
		return err
	}
	saved := job.SavedWork()
	if hasSaved && err == nil {
		saved = r.after(saved, job, p.config.Restart)
		p.enter(ref, saved, began) // also if it cannot be written
		switch err := p.config.Jobs.NoteWork(ctx, job, saved); {
		case errors.Is(err, jobs.ErrUnsupported), errors.Is(err, jobs.ErrNoObject):
			saved = job.SavedWork()
		case err != nil:
			return err
		default:
			klog.FromContext(ctx).Info("Noted how much of its work a job has saved", "job", ref, "saved", saved.Work, "of", saved.Of)
		}
	}
	p.enter(ref, saved, began)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saved[ref] == r { // and it has not saved more meanwhile
		delete(p.saved, ref)
	}
	return nil
}

// enter enters what is known of the job, and forgets those that nobody asks for.
func (p *Progress) enter(ref jobs.Ref, saved jobs.SavedWork, read time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if job := p.known[ref]; job != nil {
		job.SavedWork, job.read = saved, read
	}
	if read.Sub(p.swept) >= readEvery {
		p.swept = read
		maps.DeleteFunc(p.known, func(_ jobs.Ref, job *entry) bool { return read.Sub(job.asked) > forgetAfter })
	}
}
