package processors

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// Evacuees adds the pods of doomed nodes to those that wait for one, so that their new home is bought at the notice, in
// parallel to the drain. For a pod that tolerates every taint, as those of "arena submit etjob --toleration=all" do, it
// is the only way: however often such a pod is evicted, it finds room on the doomed node again at once, and is never
// pending.
//
// [DyingNodes] has taken the nodes out of the snapshot, with their pods, so that no pod counts twice there. A pod that
// nobody will make anew is left out, and so is one on its way out that has its successor: that is pending by itself, or
// has found its place. What was bought for an evacuee is found by its successor.
type Evacuees struct {
	inner  pods.PodListProcessor
	doomed func(*apiv1.Node) bool
}

var _ pods.PodListProcessor = (*Evacuees)(nil)

// NewEvacuees puts itself in front of another processor, which places pods on nodes that exist or are on their way.
func NewEvacuees(inner pods.PodListProcessor, doomed func(*apiv1.Node) bool) *Evacuees {
	return &Evacuees{inner: inner, doomed: doomed}
}

// Process hands on the pods and the evacuees. Where those cannot be listed it goes on without: an error would keep core
// from buying at all.
func (e *Evacuees) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	evacuees, err := e.list(ctx)
	if err != nil {
		klog.Errorf("Not looking for the pods of doomed nodes: %v", err)
	}
	return e.inner.Process(ctx, append(unschedulable, evacuees...))
}

func (e *Evacuees) list(ctx *cacontext.AutoscalingContext) ([]*apiv1.Pod, error) {
	nodes, err := ctx.AllNodeLister().List()
	if err != nil {
		return nil, err
	}
	doomed := map[string]bool{}
	for _, node := range nodes {
		if e.doomed(node) {
			doomed[node.Name] = true
		}
	}
	if len(doomed) == 0 {
		return nil, nil
	}
	all, err := ctx.AllPodLister().List()
	if err != nil {
		return nil, err
	}
	var evacuees, leaving []*apiv1.Pod
	for _, pod := range all {
		switch {
		case !doomed[pod.Spec.NodeName] || !comesAgain(pod):
		case pod.DeletionTimestamp == nil:
			evacuees = append(evacuees, pod)
		default:
			leaving = append(leaving, pod)
		}
	}
	evacuees = append(evacuees, withoutSuccessor(leaving, all)...)
	return alive(podutil.ClearPodNodeNames(podutil.FilterRecreatablePods(evacuees))), nil
}

// comesAgain says whether the pod has not ended, and somebody makes another one when it is gone.
func comesAgain(pod *apiv1.Pod) bool {
	ended := pod.Status.Phase == apiv1.PodSucceeded || pod.Status.Phase == apiv1.PodFailed
	return !ended && metav1.GetControllerOf(pod) != nil
}

// withoutSuccessor leaves out as many of an owner's leaving pods as it has made since the first of them was told to go.
func withoutSuccessor(leaving, all []*apiv1.Pod) (left []*apiv1.Pod) {
	since, successors := map[types.UID]time.Time{}, map[types.UID]int{}
	for _, pod := range leaving {
		owner, told := metav1.GetControllerOf(pod).UID, toldToGo(pod)
		if first, known := since[owner]; !known || told.Before(first) {
			since[owner] = told
		}
	}
	for _, pod := range all {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || pod.DeletionTimestamp != nil {
			continue
		}
		if told, known := since[owner.UID]; known && !pod.CreationTimestamp.Time.Before(told) {
			successors[owner.UID]++
		}
	}
	for _, pod := range leaving {
		if owner := metav1.GetControllerOf(pod).UID; successors[owner] > 0 {
			successors[owner]--
		} else {
			left = append(left, pod)
		}
	}
	return left
}

func toldToGo(pod *apiv1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// alive makes the copies of pods look as their successors will.
func alive(copies []*apiv1.Pod) []*apiv1.Pod {
	for _, pod := range copies {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	}
	return copies
}

// CleanUp is called when the autoscaler ends.
func (e *Evacuees) CleanUp() { e.inner.CleanUp() }
