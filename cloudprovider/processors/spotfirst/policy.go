// Package spotfirst has pods wait for spot capacity before on-demand instances are bought for them: as long as the tag
// gpu-spot.autoscaling/on-demand-after of a pool of on-demand instances says, or the annotation of the same name on the pod.
//
// A pod waits from its creation on. One that is on a reclaiming node has run already, so what replaces its node is bought at once.
//
// It is a scaleup.Orchestrator around that of package scaleup, which core calls in each loop with the pods that have no place.
package spotfirst

import (
	"fmt"
	"math"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// never is longer than any pod waits.
const never = time.Duration(math.MaxInt64)

// Offerings knows the offerings, by the ids of their node groups.
type Offerings interface {
	// OnDemandAfter returns how long pods wait before instances of the offering are bought for them, and whether it is of on-demand instances.
	OnDemandAfter(groupID string) (wait time.Duration, onDemand bool)
}

// Policy says which on-demand offerings may be bought for which pods. It is safe for concurrent use.
type Policy struct {
	offerings Offerings
	clock     clock.PassiveClock
}

// NewPolicy returns a policy of these offerings.
func NewPolicy(offerings Offerings, clk clock.PassiveClock) *Policy {
	return &Policy{offerings: offerings, clock: clk}
}

// MalformedError is why the wish of a pod is ignored.
type MalformedError struct{ Value string }

func (e *MalformedError) Error() string {
	return fmt.Sprintf("annotation %s=%q is ignored: it is neither a duration such as 10m nor %q", api.AnnotationOnDemandAfter, e.Value, api.OnDemandNever)
}

// wish returns how long the pod wants to wait, and false if it does not say. The error is a *MalformedError.
func wish(pod *apiv1.Pod) (wait time.Duration, ok bool, err error) {
	value, ok := pod.Annotations[api.AnnotationOnDemandAfter]
	switch {
	case !ok:
		return 0, false, nil
	case value == api.OnDemandNever:
		return never, true, nil
	}
	wait, err = time.ParseDuration(value)
	if err != nil || wait < 0 {
		return 0, false, &MalformedError{value}
	}
	return wait, true, nil
}

// Wait returns how long the pod has yet to wait before the node group may be bought for it: 0 if it has waited long enough, or if the group is of
// spot instances.
func (p *Policy) Wait(groupID string, pod *apiv1.Pod) time.Duration {
	wait, onDemand := p.offerings.OnDemandAfter(groupID)
	if !onDemand {
		return 0
	}
	if wished, ok, err := wish(pod); err == nil && ok {
		wait = wished
	}
	if wait == never {
		return never
	}
	return max(0, wait-p.clock.Since(pod.CreationTimestamp.Time))
}

// Allows returns whether the node group may be bought for the pods: as soon as it may for one of them, since a gang has waited as long as its
// first pod.
func (p *Policy) Allows(groupID string, pods []*apiv1.Pod) bool {
	for _, pod := range pods {
		if p.Wait(groupID, pod) == 0 {
			return true
		}
	}
	return len(pods) == 0
}

// split returns the pods for which all groups may be bought, and the others.
func (p *Policy) split(groups []cloudprovider.NodeGroup, pods []*apiv1.Pod) (waited, waiting []*apiv1.Pod) {
	var onDemand []string
	for _, group := range groups {
		if _, is := p.offerings.OnDemandAfter(group.Id()); is {
			onDemand = append(onDemand, group.Id())
		}
	}
	for _, pod := range pods {
		if p.mustWait(onDemand, pod) {
			waiting = append(waiting, pod)
		} else {
			waited = append(waited, pod)
		}
	}
	return waited, waiting
}

func (p *Policy) mustWait(groups []string, pod *apiv1.Pod) bool {
	for _, id := range groups {
		if p.Wait(id, pod) > 0 {
			return true
		}
	}
	return false
}
