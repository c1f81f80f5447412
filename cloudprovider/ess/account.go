package ess

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// account settles purchases and removals against what was seen.
func (p *Provider) account(seen *observation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteLeft(seen.instances)
	p.keepAims(seen.groups)
	p.instances = seen.instances
	// Of what is gone only that is remembered which still has a Node.
	p.seen = p.seen.Intersection(sets.KeySet(p.providerIDs)).Union(sets.KeySet(seen.instances))
	arrivedBy := arrivals(seen.instances)
	for poolID, activities := range seen.recalled {
		if !p.recalled.Has(poolID) {
			p.recall(activities, arrivedBy, seen.at)
			p.recalled.Insert(poolID)
		}
		p.resolve(poolID, seen.at)
		p.relieve(poolID, activities, seen.at)
		for _, activity := range activities {
			p.judge(activity)
			seen.activities[activity.ID] = activity
		}
	}
	p.recalled = p.recalled.Intersection(seen.managed)
	p.noteUnread(seen)
	p.expire(seen.at)
	p.noteProbes()
	p.accountPurchases(seen, arrivedBy)
	p.settleProbes(seen.at)
	p.accountRemovals(seen)
}

// noteUnread keeps since when the activities of pools could not be read. Needs p.mu for writing.
func (p *Provider) noteUnread(seen *observation) {
	unread := map[string]time.Time{}
	for poolID := range seen.managed.Difference(p.recalled) {
		unread[poolID] = seen.at
		if since, known := p.unreadSince[poolID]; known {
			unread[poolID] = since
		}
	}
	p.unreadSince = unread
}

// arrivals are the instances by the activity that brought them.
func arrivals(instances map[string]alicloud.ScalingInstance) map[string][]string {
	arrivedBy := map[string][]string{}
	for id, instance := range instances {
		if instance.ScalingActivityID != "" {
			arrivedBy[instance.ScalingActivityID] = append(arrivedBy[instance.ScalingActivityID], id)
		}
	}
	return arrivedBy
}

func (p *Provider) accountPurchases(seen *observation, arrivedBy map[string][]string) {
	for token, bought := range p.purchases {
		if !seen.managed.Has(bought.poolID) {
			delete(p.purchases, token)
			continue
		}
		if !bought.accepted.IsZero() {
			p.accountFor(bought, seen, arrivedBy)
		}
		if left := p.rollBack(bought); !left && p.isOver(bought, seen.at) {
			delete(p.purchases, token)
		}
	}
	for poolID := range p.queues {
		if !seen.managed.Has(poolID) {
			delete(p.queues, poolID)
		}
	}
}

// accountFor takes stock of a purchase that the cloud accepted. Needs p.mu for writing.
func (p *Provider) accountFor(bought *purchase, seen *observation, arrivedBy map[string][]string) {
	listed := arrivedBy[bought.activityID]
	var answer *alicloud.Activity
	if bought.activityID == "" {
		listed = p.strays(bought, arrivedBy)
	} else if activity, ok := seen.activities[bought.activityID]; ok {
		answer = &activity
	}
	p.takeStock(bought, answer, listed, seen.at)
	if !bought.recalled.isBlind() {
		p.compare(bought.poolID, bought.note(), bought.delivery.arrived.UnsortedList())
	}
	p.settle(bought, seen.at)
}
