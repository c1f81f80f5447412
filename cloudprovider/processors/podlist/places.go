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
	// groups are the ids of the node groups by pod.
	groups map[types.UID]string
}

// NewPlaces returns an empty record.
func NewPlaces() *Places { return &Places{groups: map[types.UID]string{}} }

// Remember records that a node of the node group was bought for the pod.
func (p *Places) Remember(pod *apiv1.Pod, groupID string) { p.groups[pod.UID] = groupID }

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
	maps.DeleteFunc(p.groups, func(uid types.UID, _ string) bool { return !pending.Has(uid) })
	return left, nil
}

func (p *Places) place(snapshot clustersnapshot.ClusterSnapshot, pod *apiv1.Pod) (bool, error) {
	groupID, bought := p.groups[pod.UID]
	if !bought {
		return false, nil
	}
	_, err := snapshot.SchedulePodOnAnyNodeMatching(pod, func(node *framework.NodeInfo) bool {
		return isUpcomingOf(groupID, node.Node().Name)
	})
	if err != nil && err.Type() == clustersnapshot.SchedulingInternalError {
		return false, err
	}
	return err == nil, nil
}

// isUpcomingOf says whether core has named an upcoming node of the node group so: template-node-for-<id>-<random number>-upcoming-<n>.
// If core names them otherwise, the pods are placed with all others. Source: SanitizedTemplateNodeInfoFromNodeInfo in
// simulator/node_info_utils.go and getUpcomingNodeInfos in core/static_autoscaler.go of cluster-autoscaler 1.33.
func isUpcomingOf(groupID, node string) bool {
	rest, isOfGroup := strings.CutPrefix(node, "template-node-for-"+groupID+"-")
	_, rest, isUpcoming := strings.Cut(rest, "-upcoming-")
	return isOfGroup && isUpcoming && rest != ""
}

// CleanUp does nothing.
func (p *Places) CleanUp() {}
