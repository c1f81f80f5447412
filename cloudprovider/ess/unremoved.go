package ess

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"
)

// mostRetries is how often the removal of an instance is asked for again that the cloud accepted and did not carry out.
const mostRetries = 3

// unremoved is an instance whose removal the cloud accepted and did not carry out.
type unremoved struct {
	poolID string
	why    reason
	// retries is how often it was asked for again; due says that it is to be.
	retries int
	due     bool
}

func (u unremoved) next(failed *removal) unremoved {
	return unremoved{poolID: failed.poolID, why: failed.why, retries: u.retries, due: u.retries < mostRetries}
}

// retryRemovals asks again for removals that were not carried out, while nobody uses the instance: its Node takes no pods,
// as core or whoever gave it back has left it, and has none. Core itself would come back to such a Node only after five
// minutes (MaxCloudProviderNodeDeletionTime in core/scaledown/actuation), and the instance costs money until then.
func (p *Provider) retryRemovals(nodes []*apiv1.Node, disputed sets.Set[string]) {
	due := p.takeUnremoved()
	if len(due) == 0 {
		return
	}
	for _, node := range nodes {
		id := p.instanceIDOf(node)
		left, isDue := due[id]
		closed := node.Spec.Unschedulable || taints.HasToBeDeletedTaint(node)
		if !isDue || !closed || disputed.Has(id) || p.Occupied == nil || p.Occupied(node) {
			continue
		}
		if _, err := p.remover.join(left.poolID, []string{id}, left.why); err != nil {
			klog.Warningf("Cannot give back %s again: %v", id, err)
		}
	}
}

// takeUnremoved returns what is due by instance, and counts it as asked for again.
func (p *Provider) takeUnremoved() map[string]unremoved {
	p.mu.Lock()
	defer p.mu.Unlock()
	due := map[string]unremoved{}
	for id, left := range p.unremoved {
		if left.due {
			due[id] = left
			left.due = false
			left.retries++
			p.unremoved[id] = left
		}
	}
	return due
}
