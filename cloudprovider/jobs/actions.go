package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Reasons of the Events on jobs.
const (
	// ReasonWarned: nodes of the job are reclaimed, a checkpoint is asked for.
	ReasonWarned = "SpotJobWarned"
	// ReasonShrunk: the job was told to go on without the workers that it loses.
	ReasonShrunk = "SpotJobShrunk"
	// ReasonSuspended: the job was suspended for a reclaim.
	ReasonSuspended = "SpotJobSuspended"
	// ReasonStopped: the job was told to save its work and to stop, before it is suspended.
	ReasonStopped = "SpotJobStopped"
	// ReasonResumed: a suspended job runs again.
	ReasonResumed = "SpotJobResumed"
	// ReasonResumedByOther: somebody else resumed a job that the autoscaler had suspended.
	ReasonResumedByOther = "SpotJobResumedByOther"
	// ReasonUnheldByOther: somebody else removed what says that the job is held.
	ReasonUnheldByOther = "SpotJobUnheldByOther"
	// ReasonQueued: a job that was suspended waits in its queue of Kueue again.
	ReasonQueued = "SpotJobQueued"
	// ReasonGrown: a job that was shrunk gets workers again.
	ReasonGrown = "SpotJobGrown"
	// ReasonAnnotationMalformed: annotations of the job cannot be read, and are ignored.
	ReasonAnnotationMalformed = "SpotAnnotationMalformed"
	// ReasonTimedOut: the job was suspended because its maximum wait was over.
	ReasonTimedOut = "SpotJobTimedOut"
)

func eventType(reason string) string {
	switch reason {
	case ReasonResumed, ReasonQueued, ReasonGrown:
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// Warn records that the job is about to lose nodes. Its pods have been annotated before, which no system needs to be told.
func (r *Registry) Warn(ctx context.Context, job Job, warning Warning) error {
	what := "Nodes of the job are released from %s; checkpoint %s is asked for"
	if warning.IsMove {
		what = "Spot instances are ready for the job to move to until %s; checkpoint %s is asked for"
	}
	return r.act(ctx, job, action{
		name: "warn", event: ReasonWarned, isAlwaysRecorded: true,
		message: fmt.Sprintf(what, warning.Deadline.UTC().Format(time.RFC3339), warning.ID),
		do:      func(context.Context, System, Job) (bool, error) { return false, nil },
	})
}

// Shrink has the job go on without the named worker pods, before they are evicted. The error is a BusyError where the job is
// being scaled at the moment: call it again.
func (r *Registry) Shrink(ctx context.Context, job Job, pods []string) error {
	return r.act(ctx, job, action{
		name: "shrink", event: ReasonShrunk, readsAgain: true,
		message: fmt.Sprintf("Goes on without %d workers whose nodes are released", len(pods)),
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			if _, ok := system.(HostsRefresher); ok {
				r.hosts.add(job.Ref)
			}
			if resizer, ok := system.(Resizer); ok {
				return resizer.Shrink(ctx, job, pods)
			}
			return false, nil
		},
	})
}

// Shrinking returns those of the pods that the job's system has yet to take out of the job after a Shrink, sorted. There are
// none for jobs that lose workers without being asked.
func (r *Registry) Shrinking(ctx context.Context, ref Ref, pods []string) ([]string, error) {
	system, err := r.system(ref)
	if err != nil {
		return nil, err
	}
	resizer, ok := system.(Resizer)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	job, err := r.get(ctx, system, ref)
	if err != nil {
		return nil, err
	}
	return resizer.Shrinking(ctx, job, pods)
}

// CancelShrink withdraws what Shrink has asked for these pods, where the job's system has not begun with it. It is to be
// called before pods are evicted all the same: a system that takes out pods that are gone may take out others.
func (r *Registry) CancelShrink(ctx context.Context, ref Ref, pods []string) error {
	return r.cancelShrinks(ctx, ref, func(ctx context.Context, resizer Resizer) error {
		return resizer.CancelShrink(ctx, ref.NamespacedName, pods)
	})
}

// CancelStaleShrinks withdraws what Shrink has asked for pods that are gone by now, where the job's system has not begun with
// it. A former leader may have left it behind. Pods of the same names that were made since are others. The error is a BusyError if
// that has to be looked at again, because some of the pods still exist.
func (r *Registry) CancelStaleShrinks(ctx context.Context, ref Ref) error {
	return r.cancelShrinks(ctx, ref, func(ctx context.Context, resizer Resizer) error {
		return resizer.CancelStaleShrinks(ctx, ref.NamespacedName)
	})
}

// cancelShrinks calls the job's system if it is one that has to be asked to shrink jobs.
func (r *Registry) cancelShrinks(ctx context.Context, ref Ref, call func(context.Context, Resizer) error) error {
	system, err := r.system(ref)
	if err != nil {
		return err
	}
	resizer, ok := system.(Resizer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	if err := call(ctx, resizer); err != nil {
		return fmt.Errorf("cancel the shrink of %s: %w", ref, withErrNoObject(err))
	}
	return nil
}

// Suspend ends all pods of the job without a failure counted, through Kueue where that admits the job. A job that somebody
// else has suspended is left as it is. The error wraps ErrUnsupported where the system cannot suspend the job, or where only
// Kueue may.
func (r *Registry) Suspend(ctx context.Context, job Job, reason HoldReason) error {
	event, message := ReasonSuspended, "Suspended: too few workers would outlive the reclaim of their nodes"
	if reason == HeldForMaxWait {
		event, message = ReasonTimedOut, "Suspended: there was no capacity for it within its maximum wait"
	}
	return r.act(ctx, job, action{
		name: "suspend", event: event, message: message, readsAgain: true,
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			if workload, err := r.kueue.workloadOf(ctx, job); err != nil {
				return false, err
			} else if workload != nil {
				return r.kueue.suspend(ctx, system.Resource(), workload, job, reason)
			}
			suspender, ok := system.(Suspender)
			if !ok {
				return false, ErrUnsupported
			}
			return suspender.Suspend(ctx, job, reason)
		},
	})
}

// Resume undoes Suspend, with so many workers where the system can choose. A job that Kueue admits runs again when Kueue has
// quota for it. The error is a BusyError where its system has yet to suspend it, or where a job that ran is suspended, or held anew, by now.
func (r *Registry) Resume(ctx context.Context, job Job, workers int) error {
	resume := action{
		name: "resume", event: ReasonResumed, readsAgain: true, isLong: true,
		message: fmt.Sprintf("Resumed: there is capacity for %d workers", workers),
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			return r.kueue.undoSuspend(ctx, system, job, workers)
		},
	}
	if job.StopRequested && !job.Stopped && !job.Suspended { // it was told to stop, and goes on: only the held label is left to remove
		resume.name, resume.event = "unhold", ""
	}
	if !job.Suspended {
		resume.do = func(ctx context.Context, system System, now Job) (bool, error) {
			return r.kueue.unhold(ctx, system, job, now, workers)
		}
	}
	return r.act(ctx, job, resume)
}

// Grow brings a job that was shrunk to so many workers, and removes the held label from one that has all that it had. The error is a
// BusyError where the job is being scaled, or has lost workers since that was decided.
func (r *Registry) Grow(ctx context.Context, job Job, workers int) error {
	grow := action{
		name: "grow", event: ReasonGrown, readsAgain: true, isLong: true,
		message: fmt.Sprintf("Grows to %d workers", workers),
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			if resizer, ok := system.(Resizer); ok {
				return resizer.Grow(ctx, job, workers)
			}
			return false, nil
		},
	}
	if job.Replicas >= workers { // only the held label is left to remove
		grow.name, grow.event = "unhold", ""
		growIt := grow.do
		grow.do = func(ctx context.Context, system System, job Job) (bool, error) {
			if job.Replicas < workers {
				return false, errChanged
			}
			return growIt(ctx, system, job)
		}
	}
	return r.act(ctx, job, grow)
}

// GrowBeyond has a job that runs ask for so many workers, more than its owner wrote. Nothing is done to a job that is held, has ended, or is
// not to grow any more. The error is a BusyError where the job is being scaled.
func (r *Registry) GrowBeyond(ctx context.Context, job Job, workers int) error {
	return r.act(ctx, job, action{
		name: "grow-beyond", event: ReasonGrown, readsAgain: true,
		message: fmt.Sprintf("Grows to %d workers: there is capacity for more than it asks for", workers),
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			if err := checkGrowth(system, job); err != nil {
				return false, err
			}
			growth, _ := job.Growth()
			workers := min(workers, job.Max)
			if growth == GrowNever || job.HeldAs() != "" || job.Suspended || job.Finished || job.Replicas >= workers {
				return false, nil
			}
			if _, ok := system.(HostsRefresher); ok {
				r.hosts.add(job.Ref)
			}
			return system.(Grower).GrowBeyond(ctx, job, workers)
		},
	})
}

// checkGrowth returns why the job does not get more workers than it asks for, nil if it may, or is not to.
func checkGrowth(system System, job Job) error {
	growth, err := job.Growth()
	grower, ok := system.(Grower)
	switch {
	case err != nil || growth == GrowNever:
		return err
	case !ok:
		return fmt.Errorf("%s cannot add workers to a job that runs: %w", system.Name(), ErrNotGrown)
	case IsQueued(job.Object):
		return fmt.Errorf("it is in a queue of Kueue, which would suspend it to admit it anew: %w", ErrNotGrown)
	}
	if err := grower.CheckGrowth(job); err != nil {
		return errors.Join(ErrNotGrown, err)
	}
	return nil
}

// Unhold removes the held label and its annotations from a job that has ended, or that runs although it was suspended. Of the latter the
// owner is told, and it is left alone: who sets back each time what suspends it, such as Argo CD, would win any fight over it. The error is a
// BusyError where it has been suspended, or held anew, since that was decided.
func (r *Registry) Unhold(ctx context.Context, job Job) error {
	if !job.Finished {
		return r.act(ctx, job, action{
			name: "accept-resumed", event: ReasonResumedByOther, readsAgain: true,
			message: "Runs, although the autoscaler has suspended it and has not resumed it: it is left alone. " +
				"If nobody resumed it by hand, a tool such as Argo CD may set back what suspends it: have the tool ignore that field (ignoreDifferences)",
			do: func(ctx context.Context, system System, now Job) (bool, error) {
				now.Max = now.Replicas // the workers that it has are all that its owner wants
				return r.kueue.unhold(ctx, system, job, now, now.Replicas)
			},
		})
	}
	return r.act(ctx, job, action{
		name: "unhold", readsAgain: true,
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			if !job.Finished || job.HeldAs() == "" {
				return false, nil
			}
			patch := UnholdPatch().SetAnnotation(api.AnnotationStopRequested, nil).SetAnnotation(api.AnnotationHeldRestarts, nil)
			err := r.config.Cluster.PatchJob(ctx, system.Resource(), job, patch)
			return err == nil, err
		},
	})
}

// Stop has a job save its work and end by itself, where it was submitted so as to be told, and returns how many of its pods
// answered: none where it was not. The job is to be suspended once it has ended. Stop may be called more than once.
func (r *Registry) Stop(ctx context.Context, job Job) (heard int, err error) {
	err = r.act(ctx, job, action{
		name: "stop", event: ReasonStopped, readsAgain: true,
		message: "Told to save its work and to stop: too few workers would outlive the reclaim of their nodes",
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			stopper, ok := system.(Stopper)
			if !ok || job.Finished || job.Suspended || job.Stopped || IsQueued(job.Object) {
				return false, nil
			}
			heard, err = stopper.Stop(ctx, job)
			return heard > 0, err
		},
	})
	return heard, err
}

// refreshHosts has the launcher of a job see which workers there are.
func (r *Registry) refreshHosts(ctx context.Context, ref Ref) error {
	system, err := r.system(ref)
	if err != nil {
		return nil // it was uninstalled meanwhile
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	refresher, ok := system.(HostsRefresher)
	if !ok {
		return nil
	}
	return refresher.RefreshHosts(ctx, ref)
}

// action is one call to a system, and the Event that records it, if it has one.
type action struct {
	name, event, message string
	// isAlwaysRecorded is true if there is an Event even where the system had nothing to do.
	isAlwaysRecorded bool
	// readsAgain is true if the call depends on what the object says now.
	readsAgain bool
	// isLong is true if the call may take longCall times as long: it takes many requests, and if it fails on the way, the job stays suspended or small
	// until it is tried again minutes later.
	isLong bool
	do     func(context.Context, System, Job) (changed bool, err error)
}

// longCall is how many times as long a call may take that isLong.
const longCall = 4

func (r *Registry) act(ctx context.Context, job Job, action action) error {
	timeout := r.config.Timeout
	if action.isLong {
		timeout *= longCall
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	job, changed, err := r.attempt(ctx, job, action)
	jobActions.WithLabelValues(job.System, action.name, outcome(changed, err)).Inc()
	if err != nil {
		return fmt.Errorf("%s %s: %w", action.name, job.Ref, err)
	}
	if action.event != "" && job.Object != nil && (changed || action.isAlwaysRecorded) {
		r.config.Recorder.Event(job.Object, eventType(action.event), action.event, action.message)
	}
	return nil
}

// attempt returns the job as it was read last; where that fails, no more than its Ref.
func (r *Registry) attempt(ctx context.Context, job Job, action action) (now Job, changed bool, err error) {
	system, err := r.system(job.Ref)
	if err != nil {
		return job, false, err
	}
	if action.readsAgain {
		uid := job.UID
		if now, err = r.get(ctx, system, job.Ref); err != nil {
			return Job{Ref: job.Ref}, false, err
		}
		if job = now; uid != "" && uid != job.UID {
			return job, false, fmt.Errorf("another job has its name by now: %w", ErrNoObject)
		}
		system = r.byName[job.System] // that of its parent, for a job that was not read with Get
	}
	changed, err = action.do(ctx, system, job)
	return job, changed, withErrNoObject(err)
}
