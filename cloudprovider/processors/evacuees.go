package processors

import (
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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

	// injected are the evacuees of the last loop, by the UID of their originals.
	injected sets.Set[types.UID]

	mu sync.RWMutex
	// homeless is how many evacuees of each doomed node were left without a place in the last loop.
	homeless map[string]int
}

var _ pods.PodListProcessor = (*Evacuees)(nil)

// NewEvacuees puts itself in front of another processor, which places pods on nodes that exist or are on their way.
func NewEvacuees(inner pods.PodListProcessor, doomed func(*apiv1.Node) bool) *Evacuees {
	return &Evacuees{inner: inner, doomed: doomed}
}

// Process hands on the pods and the evacuees. Where those cannot be listed it goes on without: an error would keep core
// from buying at all.
func (e *Evacuees) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	found, err := e.list(ctx)
	if err != nil {
		klog.Errorf("Not looking for the pods of reclaiming nodes: %v", err)
	}
	e.injected = sets.KeySet(found.homes)
	left, err := e.inner.Process(ctx, append(unschedulable, found.pods...))
	if err != nil {
		found.homeless = nil // nobody was placed
	}
	for _, pod := range left {
		if home, evacuee := found.homes[pod.UID]; evacuee && found.homeless != nil {
			found.homeless[home]++
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.homeless = found.homeless
	return left, err
}

// Settled says whether the last loop knew that the node is doomed and found a place for all of its evacuees, on nodes
// that exist or are on their way: from then on it can be drained without anybody having to wait for a purchase that was
// not made. It is safe for concurrent use.
func (e *Evacuees) Settled(node string) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	homeless, known := e.homeless[node]
	return known && homeless == 0
}

// Injected says whether the last loop took the pod in as an evacuee.
func (e *Evacuees) Injected(pod *apiv1.Pod) bool { return e.injected.Has(pod.UID) }

// evacuation is who has to leave which nodes.
type evacuation struct {
	pods []*apiv1.Pod
	// homes are the nodes that the pods are on.
	homes map[types.UID]string
	// homeless has an entry for each doomed node.
	homeless map[string]int
}

func (e *Evacuees) list(ctx *cacontext.AutoscalingContext) (evacuation, error) {
	nodes, err := ctx.AllNodeLister().List()
	if err != nil {
		return evacuation{}, err
	}
	doomed := map[string]int{}
	for _, node := range nodes {
		if e.doomed(node) {
			doomed[node.Name] = 0
		}
	}
	if len(doomed) == 0 {
		return evacuation{}, nil
	}
	all, err := ctx.AllPodLister().List()
	if err != nil {
		return evacuation{}, err
	}
	var evacuees, leaving []*apiv1.Pod
	for _, pod := range all {
		_, leaves := doomed[pod.Spec.NodeName]
		switch {
		case !leaves || !comesAgain(pod):
		case pod.DeletionTimestamp == nil:
			evacuees = append(evacuees, pod)
		default:
			leaving = append(leaving, pod)
		}
	}
	evacuees = podutil.FilterRecreatablePods(append(evacuees, withoutSuccessor(leaving, all)...))
	homes := make(map[types.UID]string, len(evacuees))
	for _, pod := range evacuees {
		homes[pod.UID] = pod.Spec.NodeName
	}
	copies := alive(detached(podutil.ClearPodNodeNames(evacuees)))
	joinLookalikes(ctx, copies)
	return evacuation{pods: copies, homes: homes, homeless: doomed}, nil
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
