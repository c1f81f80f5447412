package reclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/problems"
)

// pollTimeout bounds one poll, the client's own retries included: a cloud that hangs is asked again soon.
const pollTimeout = 10 * time.Second

// pollUntilDone asks at once, then after every pause.
func (c *Controller) pollUntilDone(ctx context.Context) {
	for {
		requests, err := c.poll(ctx)
		if err != nil && ctx.Err() == nil {
			pollFailures.Inc()
			klog.FromContext(ctx).Error(err, "Polling for notices failed; what is known stands")
		}
		c.settlePoll(ctx, err)
		pause := c.Clock.NewTimer(c.pause(requests))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C():
		}
	}
}

// settlePoll enters whether notices could be asked for.
func (c *Controller) settlePoll(ctx context.Context, err error) {
	switch {
	case c.Problems == nil || ctx.Err() != nil:
	case err == nil:
		c.Problems.Settle(problems.Poll)
	case errors.Is(err, errNothingShown):
		mend := alicloud.Remedies[alicloud.NotAllowed].Mend
		c.Problems.Settle(problems.Poll, problems.Problem{Reason: string(alicloud.NotAllowed), Cause: err.Error(), Mend: mend, Transient: true})
	default:
		c.Problems.Settle(problems.Poll, problems.Of(err))
	}
}

// poll hears what is new, then looks after those that are doomed but no longer listed. It says how many requests that
// took.
func (c *Controller) poll(ctx context.Context) (requests int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	instances, err := c.Cloud.RecyclingInstances(ctx)
	if err != nil {
		return 1, fmt.Errorf("listing recycling instances: %w", err)
	}
	listed := sets.New[string]()
	words := make([]word, 0, len(instances))
	for _, instance := range instances {
		if instance.SpotStrategy == alicloud.NoSpot {
			continue
		}
		listed.Insert(instance.ID)
		c.noteStopped(instance)
		words = append(words, word{instanceID: instance.ID, source: SourcePoll})
	}
	c.hear(ctx, words...)
	lastPoll.Set(float64(c.Clock.Now().Unix()))
	underWay.Set(float64(len(c.markedNodes())))
	c.pruneHeld()
	unconfirmedNotices.Set(float64(c.unconfirmed().Len()))
	c.noteReplacements()
	asked, err := c.judge(ctx, listed)
	return listRequests(len(instances)) + pages(asked), err
}

// listRequests is how many requests a listing takes. An empty one may have been asked for in two spellings.
func listRequests(listed int) int {
	if listed == 0 {
		return 2
	}
	return pages(listed)
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
	// pushPatience is how long a pushed notice stands that the ECS API does not know of.
	pushPatience = time.Minute

	statusRunning = "Running"
	statusStopped = "Stopped"
)

// errNothingShown: ECS does not show what must be there.
var errNothingShown = errors.New("ECS shows no instance; does the RAM policy allow ecs:DescribeInstances?")

// judge asks after the instances that were given back and are not in ESS any more, and after the doomed instances that are
// not listed, and says after how many. That there is nothing is believed only where a witness is shown; where there is none,
// ESS must list the instance no more either.
func (c *Controller) judge(ctx context.Context, listed sets.Set[string]) (asked int, err error) {
	doomed := c.Doomed()
	c.pruneStopped(doomed)
	c.pruneDenied(doomed)
	unlisted := doomed.Difference(listed)
	for id := range unlisted {
		if c.isForeign(id) {
			c.forget(id)
			unlisted.Delete(id)
		}
	}
	unlisted = unlisted.Union(c.removedAndUnlisted())
	c.pruneEndings(unlisted)
	if unlisted.Len() == 0 {
		return 0, nil
	}
	question, witness := sets.List(unlisted), c.witness(unlisted)
	if witness != "" {
		question = append(question, witness)
	}
	instances, err := c.Cloud.Instances(ctx, question)
	if err == nil && len(instances) == 0 && witness != "" {
		err = fmt.Errorf("%w, not even %s, whose Node is ready", errNothingShown, witness)
	}
	if err != nil {
		return len(question), fmt.Errorf("asking after %d instances on their way out: %w", unlisted.Len(), err)
	}
	existing := make(map[string]alicloud.Instance, len(instances))
	for _, instance := range instances {
		existing[instance.ID] = instance
	}
	for id := range unlisted {
		instance, exists := existing[id]
		if exists {
			c.noteUnseen(ctx, instance)
			c.noteStopped(instance)
			c.compare(ctx, instance)
		}
		c.conclude(id, c.verdictOn(id, instance, exists || witness == "" && c.Lists(id)))
	}
	return len(question), nil
}

// compare takes what ECS says of a doomed instance that the filter for those under Recycling does not find.
func (c *Controller) compare(ctx context.Context, instance alicloud.Instance) {
	switch notice, doomed := c.noticeOn(instance.ID); {
	case !doomed:
	case instance.Recycling() && !notice.Confirmed:
		c.hear(ctx, word{instanceID: instance.ID, source: SourcePoll})
	case instance.Status == statusRunning && !instance.Recycling():
		c.deny(instance.ID)
	}
}

// isForeign says whether nothing but the poll ever knew of the instance. The other sources speak of Nodes: one that is
// missing now may come back.
func (c *Controller) isForeign(id string) bool {
	if len(c.nodesOf(id)) > 0 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, polled := c.notices[id].spoke[SourcePoll]
	return polled && len(c.notices[id].spoke) == 1
}

// verdictOn judges an instance that is not listed as recycling. One that is Stopped is not released: an instance under
// Recycling may be shown so, and one whose SpotInterruptionBehavior is Stop stays so.
func (c *Controller) verdictOn(id string, instance alicloud.Instance, exists bool) verdict {
	if !exists {
		return released
	}
	notice, doomed := c.noticeOn(id)
	if doomed && instance.SpotStrategy == alicloud.NoSpot {
		return withdrawn
	}
	if !doomed || instance.Status != statusRunning || instance.Recycling() {
		return pending
	}
	late := c.Clock.Since(notice.Deadline)
	switch {
	case late >= releaseGrace:
		return withdrawn // a false alarm, whoever still says otherwise
	case late >= 0:
		return pending
	case c.stands(notice):
		return pending
	default:
		return withdrawn
	}
}

// noticeOn is the notice of the instance, with a Node or without.
func (c *Controller) noticeOn(id string) (Notice, bool) {
	if nodes := c.nodesOf(id); len(nodes) > 0 {
		return c.noticeOf(nodes[0])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	heard, ok := c.notices[id]
	return heard.notice, ok
}

// stands says whether a source other than the poll keeps to its word: the ECS API may be behind the metadata service and
// the event bus. What stands on the Node stands until it is taken off. An event is never taken back, so it stands until
// the API has caught up: it knew of the notice, or had the time to.
func (c *Controller) stands(notice Notice) bool {
	for _, node := range c.nodesOf(notice.InstanceID) {
		for _, w := range c.wordsOn(node) {
			if w.source != SourcePush {
				return true
			}
		}
	}
	spoke := c.spoke(notice)
	pushed, isPushed := spoke[SourcePush]
	_, confirmed := spoke[SourcePoll]
	return isPushed && !confirmed && c.Clock.Since(pushed) < pushPatience
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
	if c.verdictOf(id) == pending {
		return
	}
	nodes := c.nodesOf(id)
	for _, node := range nodes {
		c.marks.Add(node.Name)
	}
	if len(nodes) == 0 {
		c.forget(id)
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
	c.removed.Delete(id)
}

// unhear forgets what was heard of the instance, and not what became of it.
func (c *Controller) unhear(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.notices, id)
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
