package ess

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// recall takes up the purchases of a previous process from the activities of a pool that this one has not yet seen:
// those still under way, and broken atomic ones, of which what came has to be given back. Needs p.mu for writing.
func (p *Provider) recall(activities []alicloud.Activity) {
	for _, activity := range activities {
		note, ours := noteOf(activity)
		if !ours || p.purchases[note.Token] != nil {
			continue
		}
		short := note.Atomic && activity.Done() && len(activity.CreatedInstances) < note.Count
		if activity.Done() && !short {
			continue
		}
		recalled := &purchase{
			poolID: activity.ScalingGroupID, atomic: note.Atomic, requested: activity.Started,
			offering:  offering{note.InstanceType, note.Zone, note.Purchase},
			targeting: note.Targeting, activityID: activity.ID,
			arrived: sets.New(activity.CreatedInstances...),
			request: alicloud.ScaleRequest{ScalingGroupID: activity.ScalingGroupID, Delta: note.Count, ClientToken: note.Token},
		}
		if recalled.requested.IsZero() {
			recalled.requested = p.Clock.Now()
		}
		if short {
			recalled.settled, recalled.ended = true, true
			recalled.failure = &cloudprovider.InstanceErrorInfo{ErrorCode: activity.ErrorCode}
		}
		p.purchases[note.Token] = recalled
		klog.Infof("Took up purchase %s of %d in pool %s, activity %s (%s)", note.Token, note.Count,
			recalled.poolID, activity.ID, activity.Status)
	}
}

// rollBack gives back what a broken atomic purchase brought, and says whether any of it is left. Needs p.mu.
func (p *Provider) rollBack(bought *purchase) (left bool) {
	if !bought.broken() {
		return false
	}
	var ids []string
	for id := range p.returnable(bought) {
		left = true
		if !p.isLeaving(p.instances[id]) {
			ids = append(ids, id)
		}
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotPurchaseRolledBack",
			"Giving back %d of %d instances of %s: all or nothing was asked for", len(ids), bought.request.Delta,
			bought.offering.groupID(bought.poolID))
		p.remover.giveBack(bought.poolID, ids)
	}
	return left
}
