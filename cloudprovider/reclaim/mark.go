package reclaim

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// markTimeout bounds one attempt, so that a connection that hangs holds up no other mark, nor the drains behind them.
const markTimeout = 5 * time.Second

// syncMark brings the Node's marks in line with what is known of its instance.
func (c *Controller) syncMark(ctx context.Context, name string) error {
	defer c.notifyOnceMarked()
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	node := c.node(name)
	if node == nil {
		c.due.done(name)
		return nil
	}
	if isOnDemand(node) && isMarked(node) {
		return c.spare(ctx, node)
	}
	notice, doomed := c.noticeOf(node)
	if !doomed {
		c.due.done(name)
		if isOnDemand(node) {
			c.unhear(c.instanceID(node)) // from before the label came
		}
		if err := c.dropOver(ctx, node); err != nil {
			return err
		}
		return c.syncRemoved(ctx, node)
	}
	switch c.verdictOf(notice.InstanceID) {
	case released:
		c.due.done(name)
		return c.remove(ctx, node, notice)
	case withdrawn:
		return c.giveBack(ctx, node, notice)
	}
	changed, err := c.mark(ctx, node, notice)
	if err != nil {
		return err
	}
	c.due.done(name)
	if !changed {
		c.drains.Add(name) // else nodeChanged does
	}
	return nil
}

// markSoon queues the Node. A first mark goes before all drains.
func (c *Controller) markSoon(node *corev1.Node) {
	if !isMarked(node) {
		c.due.add(node.Name, c.Clock.Now())
	}
	c.marks.Add(node.Name)
}

// marksWaiting says whether Nodes are still without a mark that is due, or are just being queued for it. One that cannot
// be marked does not hold up the others for long.
func (c *Controller) marksWaiting(patience time.Duration) bool {
	return c.hearing.Load() > 0 || c.due.since(c.Clock.Now().Add(-patience))
}

const (
	// marksPatience is how long drains wait for a mark.
	marksPatience = 10 * time.Second
	// noticePatience is how long whoever buys the replacements waits for it: that takes a whole core, which is better left
	// to the API server while there are marks to be made.
	noticePatience = 3 * time.Second
)

// notifyOnceMarked calls OnNotice, once for all notices, when their Nodes are marked or overdue.
func (c *Controller) notifyOnceMarked() {
	if !c.news.Load() || c.marksWaiting(noticePatience) {
		return
	}
	c.notifying.Lock()
	defer c.notifying.Unlock()
	if c.news.Swap(false) {
		c.OnNotice()
	}
}

// due are Nodes, and since when they wait. The zero value is ready. It is safe for concurrent use.
type due struct {
	mu    sync.Mutex
	nodes map[string]time.Time
}

func (d *due) add(node string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.nodes == nil {
		d.nodes = map[string]time.Time{}
	}
	if _, waits := d.nodes[node]; !waits {
		d.nodes[node] = now
	}
}

func (d *due) done(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.nodes, node)
}

// since says whether a Node waits that came after then.
func (d *due) since(then time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, at := range d.nodes {
		if at.After(then) {
			return true
		}
	}
	return false
}

// mark completes the marks. An Event and a latency are due for the first time only, not where a mark was taken off by
// hand and is put back.
func (c *Controller) mark(ctx context.Context, node *corev1.Node, notice Notice) (changed bool, err error) {
	var first bool
	changed, err = patchNode(ctx, c.MarkClient, node, func(node *corev1.Node) nodePatch {
		first = !isMarked(node)
		return markPatch(node, notice)
	})
	if err != nil || !changed || !first {
		return changed, err
	}
	for source, at := range c.spoke(notice) {
		noticeToMark.WithLabelValues(string(source)).Observe(c.Clock.Since(at).Seconds())
	}
	klog.FromContext(ctx).Info("Marked", "node", klog.KObj(node), "instance", notice.InstanceID, "deadline", notice.Deadline)
	next := "draining"
	if !notice.Confirmed {
		next = "draining once ECS or the instance's metadata confirm it"
	}
	c.event(node, ReasonNotice, "Spot instance %s will be released at %s (%s); tainted and cordoned, %s",
		notice.InstanceID, formatTime(notice.Deadline), notice.Source, next)
	return true, nil
}

// giveBack undoes the marks of an instance that lives on.
func (c *Controller) giveBack(ctx context.Context, node *corev1.Node, notice Notice) error {
	changed, err := patchNode(ctx, c.MarkClient, node, func(node *corev1.Node) nodePatch {
		return unmarkPatch(node, c.Clock.Now())
	})
	if err != nil {
		return err
	}
	c.due.done(node.Name)
	// The verdict stays until the informer shows the Node without marks: see pruneEndings.
	c.unhear(notice.InstanceID)
	if changed {
		reclaims.WithLabelValues(string(notice.Source), outcomeFalseAlarm).Inc()
		klog.FromContext(ctx).Info("Given back", "node", klog.KObj(node), "instance", notice.InstanceID)
		c.event(node, ReasonCancelled, "The notice for spot instance %s was withdrawn; the node is given back", notice.InstanceID)
	}
	return nil
}

// remove deletes the Node of an instance that was released.
func (c *Controller) remove(ctx context.Context, node *corev1.Node, notice Notice) error {
	deleted, err := c.deleteNode(ctx, node)
	if !deleted {
		return err
	}
	klog.FromContext(ctx).Info("Removed the node of a released instance", "node", klog.KObj(node), "instance", notice.InstanceID)
	c.event(node, ReasonReleased, "Spot instance %s was released; the node is removed", notice.InstanceID)
	return nil
}

// patchNode applies what makePatch asks for, starting from the cached Node and, where that was overtaken, from the live
// one. It says whether there was anything to change. A Node that is gone needs no change.
func patchNode(ctx context.Context, client kubernetes.Interface, node *corev1.Node, makePatch func(*corev1.Node) nodePatch) (changed bool, err error) {
	uid := node.UID
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		patch := makePatch(node)
		if len(patch) == 0 {
			return nil
		}
		body, err := patch.against(node)
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			if node, err = liveNode(ctx, client, node.Name, uid); err == nil {
				err = apierrors.NewConflict(corev1.Resource("nodes"), node.Name, nil)
			}
			return err
		}
		changed = err == nil
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return changed, err
}

// liveNode is a NotFound error where another Node has taken the name.
func liveNode(ctx context.Context, client kubernetes.Interface, name string, uid types.UID) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err == nil && node.UID != uid {
		err = apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return node, err
}
