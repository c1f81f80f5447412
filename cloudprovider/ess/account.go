package ess

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// account settles purchases and removals against what was seen.
func (p *Provider) account(seen *observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLeft(seen.instances)
	p.instances = seen.instances
	// Of what is gone only that is remembered which still has a Node.
	p.seen = p.seen.Intersection(sets.KeySet(p.providerIDs)).Union(sets.KeySet(seen.instances))
	for poolID, activities := range seen.recalled {
		p.recall(activities)
		p.resolve(poolID, activities)
		p.recalled.Insert(poolID)
		for _, activity := range activities {
			p.judge(activity)
			seen.activities[activity.ID] = activity
		}
	}
	p.recalled = p.recalled.Intersection(seen.managed)
	p.accountPurchases(seen)
	p.accountRemovals(seen)
}

func (p *Provider) accountPurchases(seen *observation) {
	arrivedBy := map[string][]string{}
	for id, instance := range seen.instances {
		if instance.ScalingActivityID != "" {
			arrivedBy[instance.ScalingActivityID] = append(arrivedBy[instance.ScalingActivityID], id)
		}
	}
	for token, bought := range p.purchases {
		if !seen.managed.Has(bought.poolID) {
			delete(p.purchases, token)
			continue
		}
		if bought.activityID != "" {
			bought.arrived.Insert(arrivedBy[bought.activityID]...)
		}
		var answer *alicloud.Activity
		if activity, ok := seen.activities[bought.activityID]; ok {
			answer = &activity
			p.judge(activity)
		}
		p.settle(bought, answer, seen.at)
		left := p.rollBack(bought)
		// What timed out is kept until it has ended: what comes late of a gang has to be given back, too.
		if over := bought.ended || bought.activityID == ""; bought.settled && over && len(bought.placeholders) == 0 && !left {
			delete(p.purchases, token)
		}
		if bought.activityID == "" && !bought.sending && bought.outstanding() == 0 && len(bought.placeholders) == 0 {
			delete(p.purchases, token) // cancelled before it was sent
		}
	}
}
