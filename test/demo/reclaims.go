package main

import (
	"slices"
	"time"
)

// followReclaims sees notices, marks, the handshakes with jobs, and drains.
func (c *timeline) followReclaims(s snapshot) {
	working := c.working(s)
	for _, l := range c.ordered {
		i, exists := s.instances[l.Instance]
		if !exists || i.Deadline.IsZero() {
			continue
		}
		if l.Notice.IsZero() {
			// Not when it was seen: the taint may come before the next snapshot.
			l.Notice, l.Deadline = i.Deadline.Add(-noticePeriod), i.Deadline
			e := l.about(s, notice)
			e.Time, e.Job, e.Deadline, e.Forced = l.Notice, l.currentJob(), i.Deadline, c.forced[l.Instance]
			c.add(e)
		}
		n, registered := s.nodes[l.Instance]
		if registered && !n.tainted.IsZero() && l.Tainted.IsZero() {
			l.Tainted = n.tainted
			c.addReclaim(s, l, tainted, n.tainted)
		}
		if registered && l.Drained.IsZero() {
			c.followHandshake(s, l, n.name)
		}
		if registered && !l.Tainted.IsZero() && l.Drained.IsZero() && working[n.name] == "" {
			l.Drained = s.at
			c.addReclaim(s, l, drained, s.at)
			c.markReduced(s, l)
		}
	}
}

// followHandshake sees the pods of a reclaiming node asked for a checkpoint, and the acknowledgement of their job that it is saved,
// which any pod of the job may carry.
func (c *timeline) followHandshake(s snapshot, l *instanceRecord, name string) {
	for _, reclaiming := range s.pods {
		if reclaiming.node != name || reclaiming.request == "" {
			continue
		}
		if l.Warned.IsZero() {
			l.Warned = s.at
			c.addReclaim(s, l, warned, s.at)
		}
		for _, p := range s.pods {
			if l.Checkpointed.IsZero() && p.job == reclaiming.job && p.acknowledged == reclaiming.request {
				l.Checkpointed = s.at
				c.addReclaim(s, l, checkpointed, s.at)
			}
		}
	}
}

func (c *timeline) addReclaim(s snapshot, l *instanceRecord, k kind, at time.Time) {
	e := l.about(s, k)
	e.Time, e.Deadline = at, l.Deadline
	c.add(e)
}

// isDone says whether the job had ended by then.
func (c *timeline) isDone(name string, at time.Time) bool {
	for _, job := range c.courses {
		if job.Name == name {
			return !job.Done.IsZero() && !job.Done.After(at)
		}
	}
	return false
}

// markReduced notes whose pods were on a node that was drained.
func (c *timeline) markReduced(s snapshot, l *instanceRecord) {
	for _, job := range c.courses {
		if job.Name == l.job() && job.Done.IsZero() {
			job.reduced = true
			if job.Lost.IsZero() {
				job.Lost = s.at
			}
		}
	}
}

// isReclaimingNode says whether the node's instance has its notice.
func (c *timeline) isReclaimingNode(name string) bool {
	return name != "" && slices.ContainsFunc(c.ordered, func(l *instanceRecord) bool { return l.Node == name && !l.Notice.IsZero() })
}
