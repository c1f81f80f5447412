package processors

import (
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/klog/v2"
)

// Evacuees adds the pods of doomed nodes to those that wait for one, so that their new home is bought at the notice, in
// parallel to the drain. For a pod that tolerates every taint, as those of "arena submit etjob --toleration=all" do, it
// is the only way: however often such a pod is evicted, it finds room on the doomed node again at once, and is never
// pending.
//
// [DyingNodes] has taken the nodes out of the snapshot, with their pods, so that no pod counts twice there. A pod that
// nobody will make anew is left out, and so is one on its way out: its successor will be pending by itself. What was
// bought for an evacuee is found by its successor.
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
	var evacuees []*apiv1.Pod
	for _, pod := range all {
		if doomed[pod.Spec.NodeName] && comesAgain(pod) {
			evacuees = append(evacuees, pod)
		}
	}
	return podutil.ClearPodNodeNames(podutil.FilterRecreatablePods(evacuees)), nil
}

// comesAgain says whether the pod runs, and whether somebody makes another one when it is gone.
func comesAgain(pod *apiv1.Pod) bool {
	ended := pod.Status.Phase == apiv1.PodSucceeded || pod.Status.Phase == apiv1.PodFailed
	return !ended && pod.DeletionTimestamp == nil && metav1.GetControllerOf(pod) != nil
}

// CleanUp is called when the autoscaler ends.
func (e *Evacuees) CleanUp() { e.inner.CleanUp() }
