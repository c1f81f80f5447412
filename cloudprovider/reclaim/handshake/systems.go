package handshake

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// callTimeout bounds one call to a job's system.
	callTimeout = 5 * time.Second
	// callPatience is how long a call that fails is made again, and callPatienceFraction the part of a short notice. After that
	// the job's pods are drained like any others.
	callPatience         = 20 * time.Second
	callPatienceFraction = 10
	// prepareFactor is how many times as long the system is asked to shrink or suspend the job, if there is the time: a job that
	// is not prepared may fail.
	prepareFactor = 3
)

// patience returns how long to go on with a system that fails.
func (l *loss) patience() time.Duration {
	patience := callPatience
	for _, pod := range l.leaving {
		patience = min(patience, pod.notice.Length()/callPatienceFraction)
	}
	return patience
}

// preparesUntil returns when to give up on a system that does not prepare the job.
func (l *loss) preparesUntil(now time.Time) time.Time {
	return notice.Later(notice.Earlier(now.Add(prepareFactor*l.patience()), l.timeLimit()), now.Add(l.patience()))
}

// systems calls job systems. What fails is tried again, within limits.
type systems struct {
	jobs  Jobs
	clock clock.WithTicker
}

// call calls the system of a job until it answers, says that it never will, or the time is over.
func (y *systems) call(ctx context.Context, party cluster.Party, action string, until time.Time, call func(context.Context) error) error {
	backoff := wait.Backoff{Duration: work.FirstRetry, Factor: 2, Steps: 10, Cap: slowestRetry}
	for {
		attempt, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(attempt)
		cancel()
		if err == nil || isFinal(err) || ctx.Err() != nil {
			return err
		}
		jobFailures.WithLabelValues(party.System, action).Inc()
		delay := backoff.Step()
		if !y.clock.Now().Add(delay).Before(until) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-y.clock.After(delay):
		}
	}
}

// isFinal returns whether the error says that the system cannot do what it was asked.
func isFinal(err error) bool {
	return errors.Is(err, jobs.ErrUnsupported) || errors.Is(err, jobs.ErrNoObject)
}

// isFailure returns whether the error is worth telling: not that the system cannot do it, nor that the process ends.
func isFailure(ctx context.Context, err error) bool {
	return err != nil && !isFinal(err) && ctx.Err() == nil
}

// warn reads the job and tells its owner by an Event. It returns the job as read, nil if it could not be.
func (y *systems) warn(ctx context.Context, party cluster.Party, warning jobs.Warning, until time.Time) *jobs.Job {
	var known *jobs.Job
	err := y.call(ctx, party, actionWarn, until, func(ctx context.Context) error {
		job, err := y.jobs.Get(ctx, party.Ref)
		if err != nil {
			return err
		}
		known = &job
		if job.Finished || job.Suspended {
			return nil
		}
		return y.jobs.Warn(ctx, job, warning)
	})
	if isFailure(ctx, err) {
		klog.FromContext(ctx).Error(err, "Could not tell the job's owner that nodes are lost; its pods were warned", "job", party)
	}
	return known
}

// cancelShrink has the job's system forget the workers that it has not begun to take out.
func (y *systems) cancelShrink(ctx context.Context, party cluster.Party, workers []string, until time.Time) {
	err := y.call(ctx, party, actionDecide, until, func(ctx context.Context) error { return y.jobs.CancelShrink(ctx, party.Ref, workers) })
	if err != nil && !errors.Is(err, jobs.ErrNoObject) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "The job's system may still take out workers that are evicted now", "job", party, "workers", workers)
	}
}

// tellOwner has the job read and its owner told, once for each request. It does not wait for that.
func (c *Controller) tellOwner(ctx context.Context, l loss, s state) {
	if !c.table.enter(l.party, s.id, Warning, nil) {
		return
	}
	reportMalformedAwaits(ctx, l.pods)
	until := c.config.Clock.Now().Add(l.patience())
	c.calls.Go(func() {
		job := c.systems.warn(ctx, l.party, jobs.Warning{ID: s.id, Deadline: s.deadline, IsMove: l.move}, until)
		c.table.warned(l.party, s.id, job)
		c.queue.Add(l.party)
	})
}
