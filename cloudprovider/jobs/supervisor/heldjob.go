package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

const (
	// settleTime is how long a job is held at least before its held label may be taken for out of date: it is written before
	// the job is suspended or shrunk. Some systems take their time to suspend a job, so that while it has no new pods,
	// settleWithoutPodsTime has to pass before it is taken for one that somebody has resumed.
	settleTime, settleWithoutPodsTime = 15 * time.Second, 5 * time.Minute
	// startTime is how long a job is left alone after it was resumed or grown, until its pods exist.
	startTime = 15 * time.Second
	// staleShrinkEvery is how often a job is checked for a request to shrink it whose workers are all gone, until its system has
	// begun with every such request.
	staleShrinkEvery = 10 * time.Second
	// searchTime is for how long capacity is looked for in vain; then there is a pause, which doubles from firstPause to
	// lastPause as long as nothing changes.
	searchTime = 30 * time.Second
	firstPause = 15 * time.Second
	lastPause  = 2 * time.Minute
	// growTogetherTime is how long the first workers by which a job could be grown wait for others that are coming. Each change
	// of its size costs a job some training.
	growTogetherTime = 2 * time.Minute
)

// Reasons of Events on jobs that stay held.
const (
	// ReasonTooLarge: there could be no capacity for all its pods, whatever were bought.
	ReasonTooLarge = "SpotJobTooLarge"
	// ReasonOverQuota: its namespace may not have all its pods, or its ClusterQueue has no quota for them.
	ReasonOverQuota = "SpotJobOverQuota"
	// ReasonMalformed: it cannot be read.
	ReasonMalformed = "SpotJobMalformed"
)

// actionKind is what is to be done to a job.
type actionKind int

const (
	actionResume actionKind = iota
	actionGrow
	// actionGrowBeyond adds workers to a job that is not held.
	actionGrowBeyond
	// actionUnhold removes the held label of a job that somebody has resumed, that has all its workers again, or that has ended.
	actionUnhold
	// actionQueue has a job wait in its queue of Kueue again, without capacity.
	actionQueue
	// actionSuspend suspends a job that has ended because it was asked to stop, where the leader that asked did not come to it.
	actionSuspend
)

// action is what is due to a job.
type action struct {
	kind    actionKind
	workers int
}

// heldJob is a job that is held, and what is tried to resume or grow it.
type heldJob struct {
	job jobs.Job
	// heldAs is the value of api.LabelHeld, sinceText that of api.AnnotationHeldSince, since the same as a time: when it was
	// first seen where that is malformed.
	heldAs    jobs.HeldAs
	sinceText string
	since     time.Time
	// gang is the pods for which the loop looks for capacity; nil while nothing is tried.
	gang *gang
	// noCapacitySince is since when there is no capacity for the gang, zero while there is.
	noCapacitySince time.Time
	// noQuotaSince is since when its queue of Kueue has no quota left for it, and quotaSince since when it has; the other one is zero.
	noQuotaSince, quotaSince time.Time
	// Until pausedUntil nothing is tried; pause is how long the last pause was.
	pausedUntil time.Time
	pause       time.Duration
	// pausedFor is why nothing is tried, until it is logged.
	pausedFor error
	due       *action
	// wasSuspended is whether this process has seen the job suspended, and triedToResume whether it has tried to resume it while it was.
	wasSuspended, triedToResume bool
	// releasedAt is when an action has removed what says that the job is held, or may have; zero if none has. If the job is still held startTime
	// later, the action has not removed it, and whoever does so then is somebody else.
	releasedAt time.Time
	// mayHaveStaleShrinks is true from when the job was shrunk until no request to shrink it waits for its system.
	mayHaveStaleShrinks bool
	// growth is whether a job that is not held is to get more workers than it asks for.
	growth jobs.Growth
	// smallerSince is since when a job that is not held has had fewer workers than it was grown to, zero while it has them.
	smallerSince time.Time
	// eventReason is that of the last Event that said why the job stays held, empty before.
	eventReason string
}

// update takes in what the job's object says now. Where the job is held anew, what was tried before is forgotten.
func (j *heldJob) update(job jobs.Job, now time.Time) (isHeldAnew bool) {
	heldAs, sinceText := job.HeldAs(), job.Object.GetAnnotations()[api.AnnotationHeldSince]
	if heldAs != j.heldAs {
		j.observeEnd(now)
	}
	if isHeldAnew = heldAs != j.heldAs || sinceText != j.sinceText; isHeldAnew {
		*j = heldJob{heldAs: heldAs, sinceText: sinceText, since: now, mayHaveStaleShrinks: heldAs == jobs.HeldShrunk}
		if since, err := time.Parse(time.RFC3339, sinceText); err == nil {
			j.since = since
		}
	}
	if heldAs != "" && now.Sub(j.releasedAt) >= startTime {
		j.releasedAt = time.Time{}
	}
	j.job = job
	j.wasSuspended = j.wasSuspended || job.Suspended
	return isHeldAnew
}

func (j *heldJob) isHeldAnewSince(was heldJob) bool {
	return j.heldAs != was.heldAs || j.sinceText != was.sinceText
}

// observeEnd records for how long the job was held, if it was.
func (j *heldJob) observeEnd(now time.Time) {
	if j.heldAs == "" {
		return
	}
	heldSeconds.WithLabelValues(j.job.System).Observe(now.Sub(j.since).Seconds())
}

// reason returns why the job is suspended, or "shrunk".
func (j *heldJob) reason() string {
	if j.heldAs == jobs.HeldShrunk {
		return string(jobs.HeldShrunk)
	}
	return string(j.job.HeldReason())
}

func (j *heldJob) isDynamic() bool { return j.job.Recovery == jobs.RecoverDynamic }

// least returns with how many workers a dynamic job is resumed.
func (j *heldJob) least() int { return max(1, j.job.Min) }

// isSettled returns whether the job has been held for so long that it must have been suspended or shrunk by now.
func (j *heldJob) isSettled(now time.Time) bool { return now.Sub(j.since) >= settleTime }

// isResumedByOther returns whether somebody else has resumed the job, which runs. Where this process never saw it suspended, an earlier leader
// may have resumed it.
func (j *heldJob) isResumedByOther() bool { return j.wasSuspended && !j.triedToResume }

// losesNodes returns whether pods of the job are on nodes that are being reclaimed.
func (j *heldJob) losesNodes(v view) bool {
	return slices.ContainsFunc(v.reclaiming, func(node string) bool {
		own, _ := v.pods.onNode(node, j.job.String())
		return own > 0
	})
}

// decide sets the gang for which capacity is looked for, or the action that is due.
func (j *heldJob) decide(v view) {
	isPaused := v.now.Before(j.pausedUntil) || j.due != nil
	switch {
	case j.heldAs == "":
		j.decideGrowth(v, isPaused)
	case j.job.Problem != nil:
		j.gang, j.due = nil, nil
		j.explain(ReasonMalformed, j.job.Problem, v)
	case isPaused:
		j.gang = nil
	case j.job.Finished:
		j.gang = nil
		if j.isSettled(v.now) {
			j.due = &action{kind: actionUnhold}
		}
	case j.job.FullReplicas() == 0:
		j.gang = nil
	case j.heldAs == jobs.HeldSuspended && !j.job.Suspended:
		j.gang = nil
		j.decideUnsuspended(v)
	case j.heldAs == jobs.HeldSuspended && j.reason() != string(jobs.HeldForMaxWait):
		j.decideSuspended(v)
	case j.heldAs == jobs.HeldShrunk && !j.job.Suspended:
		j.decideShrunk(v)
	default:
		j.gang = nil
	}
}

// decideUnsuspended is about a job whose held label says that it is suspended, and that is not: it was asked to stop first, or
// its owner has resumed it.
func (j *heldJob) decideUnsuspended(v view) {
	hasNewPods := v.pods.count(j.job.Refs()...).newest.After(j.since)
	switch {
	case !j.isSettled(v.now):
	case j.job.Stopped:
		j.due = &action{kind: actionSuspend}
	case j.job.StopRequested && j.losesNodes(v): // it may save its work until they are released
	case hasNewPods || v.now.Sub(j.since) >= settleWithoutPodsTime:
		j.due = &action{actionUnhold, j.job.FullReplicas()}
	}
}

// decideSuspended looks for capacity for all pods, once no pod of the job is left, for which it would be bought twice.
func (j *heldJob) decideSuspended(v view) {
	switch {
	case v.pods.count(j.job.Refs()...).total > 0:
		j.gang, j.noQuotaSince, j.quotaSince = nil, time.Time{}, time.Time{}
	case j.gang == nil:
		gang, err := v.gangs.all(j, v.now, v.offers)
		if busy := (*jobs.BusyError)(nil); errors.As(err, &busy) {
			return // its system still ends its former pods: the next look asks again
		}
		if err == nil && gang != nil && !j.isLetIn(gang, v) {
			return
		}
		j.offer(gang, err, "its pods cannot be simulated", v)
	case !j.isLetIn(j.gang, v):
		j.gang = nil
	}
}

// decideShrunk looks for capacity for the workers that are missing, once those that leave are gone, and those that it was resumed
// with are there: until then they leave no trace in the loop, and the capacity that they are about to take would be found for
// others. A job that lacks none has all its workers again only when it has settled, and when its pods exist: its system may be
// late to see that some are gone.
func (j *heldJob) decideShrunk(v view) {
	counts := v.pods.count(j.job.Ref)
	workers := counts.running + counts.pending
	missing := j.job.FullReplicas() - max(j.job.Replicas, workers)
	switch {
	case counts.terminating > 0 || j.losesNodes(v), workers < j.job.Replicas && !j.isSettled(v.now):
		j.gang = nil
	case missing <= 0:
		j.gang = nil
		if j.isSettled(v.now) && j.job.Replicas >= j.job.FullReplicas() && workers >= j.job.FullReplicas() {
			j.due = &action{actionUnhold, j.job.FullReplicas()}
		}
	case j.gang == nil || j.gang.missing != missing:
		gang, err := v.gangs.missing(j, missing, v.now, v.offers)
		j.offer(gang, err, "its missing workers cannot be simulated", v)
	}
}

// offer has the loop look for capacity for the gang. Where there is none, the job stays held, and an Event tells its owner of
// a bound that the job is over.
func (j *heldJob) offer(gang *gang, err error, problem string, v view) {
	if gang != nil && err == nil {
		j.gang, j.noCapacitySince = gang, time.Time{}
		return
	}
	j.pauseFor(v.now, problem, err)
	if tooMany := (*jobs.TooManyPodsError)(nil); errors.As(err, &tooMany) {
		j.explain(ReasonTooLarge, err, v)
	}
	if over := (*quotaError)(nil); errors.As(err, &over) {
		j.explain(ReasonOverQuota, err, v)
	}
}

// explain tells the owner of the job why it stays held, or is not grown, once for each time that it is held, or as long as the reason is the same.
func (j *heldJob) explain(reason string, err error, v view) {
	if j.eventReason == reason {
		return
	}
	j.eventReason = reason
	effect := "Stays held, and nothing is bought for it"
	if j.heldAs == "" {
		effect = "Gets no more workers than it asks for"
	}
	v.recorder.Eventf(j.job.Object, corev1.EventTypeWarning, reason, "%s: %v", effect, err)
}

// pauseFor tries nothing for a while.
func (j *heldJob) pauseFor(now time.Time, reason string, err error) {
	j.pause = min(max(2*j.pause, firstPause), lastPause)
	j.pausedUntil, j.gang, j.due = now.Add(j.pause), nil, nil
	j.pausedFor = errors.New(reason)
	if err != nil {
		j.pausedFor = fmt.Errorf("%s: %w", reason, err)
	}
}

// logPause logs once for each pause why nothing is tried.
func (j *heldJob) logPause(ctx context.Context) {
	if j.pausedFor != nil {
		klog.FromContext(ctx).V(1).Info("Nothing is tried for a job for now", "job", j.job.Ref, "pause", j.pause, "reason", j.pausedFor.Error())
		j.pausedFor = nil
	}
}

// place takes in where the loop has found capacity for the gang.
func (j *heldJob) place(found podlist.Placement, now time.Time) {
	if j.heldAs == "" {
		if workers, isGrown := j.gang.isGrown(found, j.extra(), now); isGrown {
			j.due = &action{actionGrowBeyond, min(j.job.Max, j.job.Replicas+workers)}
			return
		}
	} else if workers, isEnough := j.gang.isEnough(found, now); isEnough {
		j.due = &action{actionResume, workers}
		if j.gang.isGrowth {
			j.due = &action{actionGrow, min(j.job.FullReplicas(), j.job.Replicas+workers)}
		}
		return
	}
	switch {
	case len(found.Ready)+len(found.Coming) >= j.gang.min:
		j.noCapacitySince = time.Time{} // its nodes are on their way
	case j.noCapacitySince.IsZero():
		j.noCapacitySince = now
	case now.Sub(j.noCapacitySince) >= searchTime:
		j.pauseFor(now, "there is no capacity for it", nil)
	}
}

// done takes in how the action has ended.
func (j *heldJob) done(did action, err error, now time.Time) {
	var busy *jobs.BusyError
	if did.kind != actionSuspend && !errors.As(err, &busy) { // an error may be that the answer was lost
		j.triedToResume = j.triedToResume || did.kind == actionResume || did.kind == actionQueue
		if did.kind != actionGrow || did.workers >= j.job.FullReplicas() {
			j.releasedAt = now
		}
	}
	switch {
	case err == nil && did.kind == actionGrowBeyond:
		j.due, j.pause, j.pausedUntil = nil, 0, now.Add(growEvery)
	case err == nil:
		j.due, j.pause, j.pausedUntil = nil, 0, now.Add(startTime)
		if did.kind == actionResume || did.kind == actionGrow {
			recoveries.WithLabelValues(j.job.System, string(j.job.Recovery)).Inc()
		}
	case errors.As(err, &busy):
		j.due, j.pausedUntil = nil, now.Add(lookEvery)
	default:
		j.pauseFor(now, "it failed", err)
	}
}
