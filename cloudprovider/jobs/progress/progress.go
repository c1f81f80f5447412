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
	// runFor is how old what is known of the pods of a job may be.
	runFor = 5 * time.Second
	// forgetAfter is for how long a job is remembered after somebody asked for it, or it saved something.
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
	// replicas are how many workers the job asks for, 0 if that is not known.
	replicas int
	// read is when it was read last, and tried when that was last begun; zero for never. First and last are when somebody asked for it, or it saved
	// something.
	read, tried, first, last time.Time
	// run is that of its pods as of a time: each of them may be asked about.
	run   run
	runAt time.Time
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

// Done returns how much of the work that the pod states its job has done. That is what is saved. If the pod runs, and the job acknowledges checkpoints, it
// is also what the job has done since, because a pod that runs is asked about only when its job is to be asked for a checkpoint. Done returns false until
// the job was read since the pod was created, for readTime at most: before that, another job may have had the name.
func (p *Progress) Done(pod *corev1.Pod) (done time.Duration, known bool) {
	ref := p.config.Jobs.Member(pod).Ref
	if !isTimed(pod) || ref.System == jobs.SystemPod {
		return 0, true
	}
	now := p.config.Clock.Now()
	created := pod.CreationTimestamp.Add(time.Second) // which is cut to the second
	job := p.ask(ref, created, now)
	since := job.first
	if created.After(since) {
		since = created
	}
	if job.read.Before(created) && now.Sub(since) < readTime {
		return 0, false
	}
	saved := job.SavedWork
	if saved.Of != "" && saved.Of != pod.Annotations[api.AnnotationWork] {
		saved = jobs.SavedWork{} // the owner has said anew how much is left
	}
	if !startOf(pod, now).IsZero() {
		if r := p.presentRun(ref, now); r.acknowledges {
			saved = r.after(saved, job.replicas, p.config.Restart)
		}
	}
	return saved.Work, true
}

// presentRun returns the run of the job's pods.
func (p *Progress) presentRun(ref jobs.Ref, now time.Time) run {
	p.mu.Lock()
	defer p.mu.Unlock()
	job := p.entry(ref, now)
	if now.Sub(job.runAt) >= runFor {
		job.run, job.runAt = p.runOf(p.config.Pods.OfJob(ref), now, now), now
	}
	return job.run
}

// ask returns what is known of the job, and has it read if that is too old, or older than a pod of it, which may be of another job of that name.
func (p *Progress) ask(ref jobs.Ref, created, now time.Time) entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	job := p.entry(ref, now)
	if now.Sub(job.tried) >= readEvery || job.tried.Before(created) {
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
	r := p.runOf(pods, asked, at)
	if r.pods == 0 || ref.System == jobs.SystemPod {
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
	p.noteTry(ref, began)
	if err != nil && !errors.Is(err, jobs.ErrNoObject) {
		return err
	}
	saved := job.SavedWork()
	if hasSaved && err == nil && !r.predates(job) {
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
	if saved == job.SavedWork() {
		return saved, nil
	}
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

// noteTry enters that the job was tried to be read. If it could not be, the queue alone decides when it is again.
func (p *Progress) noteTry(ref jobs.Ref, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.known[ref]; known != nil {
		known.tried = at
	}
}
