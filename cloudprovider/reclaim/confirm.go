package reclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// A pushed event is as good as the token of its sender. As long as neither ECS nor the instance itself says the same, its
// Node is marked, its pods are warned and their replacement is bought, which can all be taken back; but nothing is evicted.

// DefaultMaxUnconfirmed is on how many pushed notices is acted that nothing has confirmed: a tenth of the spot Nodes.
var DefaultMaxUnconfirmed = intstr.FromString("10%")

const (
	// unconfirmedMargin is how long before the deadline evictions begin where ECS cannot be asked and the instance does not
	// say: later, pods with an ordinary grace would not be saved. Of a short notice it is half.
	unconfirmedMargin         = 90 * time.Second
	unconfirmedMarginFraction = 2

	// doubtLeast and doubtMost bound for how long it counts that ECS showed an instance unlocked, and how long ECS is given to
	// speak of a notice that came late.
	doubtLeast = 15 * time.Second
	doubtMost  = time.Minute
	doubtPolls = 2

	// spotCountAge is for how long a count of the spot Nodes is good enough.
	spotCountAge = time.Second
)

// evictsUnconfirmedFrom is when evictions begin though nothing has confirmed the notice.
func (n Notice) evictsUnconfirmedFrom() time.Time {
	margin := min(unconfirmedMargin, n.Deadline.Sub(n.FirstSeen)/unconfirmedMarginFraction)
	return n.Deadline.Add(-max(margin, 0))
}

// doubt is long enough for two polls.
func (c *Controller) doubt() time.Duration {
	return min(max(doubtLeast, doubtPolls*c.PollInterval), doubtMost)
}

// isDoubtful says whether nothing may be evicted under the notice yet, and when to look again at the latest. ECS is always
// given the time to speak: the sender chooses the time of an event, and with it the deadline.
func (c *Controller) isDoubtful(n Notice) (until time.Time, doubtful bool) {
	if n.Confirmed {
		return time.Time{}, false
	}
	now := c.Clock.Now()
	heard := later(n.FirstSeen, c.started)
	c.mu.Lock()
	denied := c.denied[n.InstanceID]
	c.mu.Unlock()
	until = later(n.evictsUnconfirmedFrom(), later(heard, denied).Add(c.doubt()))
	return until, now.Before(until)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// deny notes that ECS shows the instance running and unlocked.
func (c *Controller) deny(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied[id] = c.Clock.Now()
}

func (c *Controller) pruneDenied(doomed sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.denied {
		if !doomed.Has(id) {
			delete(c.denied, id)
		}
	}
}

// resume goes on with Nodes whose notice was confirmed.
func (c *Controller) resume(nodes []*corev1.Node) {
	for _, node := range nodes {
		c.drains.Add(node.Name)
		for _, pod := range c.podsOn(node.Name) {
			c.followPod(pod)
		}
	}
}

// unconfirmed are the instances of which there is nothing but a pushed notice that is acted upon.
func (c *Controller) unconfirmed() sets.Set[string] {
	found := sets.New[string]()
	for _, node := range c.markedNodes() {
		if node.Annotations[api.AnnotationReclaimSource] == string(SourcePush) && node.Annotations[api.AnnotationReclaimConfirmed] == "" {
			found.Insert(c.instanceID(node))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, heard := range c.notices {
		if heard.notice.Confirmed {
			found.Delete(id)
		} else {
			found.Insert(id)
		}
	}
	return found
}

// holds says whether the word is a pushed notice that is not acted upon until another source confirms it. What is held
// stays so, or else a flood of false notices would go over all Nodes in turn.
func (c *Controller) holds(ctx context.Context, w word) bool {
	if w.source != SourcePush {
		c.unhold(w.instanceID)
		return false
	}
	c.mu.Lock()
	_, acted := c.notices[w.instanceID]
	_, held := c.held[w.instanceID]
	c.mu.Unlock()
	if held || acted {
		return held
	}
	notice, nodes := c.notice(w), c.nodesOf(w.instanceID)
	why := c.whyHeld(notice, nodes)
	if why == "" {
		return false
	}
	c.hold(notice)
	klog.FromContext(ctx).Info("A pushed notice is held until another source confirms it", "instance", w.instanceID, "why", why)
	for _, node := range nodes {
		c.event(node, ReasonHeld, "A notice was pushed for spot instance %s. It is not acted upon before ECS or the instance's metadata confirm it: %s",
			w.instanceID, why)
	}
	return true
}

// whyHeld is empty for a pushed notice that is acted upon: ECS has not contradicted the last one for the instance shortly
// before, and not too many others are unconfirmed.
func (c *Controller) whyHeld(n Notice, nodes []*corev1.Node) string {
	if slices.ContainsFunc(nodes, isMarked) {
		return "" // by an earlier leader
	}
	for _, node := range nodes {
		if isRefuted(node, n) {
			return fmt.Sprintf("ECS contradicted the last one, and the node was given back, at %s", node.Annotations[api.AnnotationReclaimCancelled])
		}
	}
	if others := c.unconfirmed().Union(c.refuted()).Len(); others >= c.mostUnconfirmed() {
		return fmt.Sprintf("%d others are unconfirmed or were contradicted in the last %v, and no more may be (--reclaim-max-unconfirmed)", others, refutedCounts)
	}
	return ""
}

func (c *Controller) hold(n Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[n.InstanceID] = n.Deadline
	heldNotices.Set(float64(len(c.held)))
}

func (c *Controller) unhold(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.held, id)
	}
	heldNotices.Set(float64(len(c.held)))
}

// pruneHeld forgets the held notices that came to nothing, and has what is left of them taken off their Nodes.
func (c *Controller) pruneHeld() {
	var over []string
	c.mu.Lock()
	for id, deadline := range c.held {
		if c.Clock.Since(deadline) >= releaseGrace {
			over = append(over, id)
		}
	}
	c.mu.Unlock()
	c.unhold(over...)
	for _, id := range over {
		for _, node := range c.nodesOf(id) {
			c.marks.Add(node.Name)
		}
	}
}

// dropOver takes a pushed notice off the Node that came to nothing and was not acted upon.
func (c *Controller) dropOver(ctx context.Context, node *corev1.Node) error {
	if !hasWord(node, SourcePush) || !c.isOver(word{deadline: timeOf(node, api.AnnotationNoticePush)}) {
		return nil
	}
	_, err := patchNode(ctx, c.MarkClient, node, func(node *corev1.Node) nodePatch {
		patch := nodePatch{}
		for _, key := range []string{api.AnnotationNoticePush, api.AnnotationNoticePushReceived} {
			if _, ok := node.Annotations[key]; ok {
				patch.annotate(key, nil)
			}
		}
		return patch
	})
	return err
}

// mostUnconfirmed is MaxUnconfirmed as a number. Shares are rounded up.
func (c *Controller) mostUnconfirmed() int {
	most, err := intstr.GetScaledValueFromIntOrPercent(c.MaxUnconfirmed, c.spotNodes(), true)
	if err != nil {
		panic(err) // New looked at it
	}
	return most
}

// checkMaxUnconfirmed says what is wrong with a MaxUnconfirmed.
func checkMaxUnconfirmed(most *intstr.IntOrString) error {
	number, err := intstr.GetScaledValueFromIntOrPercent(most, 100, true)
	if err == nil && number < 0 {
		err = fmt.Errorf("%s is negative", most)
	}
	return err
}

// spotCount is how many Nodes there are of spot instances, or of instances that may be.
type spotCount struct {
	mu    sync.Mutex
	at    time.Time
	nodes int
}

func (c *Controller) spotNodes() int {
	c.spots.mu.Lock()
	defer c.spots.mu.Unlock()
	if now := c.Clock.Now(); now.Sub(c.spots.at) >= spotCountAge {
		c.spots.at, c.spots.nodes = now, 0
		for _, object := range c.nodeInformer.GetStore().List() {
			if node := object.(*corev1.Node); c.instanceID(node) != "" && !isOnDemand(node) {
				c.spots.nodes++
			}
		}
	}
	return c.spots.nodes
}
