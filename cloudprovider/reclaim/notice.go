package reclaim

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// Source says where a notice came from.
type Source string

const (
	// SourcePoll is the poll of DescribeInstances for LockReason=Recycling.
	SourcePoll Source = "ecs-poll"
	// SourceUnknown is that of a marked Node on which nothing readable says where its notice came from.
	SourceUnknown Source = "unknown"
)

// Notice is the word that an instance will be released.
type Notice struct {
	InstanceID string
	// Deadline is when the instance is released, in whole seconds, UTC: what its Node can carry.
	Deadline  time.Time
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

// estimate makes a notice of a source that does not state the deadline.
func (c *Controller) estimate(instanceID string, source Source) Notice {
	now := c.Clock.Now().UTC()
	return Notice{
		InstanceID: instanceID,
		Deadline:   now.Add(c.NoticePeriod).Truncate(time.Second),
		Source:     source,
		FirstSeen:  now,
	}
}

// noticeOf is the notice under which the Node stands: the one written on it, or else the one heard.
func (c *Controller) noticeOf(node *corev1.Node) (Notice, bool) {
	id := instanceID(node)
	if id == "" {
		return Notice{}, false
	}
	if notice, ok := readMark(node, id); ok {
		return notice, true
	}
	c.mu.Lock()
	notice, heard := c.notices[id]
	c.mu.Unlock()
	if !heard && isMarked(node) {
		return c.estimate(id, SourceUnknown), true
	}
	return notice, heard
}

// hear takes the notices of a source. What is known already stays as it was first heard.
func (c *Controller) hear(ctx context.Context, source Source, instanceIDs sets.Set[string]) {
	c.hearing.Add(1)
	defer c.hearing.Add(-1)
	var news bool
	for id := range instanceIDs {
		if !c.remember(id, source) {
			continue
		}
		// Looked up after the notice was remembered: a Node that comes in between meets it in nodeAppeared.
		node := c.nodeOf(id)
		klog.FromContext(ctx).Info("Notice", "instance", id, "source", source, "node", klog.KObj(node))
		if node != nil {
			c.marks.Add(node.Name)
			news = true
		}
	}
	if news {
		c.notify()
	}
}

// marksWaiting says whether Nodes are still waiting for a worker to mark them, or are just being queued for it.
func (c *Controller) marksWaiting() bool { return c.hearing.Load() > 0 || c.marks.Len() > 0 }

// remember says whether the notice is new.
func (c *Controller) remember(instanceID string, source Source) bool {
	notice := c.estimate(instanceID, source)
	if node := c.nodeOf(instanceID); node != nil {
		if written, ok := readMark(node, instanceID); ok {
			notice = written
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.endings, instanceID)
	if _, known := c.notices[instanceID]; known {
		return false
	}
	c.notices[instanceID] = notice
	return true
}

func (c *Controller) notify() {
	c.notifying.Lock()
	defer c.notifying.Unlock()
	c.OnNotice()
}
