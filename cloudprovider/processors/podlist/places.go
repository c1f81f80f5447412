package podlist

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulernames "k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
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
	if len(p.groups) == 0 {
		return unschedulable, nil
	}
	upcoming, err := upcomingNodesIn(ctx.ClusterSnapshot)
	if err != nil {
		return nil, err
	}
	pending := sets.New[types.UID]()
	left := make([]*apiv1.Pod, 0, len(unschedulable))
	for _, pod := range unschedulable {
		pending.Insert(pod.UID)
		placed, err := upcoming.place(pod, p.groups[pod.UID])
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

// maxMisfits is on how many upcoming nodes that have room a pod is tried that may not run there: its affinity or its spread is
// evaluated over the whole cluster each time. It is placed with all others then.
const maxMisfits = 10

// upcomingNodes places pods on the upcoming nodes of their node group, on the first that they fit. Core would look at all nodes for
// each pod. In a reclaim of a thousand nodes with eight thousand pods that took most of the time of a loop.
type upcomingNodes struct {
	snapshot clustersnapshot.ClusterSnapshot
	// names are by node group.
	names map[string][]string
	// full is how many of the names, from the first, have no room for a pod with such requests.
	full map[requestsOfGroup]int
}

// requestsOfGroup are the requests of a pod, as text, and the node group that was bought of for it.
type requestsOfGroup struct{ group, requests string }

func upcomingNodesIn(snapshot clustersnapshot.ClusterSnapshot) (*upcomingNodes, error) {
	nodes, err := snapshot.ListNodeInfos()
	if err != nil {
		return nil, fmt.Errorf("list the nodes of the snapshot: %w", err)
	}
	u := &upcomingNodes{snapshot: snapshot, names: map[string][]string{}, full: map[requestsOfGroup]int{}}
	for _, node := range nodes {
		if group, isUpcoming := upcomingOf(node.Node().Name); isUpcoming {
			u.names[group] = append(u.names[group], node.Node().Name)
		}
	}
	return u, nil
}

// place returns whether the pod fits an upcoming node of the node group.
func (u *upcomingNodes) place(pod *apiv1.Pod, groupID string) (bool, error) {
	names := u.names[groupID]
	if len(names) == 0 {
		return false, nil
	}
	alike := requestsOfGroup{groupID, requestsOf(pod)}
	onlyFull, misfits := true, 0
	for i := u.full[alike]; i < len(names) && misfits < maxMisfits; i++ {
		err := u.snapshot.SchedulePod(pod, names[i])
		switch {
		case err == nil:
			return true, nil
		case err.Type() == clustersnapshot.SchedulingInternalError:
			return false, err
		}
		if err.FailingPredicateName() != schedulernames.NodeResourcesFit {
			onlyFull, misfits = false, misfits+1
		}
		if onlyFull { // and no pod that comes to it makes room
			u.full[alike] = i + 1
		}
	}
	return false, nil
}

// requestsOf returns the same text for pods with the same requests.
func requestsOf(pod *apiv1.Pod) string {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		quantity := requests[name]
		fmt.Fprintf(&text, "%s=%s,", name, quantity.String())
	}
	return text.String()
}

// upcomingOf returns the node group of an upcoming node, which core names template-node-for-<id>-<random number>-upcoming-<n>. If
// core names them otherwise, the pods are placed with all others. Source: SanitizedTemplateNodeInfoFromNodeInfo in
// simulator/node_info_utils.go and getUpcomingNodeInfos in core/static_autoscaler.go of cluster-autoscaler 1.33.
func upcomingOf(node string) (groupID string, isUpcoming bool) {
	rest, isTemplate := strings.CutPrefix(node, "template-node-for-")
	end := strings.LastIndex(rest, "-upcoming-")
	if !isTemplate || end < 0 {
		return "", false
	}
	end = strings.LastIndexByte(rest[:end], '-')
	if end < 0 {
		return "", false
	}
	return rest[:end], true
}

// CleanUp does nothing.
func (p *Places) CleanUp() {}
