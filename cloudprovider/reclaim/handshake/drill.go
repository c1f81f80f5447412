package handshake

import (
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// awaitSaved is the whole handshake with a job that is only to save its work: nothing is decided, and nobody leaves. It tells once that the
// acknowledgement has not come in time.
func (c *Controller) awaitSaved(l loss, s state) {
	now, until := c.Clock.Now(), l.awaitsUntil(s)
	switch {
	case s.acknowledged || s.missed || until.IsZero() || !now.Before(s.deadline):
	case now.Before(until):
		c.queue.AddAfter(l.party, until.Sub(now))
	case c.table.update(l.party, s.id, func(s *state) { s.missed = true }):
		c.Events.Eventf(l.object(s), events.ReasonUnsaved, notice.PrefixOf(l.drill)+"No acknowledgement that the work is saved (request %s) came in time", s.id)
	}
}

// HaveSaved returns whether no job on the Node is awaited any more: each was asked, and has acknowledged or let its time go by, or is not waited
// for. It also returns whether none has let its time go by.
func (c *Controller) HaveSaved(node string) (done, all bool) {
	all = true
	for _, pod := range cluster.Drainable(c.Cluster.PodsOn(node)) {
		if pod.DeletionTimestamp != nil {
			continue // it leaves anyway
		}
		party := c.Cluster.PartyOf(pod)
		s, open := c.table.get(party)
		if !open || !s.drill || !s.leaving.Has(pod.UID) || !s.acknowledged && c.isAwaited(party, s) {
			return false, false
		}
		all = all && (s.acknowledged || !s.missed)
	}
	return true, all
}

// isAwaited returns whether the job is yet to be asked, or its acknowledgement may still come in time. That it does not is for awaitSaved to tell
// first.
func (c *Controller) isAwaited(party cluster.Party, s state) bool {
	if s.phase == Asking || s.phase == Warning {
		return true
	}
	l := c.losses.of(party)
	return !s.missed && !l.awaitsUntil(s).IsZero()
}

// LoseInEarnest returns whether a job on the Node loses pods to a notice that is no drill.
func (c *Controller) LoseInEarnest(node string) bool {
	for _, pod := range cluster.Drainable(c.Cluster.PodsOn(node)) {
		if l := c.losses.of(c.Cluster.PartyOf(pod).Job()); len(l.leaving) > 0 && !l.drill {
			return true
		}
	}
	return false
}
