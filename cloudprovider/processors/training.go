package processors

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/drainability/rules"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/drain"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Jobs knows which pods belong to training jobs.
type Jobs interface {
	// PartOf says whether the pod is part of a job, and whether the job cannot go on without just this pod.
	PartOf(pod *apiv1.Pod) (job, vital bool)
}

// TrainingStays keeps scale-down from emptying a node on which a pod trains, to save a node elsewhere. A pod of a batch Job
// that is evicted has lost its work since the last checkpoint and counts as a failure; one of any other job system may cost
// all workers as much. Core protects neither: of pods that a controller makes anew, it takes those of a Job for movable, and
// with --skip-nodes-with-custom-controller-pods=false all others too.
//
// The pods meant are those of jobs that ask for GPUs, and those that their jobs cannot go on without, such as launchers.
// Pods with the annotation cluster-autoscaler.kubernetes.io/safe-to-evict=true are moved as in any cluster.
//
// As a rule of core's it is asked when nodes are chosen, and again when one is about to be drained. [Candidates] asks it too.
type TrainingStays struct{ jobs Jobs }

var _ rules.Rule = (*TrainingStays)(nil)

// NewTrainingStays makes a rule that comes after core's own: those let pods go that have ended, or say safe-to-evict.
func NewTrainingStays(jobs Jobs) *TrainingStays { return &TrainingStays{jobs: jobs} }

// Name is for core's log.
func (*TrainingStays) Name() string { return "TrainingStays" }

// Drainable blocks the drain of a node for a pod that trains there.
func (s *TrainingStays) Drainable(_ *drainability.DrainContext, pod *apiv1.Pod, info *framework.NodeInfo) drainability.Status {
	if s.keeps(pod, info.Node()) {
		// Core has no reason of this name. It is what the user could say too, with the same effect.
		return drainability.NewBlockedStatus(drain.NotSafeToEvictAnnotation,
			fmt.Errorf("%s/%s belongs to a training job and is not annotated %s=true", pod.Namespace, pod.Name, drain.PodSafeToEvictKey))
	}
	return drainability.NewUndefinedStatus()
}

// keeps says whether the pod is to stay on the node. Where the kubelet is silent nobody knows whether it still trains; such a
// node goes after --scale-down-unready-time. A node without its GPUs is not meant: the pods that have them may go on.
func (s *TrainingStays) keeps(pod *apiv1.Pod, node *apiv1.Node) bool {
	job, vital := s.jobs.PartOf(pod)
	if !job || !vital && !asksForGPU(pod) || drain.HasSafeToEvictAnnotation(pod) || !isBound(pod) {
		return false
	}
	readiness, err := kubeutil.GetNodeReadiness(node)
	return err == nil && (readiness.Ready || readiness.Reason == kubeutil.ResourceUnready)
}

// isBound is false for a pod that has a place in the simulation only: the scheduler has not found it one.
func isBound(pod *apiv1.Pod) bool {
	_, condition := podutil.GetPodCondition(&pod.Status, apiv1.PodScheduled)
	return condition == nil || condition.Status != apiv1.ConditionFalse
}
