package reclaim

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// Source says where a notice came from.
type Source string

const (
	// SourcePoll is the poll of DescribeInstances for instances that are locked as recycling.
	SourcePoll Source = "ecs-poll"
	// SourcePush is an event of CloudMonitor or EventBridge; see NewPushHandler.
	SourcePush Source = "push"
	// SourceAgent is the node-agent, which reads the metadata of its instance; see api.AnnotationNoticeAgent.
	SourceAgent Source = "node-agent"
	// SourceCondition is ACK's node-problem-detector; see api.ConditionInstanceExpired.
	SourceCondition Source = "condition"
	// SourceUnknown is that of a marked Node on which nothing readable says where its notice came from.
	SourceUnknown Source = "unknown"
)

// Notice is the word that an instance will be released.
type Notice struct {
	InstanceID string
	// Deadline is when the instance is released, in whole seconds, UTC: what its Node can carry.
	Deadline time.Time
	// Stated says that a source named the deadline. Otherwise it is an estimate.
	Stated bool
	// Confirmed says that more than a pushed event speaks for it: ECS, the instance itself, or ACK's node-problem-detector.
	Confirmed bool
	// Source is the one that spoke first, FirstSeen when it did.
	Source    Source
	FirstSeen time.Time
}

const (
	deleteMargin = time.Minute
	// A short notice is not spent on margins.
	deleteMarginFraction = 5
)

// DeleteFrom is when evictions end and pods are deleted instead: a minute before the deadline, or the last fifth of a
// notice that is shorter than five.
func (n Notice) DeleteFrom() time.Time {
	margin := min(deleteMargin, n.Deadline.Sub(n.FirstSeen)/deleteMarginFraction)
	return n.Deadline.Add(-max(margin, 0))
}

// with is the notice after another source has spoken: a stated deadline beats an estimated one, and of two of a kind the
// earlier counts.
func (n Notice) with(other Notice) Notice {
	if n.Source == SourceUnknown {
		n.Source, n.FirstSeen = other.Source, other.FirstSeen
	}
	if other.Stated && !n.Stated || other.Stated == n.Stated && other.Deadline.Before(n.Deadline) {
		n.Deadline, n.Stated = other.Deadline, other.Stated
	}
	n.Confirmed = n.Confirmed || other.Confirmed
	return n
}

// maxNotice is how far ahead a deadline is believed: instances are announced minutes ahead.
const maxNotice = time.Hour

// word is what one source says of one instance.
type word struct {
	instanceID string
	source     Source
	// deadline is zero where the source does not state it.
	deadline time.Time
	// at is when the source spoke; zero means now.
	at time.Time
}

// hearsay is what this process heard of an instance.
type hearsay struct {
	notice Notice
	// spoke is when each source first did.
	spoke map[Source]time.Time
	// unseen: the poll is silent about it, which was counted.
	unseen bool
}

// notice makes one of the word alone. A deadline that cannot be right is estimated instead.
func (c *Controller) notice(w word) Notice {
	now := c.Clock.Now().UTC()
	n := Notice{
		InstanceID: w.instanceID, Deadline: w.deadline, Stated: true, Confirmed: w.source != SourcePush,
		Source: w.source, FirstSeen: w.at,
	}
	if n.FirstSeen.IsZero() || n.FirstSeen.After(now) {
		n.FirstSeen = now
	}
	if n.Deadline.IsZero() || n.Deadline.Sub(now) > maxNotice {
		n.Deadline, n.Stated = n.FirstSeen.Add(c.NoticePeriod), false
	}
	n.Deadline = n.Deadline.UTC().Truncate(time.Second)
	return n
}

// noticeOf is the notice under which the Node stands: the one written on it, with what was heard since.
func (c *Controller) noticeOf(node *corev1.Node) (Notice, bool) {
	id := c.instanceID(node)
	if id == "" || isOnDemand(node) {
		return Notice{}, false
	}
	written, isWritten := readMark(node, id)
	c.mu.Lock()
	heard, isHeard := c.notices[id]
	c.mu.Unlock()
	switch {
	case isWritten && isHeard:
		return written.with(heard.notice), true
	case isHeard:
		return heard.notice, true
	case isWritten:
		return written, true
	default:
		return c.notice(word{instanceID: id, source: SourceUnknown}), isMarked(node)
	}
}

// hear takes what sources say. The first word on an instance makes the notice; later ones confirm it, and may correct
// its deadline. It says whether a Node is doomed that was not before, and whether Nodes were queued to be marked.
func (c *Controller) hear(ctx context.Context, words ...word) (news, queued bool) {
	c.hearing.Add(1)
	defer c.notifyOnceMarked()
	defer c.hearing.Add(-1)
	for _, w := range words {
		if c.isOnDemandInstance(w.instanceID) {
			klog.FromContext(ctx).V(2).Info("A notice about an on-demand instance is ignored", "instance", w.instanceID, "source", w.source)
			continue
		}
		if c.holds(ctx, w) {
			continue
		}
		first, changed, confirmed := c.remember(w)
		if !changed {
			continue
		}
		// Looked up after the notice was remembered: a Node that comes in between meets it in nodeAppeared.
		nodes := c.nodesOf(w.instanceID)
		klog.FromContext(ctx).Info("Notice", "instance", w.instanceID, "source", w.source, "nodes", klog.KObjSlice(nodes))
		for _, node := range nodes {
			c.markSoon(node)
			news, queued = news || first, true
		}
		if confirmed {
			c.resume(nodes)
		}
	}
	if news {
		c.news.Store(true)
	}
	return news, queued
}

// remember says whether the word is the first on its instance, whether there is anything new in it, and whether it confirms
// what was only pushed.
func (c *Controller) remember(w word) (first, changed, confirmed bool) {
	notice := c.notice(w)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.source == SourcePoll {
		delete(c.endings, w.instanceID)
	}
	known, isKnown := c.notices[w.instanceID]
	if !isKnown {
		known, first = c.recall(notice)
		changed = true
	}
	if _, spoke := known.spoke[w.source]; !spoke {
		confirmationDelay.WithLabelValues(string(w.source)).Observe(max(notice.FirstSeen.Sub(known.notice.FirstSeen), 0).Seconds())
		known.spoke = maps.Clone(known.spoke)
		known.spoke[w.source] = notice.FirstSeen
	}
	merged := known.notice.with(notice)
	changed = changed || merged != known.notice
	confirmed = merged.Confirmed && !known.notice.Confirmed
	known.notice = merged
	c.notices[w.instanceID] = known
	return first, changed, confirmed
}

// recall makes the record of an instance that this process hears of for the first time. An earlier leader may have
// written on the Node.
func (c *Controller) recall(notice Notice) (known hearsay, first bool) {
	for _, node := range c.nodesOf(notice.InstanceID) {
		if written, ok := readMark(node, notice.InstanceID); ok {
			return hearsay{notice: written, spoke: map[Source]time.Time{written.Source: written.FirstSeen}}, false
		}
	}
	return hearsay{notice: notice, spoke: map[Source]time.Time{notice.Source: notice.FirstSeen}}, true
}

// spoke is when each source gave its word for the notice.
func (c *Controller) spoke(notice Notice) map[Source]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if heard, ok := c.notices[notice.InstanceID]; ok {
		return heard.spoke // never changed, but replaced
	}
	return map[Source]time.Time{notice.Source: notice.FirstSeen}
}
