package ess

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// standing is what an instance is worth as capacity.
type standing int

const (
	// serving: pods run on it, or soon will.
	serving standing = iota
	// leaving: it is being removed, by us or by anyone.
	leaving
	// reclaiming: it has its notice.
	reclaiming
	// standingBy and stopped: it stays in its scaling group, costs money or holds room, and serves nothing.
	// Source: "Standby" and "Stopped" (economical mode) of the lifecycle of ECS instances in the ESS documentation.
	standingBy
	stopped
)

// standingOf is as of now, whatever the loop goes by. Needs p.mu.
func (p *Provider) standingOf(instance alicloud.ScalingInstance) standing {
	switch {
	case p.isLeaving(instance):
		return leaving
	case p.doomed.Has(instance.ID):
		return reclaiming
	case instance.LifecycleState == alicloud.LifecycleStandby:
		return standingBy
	case instance.LifecycleState == alicloud.LifecycleStopped:
		return stopped
	}
	return serving
}

// isLeaving says whether the instance is being removed, by us or by anyone. Needs p.mu.
func (p *Provider) isLeaving(instance alicloud.ScalingInstance) bool {
	return p.removals[instance.ID] != nil || strings.HasPrefix(instance.LifecycleState, alicloud.LifecycleRemoving)
}

// isKept says whether somebody has told ESS to keep the instance as it is. RemoveInstances would remove it all the same.
// Source: SetInstancesProtection of the ESS documentation; it holds for activities of ESS itself.
func isKept(instance alicloud.ScalingInstance) bool {
	switch instance.LifecycleState {
	case alicloud.LifecycleProtected, alicloud.LifecycleStandby, alicloud.LifecycleStopped:
		return true
	}
	return false
}

// OutOfService says whether the node is no capacity though nobody reclaims it: its instance is being given back, or was
// and is gone, or stands by, or is stopped. It answers alike from one BeginLoop to the next, and so do the targets and
// instances of the node groups: core takes the difference between a target and the Nodes that it sees for what is still
// to come, so that one that is counted on one side only hides a purchase.
func (p *Provider) OutOfService(node *apiv1.Node) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.outOfService.Has(p.instanceIDOf(node))
}

// findOutOfService is what the loop that begins does not count. Needs p.mu.
func (p *Provider) findOutOfService(nodes []*apiv1.Node) sets.Set[string] {
	found := p.left.Clone()
	for id, instance := range p.instances {
		switch p.standingOf(instance) {
		case leaving, standingBy, stopped:
			found.Insert(id)
		}
	}
	for _, bought := range p.purchases {
		found = found.Union(p.undelivered(bought))
	}
	if p.refreshed.IsZero() {
		return found // nothing is known to be gone
	}
	for _, node := range nodes {
		id := p.instanceIDOf(node)
		if _, listed := p.instances[id]; !listed && node.Annotations[api.AnnotationRemoved] != "" {
			found.Insert(id) // a former process gave it back
		}
	}
	return found
}

// noteLeft remembers which instances have gone after they were removed: their Nodes may stay, even as Ready ones, until
// somebody notices. What vanished otherwise may live on, as in a scaling group that is not ours any more. Needs p.mu.
func (p *Provider) noteLeft(listed map[string]alicloud.ScalingInstance) {
	for id, instance := range p.instances {
		if _, exists := listed[id]; !exists && p.isLeaving(instance) {
			p.left.Insert(id)
		}
	}
	p.left = p.left.Intersection(sets.KeySet(p.providerIDs)).Difference(sets.KeySet(listed))
}

// Lists says whether the instance was in a pool of ours at the last refresh. Before the first one every instance may be.
func (p *Provider) Lists(instanceID string) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	_, listed := p.instances[instanceID]
	return listed || p.refreshed.IsZero()
}

// disputes are the instances that several Nodes say to be. One of those Nodes is idle, and would have the instance
// removed under the pods of the other. It tells of each once.
func (p *Provider) disputes(nodes []*apiv1.Node) sets.Set[string] {
	claims := map[string][]string{}
	for _, node := range nodes {
		if id := p.instanceIDOf(node); id != "" {
			claims[id] = append(claims[id], node.Name)
		}
	}
	disputed := sets.New[string]()
	for id, names := range claims {
		if len(names) < 2 {
			continue
		}
		disputed.Insert(id)
		slices.Sort(names)
		p.reports.once(fmt.Sprint("disputed/", id, names), func() {
			p.Events.Eventf(apiv1.EventTypeWarning, "SpotNodeDisputed",
				"Nodes %s all say that they are instance %s, which is not given back until only one does", strings.Join(names, ", "), id)
		})
	}
	return disputed
}

// idle are the problems of pools that hold instances which serve nothing, by state.
func (p *Provider) idle(problems map[problem]string) {
	type state struct{ pool, lifecycle string }
	ids := map[state][]string{}
	for id, instance := range p.instances {
		if where := p.standingOf(instance); where == standingBy || where == stopped {
			key := state{instance.ScalingGroupID, instance.LifecycleState}
			ids[key] = append(ids[key], id)
		}
	}
	for key, idle := range ids {
		if p.pools[key.pool] == nil {
			continue
		}
		slices.Sort(idle)
		problems[problem{key.pool, strings.ToLower(key.lifecycle)}] = fmt.Sprintf(
			"%d instances are %s in ESS: they hold room in the scaling group, and nothing is placed on them: %s", len(idle), key.lifecycle, some(idle))
	}
}

// some names the first few.
func some(ids []string) string {
	const most = 5
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return strings.Join(ids[:most], ", ") + ", …"
}
