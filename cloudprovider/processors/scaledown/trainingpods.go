package scaledown

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/drain"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// Jobs knows which pods belong to training jobs.
type Jobs interface {
	// PartOf returns whether the pod is part of a job, and whether the job cannot go on without this very pod.
	PartOf(pod *apiv1.Pod) (ofJob, isVital bool)
}

// TrainingPods is a drainability rule that keeps scale-down from moving training pods in order to save a node. A pod of a
// batch Job that is evicted loses its work since the last checkpoint and counts as a failure, and one of another job system
// may cost all workers as much. Core protects neither: pods of a Job can be moved, and with
// --skip-nodes-with-custom-controller-pods=false those of all other controllers can.
//
// Training pods are pods of jobs that request GPUs, and pods that their jobs cannot go on without, such as launchers. Pods
// with the annotation cluster-autoscaler.kubernetes.io/safe-to-evict=true are moved as in any cluster.
//
// It has no state, and so is safe for concurrent use if its Jobs are. Core needs that: see package processors.
type TrainingPods struct{ jobs Jobs }

var _ rules.Rule = (*TrainingPods)(nil)

// NewTrainingPods returns a rule. It has to come after core's own, which allow the eviction of pods that have ended or are
// annotated safe-to-evict.
func NewTrainingPods(jobs Jobs) *TrainingPods { return &TrainingPods{jobs: jobs} }

// Name returns the name of the rule, for core's log.
func (*TrainingPods) Name() string { return "TrainingPods" }

// Drainable returns a blocking status if the pod is a training pod.
func (r *TrainingPods) Drainable(_ *drainability.DrainContext, pod *apiv1.Pod, info *framework.NodeInfo) drainability.Status {
	if r.blocks(pod, info.Node()) {
		// Core has no reason of this name. The user could have said the same with this annotation, and with the same effect.
		return drainability.NewBlockedStatus(drain.NotSafeToEvictAnnotation,
			fmt.Errorf("%s/%s belongs to a training job and is not annotated %s=true", pod.Namespace, pod.Name, drain.PodSafeToEvictKey))
	}
	return drainability.NewUndefinedStatus()
}

// blocks returns whether the pod keeps the node from being drained. No pod does on a node whose kubelet has stopped posting its
// status, since it may have ended: such a node goes after --scale-down-unready-time. A node that lacks some of its GPUs is
// ready in this respect: pods that have theirs go on.
func (r *TrainingPods) blocks(pod *apiv1.Pod, node *apiv1.Node) bool {
	job, vital := r.jobs.PartOf(pod)
	if !job || !vital && !processors.RequestsGPU(pod) || drain.HasSafeToEvictAnnotation(pod) || !isBound(pod) {
		return false
	}
	readiness, err := kubeutil.GetNodeReadiness(node)
	return err == nil && (readiness.Ready || readiness.Reason == kubeutil.ResourceUnready)
}

// isBound returns false for a pending pod of the cluster that only the simulation has placed on a node. Stand-ins, and copies of running pods, have
// no condition, and count as bound: the node is kept for them, too.
func isBound(pod *apiv1.Pod) bool {
	_, condition := podutil.GetPodCondition(&pod.Status, apiv1.PodScheduled)
	return condition == nil || condition.Status != apiv1.ConditionFalse
}
