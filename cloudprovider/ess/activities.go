package ess

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// historyAge is how far back the activities of a pool are read: further than anything that is still to be seen to.
const historyAge = time.Hour

// listActivities reads the activities that are under way, and all recent ones of pools that are new, have a purchase in
// doubt or are congested.
func (p *Provider) listActivities(ctx context.Context, seen *observation) {
	seen.activities, seen.recalled = map[string]alicloud.Activity{}, map[string][]alicloud.Activity{}
	underWay, unread := p.unanswered(seen.managed)
	var mu sync.Mutex
	var asking errgroup.Group
	asking.SetLimit(concurrentRequests)
	if len(underWay) > 0 {
		asking.Go(func() error {
			activities, err := p.Cloud.Activities(ctx, underWay)
			if err != nil {
				klog.Warningf("Cannot read the scaling activities under way, asking again in the next loop: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, activity := range activities {
				seen.activities[activity.ID] = activity
			}
			return nil
		})
	}
	for _, poolID := range unread {
		asking.Go(func() error {
			activities, err := p.Cloud.GroupActivities(ctx, poolID, seen.at.Add(-historyAge))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				seen.problems[problem{poolID, "activities"}] = fmt.Sprintf("cannot read what was bought before, so nothing is bought: %s", alicloud.Brief(err))
			} else {
				seen.recalled[poolID] = activities
			}
			return nil
		})
	}
	_ = asking.Wait() // each reports by itself
}

// unanswered returns the activities to ask about, and the pools of which all recent ones have to be read.
func (p *Provider) unanswered(managed sets.Set[string]) (activities, unread []string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	ids, pools := sets.New[string](), managed.Difference(p.recalled)
	for _, bought := range p.purchases {
		if bought.activityID != "" && !bought.delivery.ended() {
			ids.Insert(bought.activityID)
		}
		if bought.inDoubt() && managed.Has(bought.poolID) {
			pools.Insert(bought.poolID)
		}
	}
	for _, leaving := range p.removals {
		if leaving.activityID != "" && leaving.ended.IsZero() {
			ids.Insert(leaving.activityID)
		}
	}
	for poolID, queue := range p.queues {
		if !queue.congestedAt.IsZero() && managed.Has(poolID) {
			pools.Insert(poolID)
		}
	}
	return sets.List(ids), sets.List(pools)
}

// adoptSeen gives purchases in doubt their activities, before anything is sent again.
func (p *Provider) adoptSeen(seen *observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for poolID, activities := range seen.recalled {
		p.adopt(poolID, activities)
	}
}
