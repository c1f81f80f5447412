package spotfirst

import (
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
)

// Idle knows the jobs with a deadline of which no pod runs or has a node on its way. They may wait for better spot, since nothing of theirs is paid for
// meanwhile. Each loop finds out anew which these are.
//
// Has is safe for concurrent use.
type Idle struct {
	jobs Jobs
	// hasMaxWait returns whether the job of the pod waits for capacity no longer than its owner allows.
	hasMaxWait func(*apiv1.Pod) bool
	chosen     chosenPods
}

// NewIdle returns an Idle for the pods of the jobs. Those of jobs with a maximum wait are not idle: it would be over while there is spot.
func NewIdle(jobs Jobs, hasMaxWait func(*apiv1.Pod) bool) *Idle {
	return &Idle{jobs: jobs, hasMaxWait: hasMaxWait}
}

// Has returns whether the last loop found that neither the pod nor another one of its job has a place. Pods of ProvisioningRequests are not idle: core
// enters in a request what came of it, so it is tried once. It may be called for nil.
func (i *Idle) Has(pod *apiv1.Pod) bool { return i != nil && i.chosen.has(pod) }

// After returns a processor that calls inner, which places pods, and finds out which of the pods that are left are idle.
func (i *Idle) After(inner pods.PodListProcessor) pods.PodListProcessor {
	return i.chosen.after(inner, i.among)
}

// among returns which of the pods, which have no place, are idle. Of a job with GPUs only those pods count that request some: a launcher may run
// somewhere.
func (i *Idle) among(ctx *cacontext.AutoscalingContext, left []*apiv1.Pod) (idle sets.Set[types.UID], err error) {
	jobs, namespaces := map[string][]*apiv1.Pod{}, sets.New[string]()
	for _, pod := range left {
		if _, stated := pod.Annotations[api.AnnotationDeadline]; stated && !processors.IsProvisioningRequest(pod) && !i.hasMaxWait(pod) {
			key := i.jobs.keyOf(pod)
			jobs[key] = append(jobs[key], pod)
			namespaces.Insert(pod.Namespace)
		}
	}
	idle = sets.New[types.UID]()
	if len(jobs) == 0 {
		return idle, nil
	}
	needGPUs := true
	for _, pods := range jobs {
		needGPUs = needGPUs && slices.ContainsFunc(pods, processors.RequestsGPU)
	}
	err = eachPlaced(ctx, namespaces, func(pod *apiv1.Pod, _ *framework.NodeInfo) {
		hasGPU := processors.RequestsGPU(pod)
		if needGPUs && !hasGPU || len(jobs) == 0 { // there may be 150,000 pods
			return
		}
		if key := i.jobs.keyOf(pod); hasGPU || !slices.ContainsFunc(jobs[key], processors.RequestsGPU) {
			delete(jobs, key)
		}
	})
	for _, pods := range jobs {
		for _, pod := range pods {
			idle.Insert(pod.UID)
		}
	}
	return idle, err
}
