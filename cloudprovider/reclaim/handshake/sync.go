package handshake

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// MarksRetry is how soon something is looked at again that waits for marks.
	MarksRetry = 100 * time.Millisecond
	// replaceCheck is how often it is checked whether there is a place elsewhere, of which nothing is notified.
	replaceCheck = 500 * time.Millisecond
)

// sync takes the next step with a job that loses Nodes. It goes by all Nodes that are reclaiming, never by one.
func (c *Controller) sync(ctx context.Context, party cluster.Party) error {
	if c.config.MarksWaiting() {
		c.queue.AddAfter(party, MarksRetry)
		return nil
	}
	l := c.losses.of(party)
	if len(l.leaving) == 0 {
		return c.end(ctx, l)
	}
	s, open := c.table.get(party)
	if open && l.isBeingEnded() {
		c.pace.Ended(party, c.config.Clock.Now().Before(s.evictFrom)) // those that were let go may have been evicted
	}
	if !open {
		s = c.losses.recovered(l, c.config.Clock.Now())
		if s.acknowledged {
			c.config.noteSaved(l, s, s.requested) // nobody knows when it was saved, and an earlier leader may not have noted it
		}
	}
	s = c.table.open(l, s, c.config.Clock.Now())
	unwarned := c.warner.warn(ctx, l, s)
	c.awaited.syncJob(l, s)
	if unwarned != nil && c.config.Clock.Since(s.begun) < l.warnPatience() {
		return unwarned
	}
	c.tellOwner(ctx, l, s)
	c.noteAcknowledgement(ctx, l, s)
	c.replacements.checkAll(l)
	s, _ = c.table.get(party)
	if l.onlySaves() {
		c.rehearsals.awaitSaved(l, s)
		return unwarned
	}
	if s.phase.isDecided() {
		c.drainLast(l, s)
		c.untracker.hurry(l, s)
		return c.untracker.sync(ctx, l, s)
	}
	c.moves.noteMissed(l, s)
	if reason, until := c.waitsFor(l, s); reason != "" {
		klog.FromContext(ctx).V(2).Info("The job's pods stay for now", "job", party, "reason", reason, "until", until)
		c.queue.AddAfter(party, until.Sub(c.config.Clock.Now()))
		return unwarned
	}
	asksAgain := c.replacements.asksAgain(l, s)
	if l.move {
		asksAgain = c.moves.asksAgain(s)
	}
	if asksAgain && c.table.askAgain(party, s.id, c.config.Clock.Now()) {
		c.queue.Add(party)
		return nil
	}
	c.decide(ctx, l, s)
	return nil
}

// noteAcknowledgement notes that the acknowledgement has come.
func (c *Controller) noteAcknowledgement(ctx context.Context, l loss, s state) {
	if s.acknowledged || !c.losses.isAcknowledged(l, s) {
		return
	}
	if !c.table.update(l.party, s.id, func(s *state) { s.acknowledged, s.acknowledgedAt = true, c.config.Clock.Now() }) {
		return
	}
	if !s.last && !s.drill && !s.move {
		noticeToAcknowledgement.WithLabelValues(l.party.System).Observe(c.config.Clock.Since(l.firstSeen()).Seconds())
	}
	c.table.conclude(l.party, s, checkpointAcknowledged)
	c.config.noteSaved(l, s, c.config.Clock.Now())
	klog.FromContext(ctx).Info("The job's work is saved", "job", l.party, "request", s.id)
	c.config.Events.Eventf(l.object(s), events.ReasonSaved, notice.PrefixOf(s.drill)+"The work is saved (request %s), %s before the release", s.id, s.left(c.config.Clock.Now()))
}

// noteSaved tells that the work of the job was saved at a time.
func (c Config) noteSaved(l loss, s state, at time.Time) {
	if c.Saved != nil {
		c.Saved(l.party.Ref, l.pods, s.requested, at)
	}
}

// waitsFor returns why it is too early for a decision, and when to look again. The reason is empty if it is not.
func (c *Controller) waitsFor(l loss, s state) (reason string, until time.Time) {
	now, limit := c.config.Clock.Now(), l.timeLimit()
	switch {
	case !l.doubtfulUntil.IsZero():
		return "nothing has confirmed the notice", l.doubtfulUntil
	case l.move:
		return c.moves.stays(l, s), now.Add(replaceCheck)
	case !now.Before(limit):
		return "", time.Time{}
	case s.phase == Asking || s.phase == Warning:
		return "the job is being asked and read", limit
	case s.job != nil && (s.job.Suspended || s.job.Finished || s.job.Stopped):
		return "", time.Time{}
	}
	if until := l.awaitsUntil(s); !s.acknowledged && now.Before(until) {
		return "the acknowledgement that a checkpoint is saved has not come", until
	}
	if s.acknowledged && l.isDoneTraining(s, c.replacements.hasTime()) {
		return "", time.Time{}
	}
	return c.replacements.waitsFor(l, s)
}

// drainLast has the Nodes drained whose pods may have waited for other pods of the job.
func (c *Controller) drainLast(l loss, s state) {
	if s.phase != Leaving {
		return
	}
	for _, pod := range l.leaving {
		if rank(pod.role) > 0 {
			c.config.Drains.AddAfter(pod.Spec.NodeName, 0)
		}
	}
}

// end ends the handshake with a job that has nothing more to lose: its pods have left, or the notices of their Nodes were
// withdrawn. The warnings are taken off the survivors, who go on as if nothing had happened.
func (c *Controller) end(ctx context.Context, l loss) error {
	s, open := c.table.get(l.party)
	c.pace.Ended(l.party, !open || c.config.Clock.Now().Before(s.evictFrom))
	c.table.forget(l.party)
	c.warner.sent.forget(l.party)
	return c.warner.takeBack(ctx, l, func(node string) bool { return c.losses.outlookFor(node) != nil })
}

// CheckReplacements observes, for all Nodes that are being drained, when there was a place elsewhere, whether their pods wait for
// that or not.
func (c *Controller) CheckReplacements() {
	for _, node := range c.config.Cluster.MarkedNodes() {
		if n, reclaiming := c.config.Notices.Of(node); reclaiming && c.config.Cluster.Occupied(node) {
			c.replacements.check(node.Name, n)
		}
	}
}
