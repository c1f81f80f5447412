package reclaim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// pollTimeout bounds one poll, the client's own retries included: a cloud that hangs is asked again soon.
const pollTimeout = 10 * time.Second

// pollUntilDone asks at once, then every PollInterval.
func (c *Controller) pollUntilDone(ctx context.Context) {
	ticker := c.Clock.NewTicker(c.PollInterval)
	defer ticker.Stop()
	for {
		if err := c.poll(ctx); err != nil && ctx.Err() == nil {
			pollFailures.Inc()
			klog.FromContext(ctx).Error(err, "Polling for notices failed; what is known stands")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// poll hears what is new, then looks after those that are doomed but no longer listed.
func (c *Controller) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	instances, err := c.Cloud.RecyclingInstances(ctx)
	if err != nil {
		return fmt.Errorf("listing recycling instances: %w", err)
	}
	listed := sets.New[string]()
	for _, instance := range instances {
		listed.Insert(instance.ID)
	}
	c.hear(ctx, SourcePoll, listed)
	lastPoll.Set(float64(c.Clock.Now().Unix()))
	underWay.Set(float64(len(c.markedNodes())))
	return c.judge(ctx, listed)
}

// verdict is what the cloud says of a doomed instance that it no longer lists as recycling.
type verdict string

const (
	// pending: it still is on its way out.
	pending verdict = "pending"
	// released: it no longer exists.
	released verdict = "released"
	// withdrawn: it lives on, unlocked.
	withdrawn verdict = "withdrawn"
)

// ending is a verdict and in how many polls in a row it was given.
type ending struct {
	verdict verdict
	polls   int
}

const (
	// confirmations is how many polls in a row must agree before a Node is deleted or given back: two calls to the cloud
	// may answer from replicas that differ for a moment.
	confirmations = 2
	// releaseGrace is how long after its deadline an unlocked, running instance may still be about to go.
	releaseGrace = time.Minute

	statusRunning = "Running"
)

// judge asks after the doomed instances that are not listed, and forgets those without a Node.
func (c *Controller) judge(ctx context.Context, listed sets.Set[string]) error {
	unlisted := c.Doomed().Difference(listed)
	for id := range unlisted {
		if c.nodeOf(id) == nil {
			c.forget(id)
			unlisted.Delete(id)
		}
	}
	c.pruneEndings(unlisted)
	if unlisted.Len() == 0 {
		return nil
	}
	instances, err := c.Cloud.Instances(ctx, sets.List(unlisted))
	if err != nil {
		return fmt.Errorf("asking after %d doomed instances: %w", unlisted.Len(), err)
	}
	existing := make(map[string]alicloud.Instance, len(instances))
	for _, instance := range instances {
		existing[instance.ID] = instance
	}
	for id := range unlisted {
		instance, exists := existing[id]
		c.conclude(id, c.verdictOn(id, instance, exists))
	}
	return nil
}

func (c *Controller) verdictOn(id string, instance alicloud.Instance, exists bool) verdict {
	if !exists {
		return released
	}
	if instance.Status != statusRunning || slices.Contains(instance.LockReasons, alicloud.LockRecycling) {
		return pending
	}
	node := c.nodeOf(id)
	if node == nil {
		return pending
	}
	notice, _ := c.noticeOf(node)
	late := c.Clock.Since(notice.Deadline)
	if late >= 0 && late < releaseGrace {
		return pending
	}
	return withdrawn
}

// conclude counts the verdict, and has the Node dealt with once enough polls agree.
func (c *Controller) conclude(id string, v verdict) {
	c.mu.Lock()
	if v == pending {
		delete(c.endings, id)
	} else {
		last := c.endings[id]
		if last.verdict != v {
			last = ending{verdict: v}
		}
		last.polls++
		c.endings[id] = last
	}
	c.mu.Unlock()
	if node := c.nodeOf(id); node != nil && c.verdictOf(id) != pending {
		c.marks.Add(node.Name)
	}
}

// verdictOf is pending until enough polls agree on another.
func (c *Controller) verdictOf(id string) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ending, ok := c.endings[id]; ok && ending.polls >= confirmations {
		return ending.verdict
	}
	return pending
}

func (c *Controller) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notices, id)
	delete(c.endings, id)
}

// pruneEndings keeps those of the given instances. A verdict outlives the notice until the informer shows the Node
// without marks, so that nothing acts on the marks in between.
func (c *Controller) pruneEndings(keep sets.Set[string]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.endings {
		if !keep.Has(id) {
			delete(c.endings, id)
		}
	}
}
