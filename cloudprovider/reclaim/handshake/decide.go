package handshake

import (
	"cmp"
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/batchjob"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/pace"
)

const (
	// shrinkCheck is how often a system that takes pods out of a job is asked whether it still does. When the pods are gone
	// nobody asks, so this is how late it is noticed that the system gave up.
	shrinkCheck = 10 * time.Second
	// shrinkLook is how often it is looked at meanwhile whether the handshake has ended, or begun again with another request.
	shrinkLook = 500 * time.Millisecond
	// LateGrace is how long a job is given at least, also if its handshake began when its pods were to be deleted already,
	// because there was no leader before.
	LateGrace = 5 * time.Second
)

// decide has the job's system prepare for the loss, once for each request, and sets when the pods may be evicted. It does not
// wait for that.
func (c *Controller) decide(ctx context.Context, l loss, s state) {
	if !c.table.beginDecision(l.party, s.id, func(s *state) { s.spared = uids(l.doubtful) }) {
		return
	}
	if !l.isToBeStopped(s) && !s.acknowledged && !l.awaitsUntil(s).IsZero() && c.table.conclude(l.party, s, checkpointMissed) {
		c.config.Events.Eventf(l.object(s), events.ReasonUnsaved, notice.PrefixOf(s.drill)+"No acknowledgement that the work is saved (request %s) came in time; %s", s.id, s.goesOn())
	}
	c.calls.Go(func() {
		p, latest := c.prepareInTime(ctx, l, s)
		c.finishDecision(l, s, p, latest)
		if p.by == shrinking {
			c.awaitShrink(ctx, l, s.id, p.workers, latest)
		}
	})
}

// prepareInTime has the job's system prepare, and goes on without if it does not. It returns until when the pods can be left to
// the system.
func (c *Controller) prepareInTime(ctx context.Context, l loss, s state) (p preparation, latest time.Time) {
	stops := l.isToBeStopped(s) && c.stop(ctx, l, s)
	err := c.systems.call(ctx, l.party, actionDecide, l.preparesUntil(c.config.Clock.Now()), func(ctx context.Context) (err error) {
		p, err = c.prepare(ctx, l, stops)
		return err
	})
	if l.move && (err != nil || p.by == evicting) {
		return c.moves.fail(ctx, l, cmp.Or(err, errUnprepared)), time.Time{}
	}
	if isFailure(ctx, err) {
		klog.FromContext(ctx).Error(err, "The job's system did not prepare for the loss of pods; they are evicted all the same", "job", l.party)
		c.config.Events.Eventf(l.object(s), events.ReasonUnprepared, notice.PrefixOf(s.drill)+"The job could not be prepared for the loss of pods, which are evicted all the same: %v", err)
	}
	now := c.config.Clock.Now()
	latest = notice.Later(l.timeLimit().Add(l.patience()/2), now.Add(LateGrace))
	if err != nil {
		c.systems.cancelShrink(ctx, l.party, l.leavingWorkers(), notice.Earlier(latest, now.Add(callTimeout)))
	}
	return p, latest
}

// finishDecision ends the decision: it leaves the pods to the job's system for a while, and has them drained after that. If another
// request was made meanwhile, that goes on.
func (c *Controller) finishDecision(l loss, s state, p preparation, latest time.Time) {
	now := c.config.Clock.Now()
	switch p.by {
	case postponing:
		c.table.enter(l.party, s.id, Waiting, func(s *state) { s.failed = p.failed })
	case shrinking:
		c.table.enter(l.party, s.id, Shrinking, nil)
	case suspending:
		c.pace.Suspended(l.party)
		c.letGo(l, s.id, notice.Earlier(now.Add(pace.SuspendWait), latest), true)
	case evicting:
		c.letGo(l, s.id, notice.Earlier(now, latest), false)
	}
	c.table.endDecision(l.party)
	c.queue.Add(l.party)
}

// letGo enters Leaving, and has the Nodes drained from that time. A job that is suspended is looked at again when its pods are to
// be taken out of the account of the Job controller.
func (c *Controller) letGo(l loss, id string, from time.Time, suspended bool) {
	var untrack time.Time
	switch {
	case suspended && l.isTracked():
		untrack = untrackFrom(l, c.config.Clock.Now(), from)
		c.queue.AddAfter(l.party, untrack.Sub(c.config.Clock.Now()))
	case suspended:
		from = c.pace.Until(l.party, from)
	}
	if !c.table.enter(l.party, id, Leaving, func(s *state) { s.evictFrom, s.untrack, s.suspended = from, untrack, suspended }) {
		return
	}
	current := c.losses.of(l.party)
	for node := range l.nodes().Union(current.nodes()) {
		c.config.Drains.AddAfter(node, from.Sub(c.config.Clock.Now()))
	}
}

// means are those by which a job is prepared for the loss of pods.
type means int

const (
	// evicting: the job's system does nothing, and the pods are evicted.
	evicting means = iota
	// suspending: the system is busy ending all pods of the job.
	suspending
	// shrinking: the system takes workers out of the job, in its own time.
	shrinking
	// postponing: nothing is decided, because nothing is lost for certain any more.
	postponing
)

// preparation is how a job is prepared for the loss of pods.
type preparation struct {
	by means
	// workers are those that the system takes out of the job. With an error, it does not take out all of them.
	workers []string
	// failed is true of a move for which the job could not be prepared.
	failed bool
}

// prepare shrinks the job if enough of it survives, and suspends it if not. A job that stops, or has stopped, as it was told, is suspended whatever
// survives: its launcher, by which the loss was known, has ended, and only what is held is resumed.
func (c *Controller) prepare(ctx context.Context, lost loss, stops bool) (preparation, error) {
	party := lost.party
	job, err := c.config.Jobs.Get(ctx, party.Ref)
	if err != nil || job.Finished {
		return preparation{by: evicting}, err
	}
	if job.Suspended {
		return preparation{by: suspending}, nil
	}
	if stops || job.Stopped {
		return c.suspend(ctx, job)
	}
	if party.Unit != "" && job.Min == 0 {
		return preparation{by: evicting}, nil // its job goes on without it
	}
	l := c.losses.of(party.Job())
	if !l.doubtfulUntil.IsZero() {
		return preparation{by: postponing}, nil // what was lost for certain is gone, or was contradicted meanwhile
	}
	if len(l.leaving) == 0 && lost.stays(l) || l.onlySaves() {
		return preparation{by: evicting}, nil // the notices were withdrawn meanwhile
	}
	if l.isTooSmallFor(job) {
		return c.suspend(ctx, job)
	}
	workers := l.leavingWorkers()
	if len(workers) == 0 || party.Unit != "" {
		return preparation{by: evicting}, nil
	}
	return c.shrink(ctx, job, workers)
}

func (c *Controller) suspend(ctx context.Context, job jobs.Job) (preparation, error) {
	if err := c.config.Jobs.Suspend(ctx, job, jobs.HeldForReclaim); err != nil {
		return preparation{by: evicting}, err
	}
	return preparation{by: suspending}, nil
}

func (c *Controller) shrink(ctx context.Context, job jobs.Job, workers []string) (preparation, error) {
	err := c.config.Jobs.Shrink(ctx, job, workers)
	if errors.Is(err, jobs.ErrUnsupported) {
		return c.suspend(ctx, job) // by its system's count, too few workers survive
	}
	busy := (*jobs.BusyError)(nil)
	if err != nil && !errors.As(err, &busy) {
		return preparation{by: evicting}, err
	}
	leaving, asked := c.config.Jobs.Shrinking(ctx, job.Ref, workers) // with what an earlier leader asked for, if it is busy
	if len(leaving) == 0 && asked == nil {
		return preparation{by: evicting}, err
	}
	if busy != nil && len(leaving) < len(workers) {
		return preparation{by: shrinking, workers: workers}, err // nobody takes out the others yet, so the system has to be asked again
	}
	return preparation{by: shrinking, workers: workers}, nil // if it did not say, it will later
}

// awaitShrink leaves the workers to the job's system until it has taken them out of the job, or given up, or there is no more
// time. What the system has not begun with by then is taken back before the first worker is evicted. It is also taken back if the
// handshake has ended, because the workers are gone or stay: et-operator deletes all workers of a job when it begins with a
// ScaleIn that names none which exists. Source: executeScaleIn of et-operator, see scaler in package etjob.
func (c *Controller) awaitShrink(ctx context.Context, l loss, id string, workers []string, until time.Time) {
	for asked := c.config.Clock.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-c.config.Clock.After(min(shrinkLook, until.Sub(c.config.Clock.Now()))):
		}
		s, open := c.table.get(l.party)
		if open && s.id != id {
			workers = c.losses.gone(l.party, workers) // the next request looks after the others
		}
		if !open || s.id != id || !c.config.Clock.Now().Before(until) {
			break
		}
		if c.config.Clock.Since(asked) < shrinkCheck {
			continue
		}
		asked = c.config.Clock.Now()
		attempt, cancel := context.WithTimeout(ctx, callTimeout)
		leaving, err := c.config.Jobs.Shrinking(attempt, l.party.Ref, workers)
		cancel()
		if err == nil && len(leaving) == 0 || errors.Is(err, jobs.ErrNoObject) {
			break
		}
	}
	if len(workers) > 0 {
		c.systems.cancelShrink(ctx, l.party, workers, c.config.Clock.Now().Add(callTimeout))
	}
	c.letGo(l, id, c.config.Clock.Now(), false)
	c.queue.Add(l.party)
}

// Answer says whether a pod may be evicted.
type Answer struct {
	// Reason is why it must stay for now; empty if it may be evicted.
	Reason string
	// From is when it need not stay any longer, if time alone decides that.
	From time.Time
	// Unknown is true if there is no handshake with its job, or none that asked the pod.
	Unknown bool
	// Begun is when this process began the handshake with its job, zero if there is none.
	Begun time.Time
}

// MayEvict returns whether the pod may be evicted from its Node, which has the notice. It changes nothing.
func (c *Controller) MayEvict(pod *corev1.Pod, node *corev1.Node, n notice.Notice) Answer {
	s, open := c.table.get(c.config.Cluster.PartyOf(pod))
	until, doubtful := c.config.Notices.DoubtfulUntil(n)
	if !doubtful && cameBack(pod, &outlook{reclaiming: true, notice: n, drained: cluster.DrainedAt(node)}, s, open) {
		return Answer{}
	}
	if !open {
		return Answer{Unknown: true, Reason: "its job is to be looked at"}
	}
	answer := Answer{Begun: s.begun}
	warned := pod.Annotations[api.AnnotationCheckpointRequest] == s.id
	switch {
	case !s.leaving.Has(pod.UID):
		answer.Unknown, answer.Reason = true, "its job is to be looked at"
	case doubtful:
		answer.Reason, answer.From = "nothing has confirmed the notice", until
	case !s.phase.isDecided():
		answer.Reason = "its job is being asked"
	case s.phase == Shrinking:
		answer.Reason = "its job's system is taking it out of the job"
	case c.config.Clock.Now().Before(s.evictFrom):
		answer.Reason, answer.From = "its job's system is ending it", s.evictFrom
	case !s.untrack.IsZero() && batchjob.IsTracked(pod) && c.config.Clock.Now().Before(s.evictFrom.Add(untrackPatience)):
		answer.Reason, answer.From = "the Job controller would count its end", s.evictFrom.Add(untrackPatience)
	case !warned && c.config.Clock.Since(s.begun) < warnPatienceOf(n):
		answer.Reason, answer.From = "it is not warned", s.begun.Add(warnPatienceOf(n))
	case !c.isNext(pod, s):
		answer.Reason = "others of its job leave before it"
	}
	return answer
}

// rank is the place in the order in which the pods of a job leave: the loss of the host ends the rendezvous of the workers, the
// loss of the launcher ends the job.
func rank(role jobs.Role) int {
	switch role {
	case jobs.RoleLauncher:
		return 2
	case jobs.RoleHost:
		return 1
	}
	return 0
}

// isNext returns whether no pod is left that must leave before this one. Pods that were not part of the handshake do not count:
// they came back, and may do so again and again.
func (c *Controller) isNext(pod *corev1.Pod, s state) bool {
	role := c.config.Cluster.RoleOf(pod)
	if rank(role) == 0 {
		return true
	}
	for _, other := range c.config.Cluster.PodsOf(c.config.Cluster.PartyOf(pod).Job()) {
		if s.leaving.Has(other.UID) && rank(c.config.Cluster.RoleOf(other)) < rank(role) {
			return false
		}
	}
	return true
}
