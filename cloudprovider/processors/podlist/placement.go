package podlist

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// placed is a stand-in that has a place in the snapshot.
type placed struct {
	member
	standIn *apiv1.Pod
	node    *apiv1.Node
}

// report calls the supervision with the places of the stand-ins, and returns the pods left without one. A pod that was
// placed on a cordoned or deleted node, as a pod that tolerates all taints can be, gets another place or is added to the pods
// that are left. The pods of a gang that cannot have its minimum are removed from the snapshot again, so that scale-down may
// remove the nodes that they would fill.
func (s *standIns) report(ctx *cacontext.AutoscalingContext, left []*apiv1.Pod) []*apiv1.Pod {
	if len(s.gangs) == 0 {
		return left
	}
	byGang, misplaced := s.locate(ctx)
	for _, pod := range misplaced {
		unschedule(ctx, pod)
		if node := scheduleElsewhere(ctx, pod.standIn); node != nil {
			byGang[pod.gang] = append(byGang[pod.gang], placed{pod.member, pod.standIn, node})
		} else {
			left = append(left, pod.standIn)
		}
	}
	deleted := nodesBeingDeleted(ctx)
	for g, gang := range s.gangs {
		slices.SortFunc(byGang[g], func(a, b placed) int { return a.pod - b.pod })
		s.supervision.Fits(gang.Ref, s.placementOf(ctx, gang, byGang[g], deleted))
	}
	return s.withoutFree(left)
}

// placementOf returns where the pods of the gang would go. It removes them from the snapshot again if they cannot have the minimum, and
// those of a gang for which nothing is bought also from nodes that are not ready.
func (s *standIns) placementOf(ctx *cacontext.AutoscalingContext, gang StandInGang, pods []placed, deleted []*apiv1.Node) (found Placement) {
	isSafe := !fitAny(ctx, pods, deleted)
	for _, pod := range pods {
		isReady := isSafe && isReady(pod.node)
		isUseful := isReady || gang.Extra != ExtraFree
		switch {
		case isReady:
			found.Ready = append(found.Ready, gang.Pods[pod.pod])
		case isUseful:
			found.Coming = append(found.Coming, gang.Pods[pod.pod])
		}
		if !isUseful || len(pods) < gang.Min {
			unschedule(ctx, pod)
		}
	}
	return found
}

// withoutFree returns the pods without those for which nothing is to be bought.
func (s *standIns) withoutFree(pods []*apiv1.Pod) []*apiv1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *apiv1.Pod) bool {
		member, ok := s.members[pod.UID]
		return ok && s.gangs[member.gang].Extra == ExtraFree
	})
}

// locate returns the stand-ins that have a place in the snapshot, by gang, and those on nodes that take no further pods.
func (s *standIns) locate(ctx *cacontext.AutoscalingContext) (byGang map[int][]placed, misplaced []placed) {
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		klog.ErrorS(err, "Cannot list the nodes of the snapshot to find places for stand-ins")
	}
	byGang = map[int][]placed{}
	for _, info := range nodes {
		for _, podInfo := range info.Pods() {
			at, ours := s.members[podInfo.UID]
			switch {
			case !ours:
			case isClosed(info.Node()):
				misplaced = append(misplaced, placed{at, podInfo.Pod, info.Node()})
			default:
				byGang[at.gang] = append(byGang[at.gang], placed{at, podInfo.Pod, info.Node()})
			}
		}
	}
	return byGang, misplaced
}

// scheduleElsewhere places the pod on a node that takes further pods, and returns the node, or nil if the pod fits none.
// Otherwise each loop would buy again for a pod whose node is upcoming.
func scheduleElsewhere(ctx *cacontext.AutoscalingContext, pod *apiv1.Pod) *apiv1.Node {
	name, refused := ctx.ClusterSnapshot.SchedulePodOnAnyNodeMatching(pod, func(info *framework.NodeInfo) bool { return !isClosed(info.Node()) })
	if refused != nil {
		return nil
	}
	info, err := ctx.ClusterSnapshot.GetNodeInfo(name)
	if err != nil {
		return nil
	}
	return info.Node()
}

// isClosed returns whether the node is cordoned or being deleted, so that it should take no further pods.
func isClosed(node *apiv1.Node) bool {
	return node.Spec.Unschedulable || taints.HasToBeDeletedTaint(node)
}

// isReady returns whether the node exists and is ready. Core adds upcoming nodes to the snapshot, with an annotation.
func isReady(node *apiv1.Node) bool {
	readiness, err := kubeutil.GetNodeReadiness(node)
	return err == nil && readiness.Ready && node.Annotations[core.NodeUpcomingAnnotation] != "true"
}

// nodesBeingDeleted returns the nodes that scale-down is deleting.
func nodesBeingDeleted(ctx *cacontext.AutoscalingContext) (deleted []*apiv1.Node) {
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		klog.ErrorS(err, "Cannot list the nodes of the snapshot to find those being deleted")
	}
	for _, info := range nodes {
		if taints.HasToBeDeletedTaint(info.Node()) {
			deleted = append(deleted, info.Node())
		}
	}
	return deleted
}

// fitAny returns whether the scheduler might place one of the pods on one of the nodes that are being deleted, because the pod
// tolerates the taint. The pod would end with the node.
func fitAny(ctx *cacontext.AutoscalingContext, pods []placed, deleted []*apiv1.Node) bool {
	taint := &apiv1.Taint{Key: taints.ToBeDeletedTaint, Effect: apiv1.TaintEffectNoSchedule}
	for _, pod := range pods {
		if !corev1helpers.TolerationsTolerateTaint(pod.standIn.Spec.Tolerations, taint) {
			continue
		}
		for _, node := range deleted {
			if ctx.ClusterSnapshot.CheckPredicates(pod.standIn, node.Name) == nil {
				return true
			}
		}
	}
	return false
}

func unschedule(ctx *cacontext.AutoscalingContext, pod placed) {
	if err := ctx.ClusterSnapshot.UnschedulePod(pod.standIn.Namespace, pod.standIn.Name, pod.node.Name); err != nil {
		klog.ErrorS(err, "Cannot remove a pod from the snapshot", "pod", klog.KObj(pod.standIn), "node", klog.KObj(pod.node))
	}
}
