package podlist

import (
	"maps"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
)

// Places remembers which node groups nodes were bought of for which pods. In the next loops those pods are placed on upcoming nodes
// of their node group before any other pod is placed. Several node groups may have been bought of in one loop. If their pods
// were placed in any order, a pod that fits nodes of both could fill a node that was bought for a pod that fits no other, and one
// more would be bought.
//
// Only one goroutine may use it: that of the loop.
type Places struct {
	// templates are the names of the nodes' templates, by pod. Core makes the names of upcoming nodes of them, see
	// getUpcomingNodeInfos in core/static_autoscaler.go. A name that fits no node does no harm: the pod is placed with the others.
	templates map[types.UID]string
}

// NewPlaces returns an empty record.
func NewPlaces() *Places { return &Places{templates: map[types.UID]string{}} }

// Remember records that a node like the template was bought for the pod.
func (p *Places) Remember(pod *apiv1.Pod, template *apiv1.Node) { p.templates[pod.UID] = template.Name }

// Process places the pods that it remembers, and returns the others and those that fit no upcoming node of theirs. It forgets
// pods that are not pending any more.
func (p *Places) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	pending := sets.New[types.UID]()
	left := make([]*apiv1.Pod, 0, len(unschedulable))
	for _, pod := range unschedulable {
		pending.Insert(pod.UID)
		placed, err := p.place(ctx.ClusterSnapshot, pod)
		if err != nil {
			return nil, err
		}
		if !placed {
			left = append(left, pod)
		}
	}
	maps.DeleteFunc(p.templates, func(uid types.UID, _ string) bool { return !pending.Has(uid) })
	return left, nil
}

func (p *Places) place(snapshot clustersnapshot.ClusterSnapshot, pod *apiv1.Pod) (bool, error) {
	template, bought := p.templates[pod.UID]
	if !bought {
		return false, nil
	}
	_, err := snapshot.SchedulePodOnAnyNodeMatching(pod, func(node *framework.NodeInfo) bool {
		return strings.HasPrefix(node.Node().Name, template+"-")
	})
	if err != nil && err.Type() == clustersnapshot.SchedulingInternalError {
		return false, err
	}
	return err == nil, nil
}

// CleanUp does nothing.
func (p *Places) CleanUp() {}
