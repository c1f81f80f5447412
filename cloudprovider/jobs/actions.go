package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Warn tells the system that the job is about to lose nodes. Its pods must have been annotated before.
func (r *Registry) Warn(ctx context.Context, job Job, warning Warning) error {
	return r.act(ctx, job, action{
		name: "warn", reason: ReasonWarned, always: true,
		message: fmt.Sprintf("Nodes of the job are released from %s; checkpoint %s is asked for", warning.Deadline.UTC().Format(time.RFC3339), warning.ID),
		do:      func(ctx context.Context, adapter Adapter, job Job) error { return adapter.Warn(ctx, job, warning) },
	})
}

// Shrink has the job go on without the named worker pods, before they are evicted. The error is a BusyError where the
// job is being scaled at the moment: to be called again.
func (r *Registry) Shrink(ctx context.Context, job Job, pods []string) error {
	return r.act(ctx, job, action{
		name: "shrink", reason: ReasonShrunk, fresh: true,
		message: fmt.Sprintf("Goes on without %d workers whose nodes are released", len(pods)),
		do: func(ctx context.Context, adapter Adapter, job Job) error {
			r.scheduleRefresh(adapter, job.Ref)
			return adapter.Shrink(ctx, job, pods)
		},
	})
}

// shrinker is an adapter whose system carries out a Shrink in its own time.
type shrinker interface {
	// Shrinking names those of the pods that are still to be taken out of the job.
	Shrinking(ctx context.Context, job Job, pods []string) ([]string, error)
	// CancelShrink takes back what was asked for these pods and has not begun.
	CancelShrink(ctx context.Context, job types.NamespacedName, pods []string) error
}

// Shrinking names those of the pods that the job's system has yet to take out of the job, after a Shrink: sorted, and none for
// jobs that just cope with the loss.
func (r *Registry) Shrinking(ctx context.Context, ref Ref, pods []string) ([]string, error) {
	adapter, err := r.adapter(ref)
	if err != nil {
		return nil, err
	}
	shrinker, ok := adapter.(shrinker)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	job, err := r.read(ctx, adapter, ref)
	if err != nil {
		return nil, err
	}
	return shrinker.Shrinking(ctx, job, pods)
}

// CancelShrink takes back what Shrink has asked for these pods, where the job's system has not begun with it. It is to be
// called before pods go in another way: a system that is told to take out pods that are gone may take out others.
func (r *Registry) CancelShrink(ctx context.Context, ref Ref, pods []string) error {
	adapter, err := r.adapter(ref)
	if err != nil {
		return err
	}
	shrinker, ok := adapter.(shrinker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	if err := shrinker.CancelShrink(ctx, ref.NamespacedName, pods); err != nil {
		return fmt.Errorf("cancelling the shrink of %s: %w", ref, absent(err))
	}
	return nil
}

// Suspend ends all pods of the job without a failure counted, through Kueue where that admits it. A job that somebody else has
// suspended is left as it is. The error wraps ErrUnsupported where the system cannot do it, or where it is Kueue's business.
func (r *Registry) Suspend(ctx context.Context, job Job, reason Reason) error {
	event, message := ReasonSuspended, "Suspended: too few workers would outlive the reclaim of their nodes"
	if reason == ReasonMaxWait {
		event, message = ReasonTimedOut, "Suspended: there was no capacity for it within its maximum wait"
	}
	return r.act(ctx, job, action{
		name: "suspend", reason: event, message: message, fresh: true,
		do: func(ctx context.Context, adapter Adapter, job Job) error {
			if workload, err := r.kueue.workloadOf(ctx, job); err != nil {
				return err
			} else if workload != nil {
				return r.kueue.suspend(ctx, adapter, workload, job, reason)
			}
			return adapter.Suspend(ctx, job, reason)
		},
	})
}

// Resume undoes Suspend, with so many workers where the system can choose. A job of Kueue's runs again when that admits it.
func (r *Registry) Resume(ctx context.Context, job Job, workers int) error {
	return r.act(ctx, job, action{
		name: "resume", reason: ReasonResumed, fresh: true,
		message: fmt.Sprintf("Resumed: there is capacity for %d workers", workers),
		do: func(ctx context.Context, adapter Adapter, job Job) error {
			if workload, err := r.kueue.workloadOf(ctx, job); err != nil {
				return err
			} else if workload != nil {
				return r.kueue.resume(ctx, adapter, workload, job)
			}
			return adapter.Resume(ctx, job, workers)
		},
	})
}

// Grow brings a job that was shrunk to so many workers. The error is a BusyError where the job is being scaled.
func (r *Registry) Grow(ctx context.Context, job Job, workers int) error {
	return r.act(ctx, job, action{
		name: "grow", reason: ReasonGrown, fresh: true,
		message: fmt.Sprintf("Grows to %d workers", workers),
		do:      func(ctx context.Context, adapter Adapter, job Job) error { return adapter.Grow(ctx, job, workers) },
	})
}

// action is one call to an adapter, and what is told about it.
type action struct {
	name, reason, message string
	// always: the Event is due even where the system needed nothing.
	always bool
	// fresh: what there is to do depends on what the object says now.
	fresh bool
	do    func(context.Context, Adapter, Job) error
}

func (r *Registry) act(ctx context.Context, job Job, action action) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	err := r.attempt(ctx, &job, action)
	jobActions.WithLabelValues(job.System, action.name, outcome(err)).Inc()
	if err != nil && !errors.Is(err, ErrUnchanged) {
		return fmt.Errorf("%s %s: %w", action.name, job.Ref, err)
	}
	if job.Object != nil && (err == nil || action.always) {
		r.config.Recorder.Event(job.Object, eventType(action.reason), action.reason, action.message)
	}
	return nil
}

func (r *Registry) attempt(ctx context.Context, job *Job, action action) error {
	adapter, err := r.adapter(job.Ref)
	if err != nil {
		return err
	}
	if action.fresh {
		uid := job.UID
		if *job, err = r.freshen(ctx, adapter, *job); err != nil {
			return err
		}
		if uid != "" && uid != job.UID {
			return fmt.Errorf("another job has its name by now: %w", ErrNoObject)
		}
		adapter = r.byName[job.System] // that of its parent, for a job that was not read with Get
	}
	return absent(action.do(ctx, adapter, *job))
}

// freshen reads the job again, and keeps its name for the metrics where that fails.
func (r *Registry) freshen(ctx context.Context, adapter Adapter, job Job) (Job, error) {
	now, err := r.read(ctx, adapter, job.Ref)
	if err != nil {
		return Job{Ref: job.Ref}, err
	}
	return now, nil
}
