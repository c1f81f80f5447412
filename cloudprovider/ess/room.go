package ess

import (
	apiv1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Room is how many pods that ask for as much as this one the pools could hold, if each were bought up to its maximum with
// the offering that holds most of them. It is a bound: whether they may go there, and what else is there, is left aside.
func (p *Provider) Room(pod *apiv1.Pod) int {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	p.mu.RLock()
	defer p.mu.RUnlock()
	room := 0
	for _, pool := range p.pools {
		most := 0
		for _, known := range pool.byGroupID {
			most = max(most, RoomOn(known.template, requests))
		}
		for _, known := range pool.offerings {
			most = max(most, RoomOn(known.template, requests))
		}
		room += most * max(pool.maxSize, p.poolTally(pool.id).live)
	}
	return room
}

// RoomOn is how many pods with the requests the node could hold if it were empty.
func RoomOn(node *apiv1.Node, requests apiv1.ResourceList) int {
	if node == nil {
		return 0
	}
	most := node.Status.Allocatable.Pods().Value()
	for name, wanted := range requests {
		if wanted.Sign() <= 0 {
			continue
		}
		offered := node.Status.Allocatable[name]
		most = min(most, offered.MilliValue()/max(wanted.MilliValue(), 1))
	}
	return int(max(most, 0))
}
