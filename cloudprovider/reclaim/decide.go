package reclaim

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// DefaultReplaceWait is how long a drain waits for the replacement to be on its way.
	DefaultReplaceWait = 30 * time.Second

	jobWorkers = 32

	// askTimeout bounds one call to a job's system.
	askTimeout = 5 * time.Second
	// askPatience is how long a system that fails is asked again. After that its job's pods are drained like any others.
	askPatience = 20 * time.Second
	// askPatienceFraction of a notice that is shorter than usual.
	askPatienceFraction = 10
	// prepareFactor is how many times as long it is asked to shrink or suspend the job, where there is the time: a job that
	// it does not prepare may fail.
	prepareFactor = 3

	// suspendWait is how long the system of a suspended job is left to end its pods by itself: those that are evicted
	// before count as failed, and a few of them may be the end of the job. Seconds will do, but not where a controller has
	// hundreds of jobs to suspend at once.
	suspendWait = 2 * time.Minute
	// shrinkCheck is how often a system is asked that takes pods out of a job whether it still does. When the pods are gone
	// nobody asks, so that this is how late it is noticed that it gave up.
	shrinkCheck = 10 * time.Second

	// replaceCheck is how often it is asked whether the replacement is on its way: nobody tells.
	replaceCheck = 500 * time.Millisecond
)

// Actions on jobs, as in the metrics.
const (
	actionWarn   = "warn"
	actionStop   = "stop"
	actionDecide = "decide"
)

// syncJob takes the next step with a job that loses Nodes: warn → wait for the word → shrink or suspend → let the drains
// begin. It goes by all Nodes that are reclaimed, never by one.
func (c *Controller) syncJob(ctx context.Context, ref party) error {
	if c.marksWaiting(marksPatience) {
		c.handshakes.queue.AddAfter(ref, marksFirst)
		return nil
	}
	l := c.lossOf(ref)
	if len(l.doomed) == 0 {
		return c.closeRound(ctx, l)
	}
	r := c.openRound(l)
	unwarned := c.warn(ctx, l, r)
	c.awaitOn(l, r)
	if unwarned != nil && c.Clock.Since(r.seen) < l.warnPatience() {
		return unwarned
	}
	c.tell(ctx, l, r)
	r = c.hearOut(ctx, l, r)
	if reason, until := c.waitsFor(l, r); reason != "" {
		klog.FromContext(ctx).V(2).Info("The job's pods stay for now", "job", ref, "reason", reason, "until", until)
		c.handshakes.queue.AddAfter(ref, until.Sub(c.Clock.Now()))
		return nil
	}
	if !r.decided {
		c.decide(ctx, l, r)
	} else if !r.shrinking {
		c.announce(l, r)
	}
	return nil
}

// hearOut notes the word when it has come.
func (c *Controller) hearOut(ctx context.Context, l loss, r round) round {
	if r.word || !c.heard(l, r) {
		return r
	}
	r, _ = c.handshakes.change(l.ref, r.id, func(r *round) { r.word = true })
	noticeToWord.WithLabelValues(l.ref.System).Observe(c.Clock.Since(l.firstSeen()).Seconds())
	checkpoints.WithLabelValues(l.ref.System, checkpointSaved).Inc()
	klog.FromContext(ctx).Info("The job's work is saved", "job", l.ref, "request", r.id)
	c.event(l.object(r), ReasonSaved, "The work is saved (request %s), %s before the release", r.id, r.deadline.Sub(c.Clock.Now()).Round(time.Second))
	return r
}

// waitsFor says why the job's pods may not go yet, and when to look again; empty where nothing stands against it.
func (c *Controller) waitsFor(l loss, r round) (reason string, until time.Time) {
	now, budget := c.Clock.Now(), l.budget()
	switch {
	case !r.decided && !l.until.IsZero():
		return "nothing has confirmed the notice", l.until
	case r.decided || !now.Before(budget):
		return "", time.Time{}
	case !r.told:
		return "the job's system is being warned", budget
	case r.job != nil && (r.job.Suspended || r.job.Finished):
		return "", time.Time{}
	}
	if until := l.awaits(r); !r.word && now.Before(until) {
		return "the acknowledgement that a checkpoint is saved has not come", until
	}
	if r.word && l.restartsInPlace() {
		return "", time.Time{} // it has ended or will, and would begin anew on a Node that dies
	}
	if c.isReplaced(l) {
		return "", time.Time{}
	}
	if until := earlier(l.firstSeen().Add(c.ReplaceWait), budget); now.Before(until) {
		return "the replacement is not on its way", earlier(now.Add(replaceCheck), until)
	}
	return "", time.Time{}
}

func (l *loss) restartsInPlace() bool {
	for _, pod := range l.doomed {
		if pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
			return true
		}
	}
	return false
}

// firstSeen is when the first of the notices was.
func (l *loss) firstSeen() (first time.Time) {
	for _, pod := range l.doomed {
		if seen := pod.notice.FirstSeen; first.IsZero() || seen.Before(first) {
			first = seen
		}
	}
	return first
}

// patience is how long to go on with a system that fails.
func (l *loss) patience() time.Duration {
	patience := askPatience
	for _, pod := range l.doomed {
		length := pod.notice.Deadline.Sub(pod.notice.FirstSeen)
		patience = min(patience, length/askPatienceFraction)
	}
	return max(patience, 0)
}

// preparesUntil is when to give up on a system that does not prepare for the loss.
func (l *loss) preparesUntil(now time.Time) time.Time {
	until := earlier(now.Add(prepareFactor*l.patience()), l.budget())
	if least := now.Add(l.patience()); until.Before(least) {
		return least
	}
	return until
}

// warnPatience is the least of those of the doomed pods.
func (l *loss) warnPatience() time.Duration {
	patience := warnPatience
	for _, pod := range l.doomed {
		patience = min(patience, pod.notice.warnPatience())
	}
	return patience
}

// object is what to write an Event on: the job, or else one of the pods that it loses.
func (l *loss) object(r round) runtime.Object {
	if r.job != nil && r.job.Object != nil {
		return r.job.Object
	}
	return l.doomed[0].Pod
}

// decide has the job's system prepare for the loss, once in a round, and sets when the pods may be evicted.
func (c *Controller) decide(ctx context.Context, l loss, r round) {
	if r.blocked || !c.handshakes.begin(l.ref, r.id, func(r *round) *bool { return &r.deciding }) {
		return
	}
	c.handshakes.change(l.ref, r.id, func(r *round) { r.spared = uids(l.doubtful) })
	if !r.word && !l.awaits(r).IsZero() {
		checkpoints.WithLabelValues(l.ref.System, checkpointMissed).Inc()
		c.event(l.object(r), ReasonUnsaved, "No acknowledgement that the work is saved (request %s) came in time; going on without", r.id)
	}
	c.handshakes.asking.Go(func() {
		told := c.stopFirst(ctx, l, r)
		until := l.preparesUntil(c.Clock.Now())
		var p preparation
		err := c.ask(ctx, l.ref, actionDecide, until, func(ctx context.Context) (err error) {
			p, err = c.prepare(ctx, l.ref, told)
			return err
		})
		if err != nil && !errors.Is(err, jobs.ErrNoObject) && !errors.Is(err, jobs.ErrUnsupported) && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The job's system did not prepare for the loss of pods; they are evicted all the same", "job", l.ref)
			c.event(l.object(r), ReasonUnprepared, "The job could not be prepared for the loss of pods, which are evicted all the same: %v", err)
		}
		latest := l.latestRelease(c.Clock.Now())
		if err != nil {
			c.cancelShrink(ctx, l.ref, l.doomedWorkers(), earlier(latest, c.Clock.Now().Add(askTimeout)))
		}
		c.settle(l, r, p, latest)
		if len(p.shrinking) > 0 {
			c.awaitShrink(ctx, l.ref, r.id, p.shrinking, latest)
		}
	})
}

// latestRelease is until when the pods can be left to the job's system, so that there is time to evict them.
func (l *loss) latestRelease(now time.Time) time.Time {
	latest, soonest := l.budget().Add(l.patience()/2), now.Add(lateGrace)
	if latest.Before(soonest) {
		return soonest
	}
	return latest
}

// settle ends the decision. The pods are left to the job's system for a while.
func (c *Controller) settle(l loss, r round, p preparation, latest time.Time) {
	h := &c.handshakes
	h.mu.Lock()
	if current, open := h.rounds[l.ref]; open && current.id == r.id && p.doubtful {
		current.deciding = false
	} else if open && current.id == r.id {
		current.decided, current.shrinking = true, len(p.shrinking) > 0
		current.release = earlier(c.Clock.Now().Add(p.leave), latest)
	} else if open {
		current.blocked = false
	}
	h.mu.Unlock()
	h.queue.Add(l.ref)
}

// preparation is what the job's system does for a job that loses pods.
type preparation struct {
	// leave is how long it is busy ending pods.
	leave time.Duration
	// shrinking are the workers that it takes out of the job, in its own time: with an error, not all of them.
	shrinking []string
	// doubtful says that nothing was decided, since nothing is lost for certain any more.
	doubtful bool
}

// prepare shrinks the job where enough of it survives, and else suspends it. One that was told to stop is suspended whatever
// survives: its launcher, by which the loss was known, has ended, and only what is held is resumed.
func (c *Controller) prepare(ctx context.Context, ref party, told bool) (preparation, error) {
	job, err := c.Jobs.Get(ctx, ref.Ref)
	if err != nil || job.Finished {
		return preparation{}, err
	}
	if job.Suspended {
		return preparation{leave: suspendWait}, nil
	}
	if told {
		return c.suspend(ctx, job)
	}
	if ref.pod != "" && job.Min == 0 {
		return preparation{}, nil // its job copes with its loss
	}
	l := c.lossOf(ref.whole())
	if !l.until.IsZero() {
		return preparation{doubtful: true}, nil // what was lost for certain is gone, or was denied meanwhile
	}
	if l.isTooSmallFor(job) {
		return c.suspend(ctx, job)
	}
	workers := l.doomedWorkers()
	if len(workers) == 0 || ref.pod != "" {
		return preparation{}, nil
	}
	err = c.Jobs.Shrink(ctx, job, workers)
	busy := (*jobs.BusyError)(nil)
	if err != nil && !errors.As(err, &busy) {
		return preparation{}, err
	}
	leaving, asked := c.Jobs.Shrinking(ctx, ref.Ref, workers) // with what an earlier leader asked for, where it is busy
	if len(leaving) == 0 && asked == nil {
		return preparation{}, err
	}
	if busy != nil && len(leaving) < len(workers) {
		return preparation{shrinking: workers}, err // nobody takes out the others yet: it is to be asked again
	}
	return preparation{shrinking: workers}, nil // where it did not say, it will be known later
}

func (c *Controller) suspend(ctx context.Context, job jobs.Job) (preparation, error) {
	if err := c.Jobs.Suspend(ctx, job, jobs.ReasonReclaim); err != nil {
		return preparation{}, err
	}
	return preparation{leave: suspendWait}, nil
}

// awaitShrink leaves the workers to the job's system until it has taken them out of the job, or given up, or there is no more
// time. What it has not begun with by then is taken back before the first of them is evicted.
func (c *Controller) awaitShrink(ctx context.Context, ref party, id string, workers []string, until time.Time) {
	for {
		wait := min(shrinkCheck, until.Sub(c.Clock.Now()))
		select {
		case <-ctx.Done():
			return
		case <-c.Clock.After(wait):
		}
		if r, open := c.handshakes.round(ref); !open || r.id != id {
			return // the workers are gone, or the next round has others too, and looks after all
		}
		if !c.Clock.Now().Before(until) {
			break
		}
		attempt, cancel := context.WithTimeout(ctx, askTimeout)
		leaving, err := c.Jobs.Shrinking(attempt, ref.Ref, workers)
		cancel()
		if err == nil && len(leaving) == 0 || errors.Is(err, jobs.ErrNoObject) {
			break
		}
	}
	c.cancelShrink(ctx, ref, workers, c.Clock.Now().Add(askTimeout))
	c.handshakes.change(ref, id, func(r *round) { r.shrinking, r.release = false, c.Clock.Now() })
	c.handshakes.queue.Add(ref)
}

// cancelShrink has the job's system forget the workers that it has not begun to take out.
func (c *Controller) cancelShrink(ctx context.Context, ref party, workers []string, until time.Time) {
	err := c.ask(ctx, ref, actionDecide, until, func(ctx context.Context) error { return c.Jobs.CancelShrink(ctx, ref.Ref, workers) })
	if err != nil && !errors.Is(err, jobs.ErrNoObject) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The job's system may still take out workers that are evicted now", "job", ref, "workers", workers)
	}
}

// isTooSmallFor says whether the job cannot go on with what survives.
func (l *loss) isTooSmallFor(job jobs.Job) bool {
	return l.launcherIsDoomed() || l.survivors(job) < job.Min
}

func (l *loss) launcherIsDoomed() bool {
	for _, pod := range l.doomed {
		if pod.role == jobs.RoleLauncher {
			return true
		}
	}
	return false
}

// survivors counts hosts only where they train: where there are more workers and hosts than the job asks for workers, they
// do not.
func (l *loss) survivors(job jobs.Job) int {
	if l.training > job.Replicas {
		return l.workers
	}
	return l.workers + l.hosts
}

// doomedWorkers are the names of those that are not on their way out yet.
func (l *loss) doomedWorkers() (names []string) {
	for _, pod := range l.doomed {
		if pod.role == jobs.RoleWorker && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// ask calls a job's system until it answers, says that it never will, or the time is over.
func (c *Controller) ask(ctx context.Context, ref party, action string, until time.Time, call func(context.Context) error) error {
	backoff := wait.Backoff{Duration: retryFirst, Factor: 2, Steps: 10, Cap: retryMost}
	for {
		attempt, cancel := context.WithTimeout(ctx, askTimeout)
		err := call(attempt)
		cancel()
		if err == nil || errors.Is(err, jobs.ErrUnsupported) || errors.Is(err, jobs.ErrNoObject) || ctx.Err() != nil {
			return err
		}
		askFailures.WithLabelValues(ref.System, action).Inc()
		delay := backoff.Step()
		if !c.Clock.Now().Add(delay).Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.Clock.After(delay):
		}
	}
}

// announce lets the drains go on: all at the release, and later those of pods that waited for others of the job to go.
func (c *Controller) announce(l loss, r round) {
	if c.handshakes.begin(l.ref, r.id, func(r *round) *bool { return &r.announced }) {
		for node := range l.nodes() {
			c.drains.AddAfter(node, r.release.Sub(c.Clock.Now()))
		}
		return
	}
	for _, node := range l.latecomers() {
		c.drains.Add(node)
	}
}
