package podlist

import (
	"maps"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	coreutils "k8s.io/autoscaler/cluster-autoscaler/core/utils"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/klog/v2"
	kubepodutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
)

// ReclaimingPods adds the pods of reclaiming nodes to the unschedulable ones, so that core buys their new nodes at the notice,
// while the drain goes on. For pods that tolerate every taint, as those of "arena submit etjob --toleration=all" do, there is
// no other way: however often such a pod is evicted, it fits the reclaiming node again at once, and is never pending.
//
// The snapshot contains neither the reclaiming nodes nor their pods, so no pod counts twice. Pods that no controller will
// recreate are not added, nor are those that core buys nothing for (--expendable-pods-priority-cutoff), and neither is a terminating pod whose successor exists: the successor is pending itself, or has
// a place. The scheduler places the successor of a pod on the node that was bought for the pod.
type ReclaimingPods struct {
	inner        pods.PodListProcessor
	isReclaiming func(*apiv1.Node) bool
	added        *AddedPods
	clock        clock.PassiveClock
	moves        Moves

	mu sync.RWMutex
	// asOf is when the following was found.
	asOf time.Time
	// unplaced is how many pods of each reclaiming node were left without a place in the last loop, unready how many of them
	// were left without one on a node that is ready. Both have an entry for each reclaiming node.
	unplaced, unready map[string]int
}

var _ pods.PodListProcessor = (*ReclaimingPods)(nil)

// AddedPods are the pods of reclaiming nodes that the last loop added. The inner processors of ReclaimingPods may read them, so they are made
// before both. The zero value is ready. It belongs to core's loop, and is not safe for concurrent use.
type AddedPods struct{ uids sets.Set[types.UID] }

// Has returns whether the last loop added the pod as one of a reclaiming node.
func (a *AddedPods) Has(pod *apiv1.Pod) bool { return a.uids.Has(pod.UID) }

// Moves knows where the pods of Nodes are to move. It may be nil.
type Moves interface {
	// MovesTo returns the spot offerings that the pods of the Node may get, and false if they do not move. It is safe for concurrent use.
	MovesTo(node string) (offerings []pricing.Offering, moves bool)
}

// NewReclaimingPods returns a processor that calls inner, which places pods on existing and upcoming nodes. It enters in added which pods it
// has added.
func NewReclaimingPods(inner pods.PodListProcessor, isReclaiming func(*apiv1.Node) bool, added *AddedPods, clock clock.PassiveClock, moves Moves) *ReclaimingPods {
	return &ReclaimingPods{inner: inner, isReclaiming: isReclaiming, added: added, clock: clock, moves: moves}
}

// Process calls inner with the unschedulable pods and those of reclaiming nodes. If those cannot be listed it calls inner
// without them: an error would keep core from buying at all.
func (r *ReclaimingPods) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	found, err := r.list(ctx)
	if err != nil {
		klog.ErrorS(err, "Cannot list the pods of reclaiming nodes")
	}
	r.added.uids = sets.KeySet(found.nodeOf)
	left, err := r.inner.Process(ctx, append(unschedulable, found.pods...))
	if err != nil {
		found.unplaced = nil // no pod was placed
	}
	for _, pod := range left {
		if node, added := found.nodeOf[pod.UID]; added && found.unplaced != nil {
			found.unplaced[node]++
		}
	}
	unready := found.unready(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unplaced, r.unready, r.asOf = found.unplaced, unready, r.clock.Now()
	return left, err
}

// AllPlaced returns whether the last loop knew that the node is reclaiming, and found a place on existing or upcoming nodes for
// all of its pods. From then on the node can be drained, and no pod has to wait for a purchase that was not made. It is safe
// for concurrent use.
func (r *ReclaimingPods) AllPlaced(node string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	unplaced, known := r.unplaced[node]
	return known && unplaced == 0
}

// AllReady returns whether AllPlaced does, and all of those places are on nodes that exist and are ready. It is safe for concurrent
// use.
func (r *ReclaimingPods) AllReady(node string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	unready, known := r.unready[node]
	return known && unready == 0
}

// AllReadyWithin returns whether AllReady does by a loop that is no older than that. Core does not come to the pods in a loop in which it cannot read
// the pools, or the cluster is unhealthy. Source: RunOnce of StaticAutoscaler, which returns before it calls the PodListProcessor. It is safe for
// concurrent use.
func (r *ReclaimingPods) AllReadyWithin(node string, age time.Duration) bool {
	r.mu.RLock()
	asOf := r.asOf
	r.mu.RUnlock()
	return r.clock.Since(asOf) <= age && r.AllReady(node)
}

// podsToMove are the pods of the reclaiming nodes in a loop.
type podsToMove struct {
	// pods are copies without a node.
	pods []*apiv1.Pod
	// nodeOf is the node that each pod is on.
	nodeOf map[types.UID]string
	// unplaced has an entry of zero for each reclaiming node.
	unplaced map[string]int
}

func (r *ReclaimingPods) list(ctx *cacontext.AutoscalingContext) (podsToMove, error) {
	nodes, err := ctx.AllNodeLister().List()
	if err != nil {
		return podsToMove{}, err
	}
	unplaced, moving := map[string]int{}, map[string][]pricing.Offering{}
	for _, node := range nodes {
		if r.isReclaiming(node) {
			unplaced[node.Name] = 0
			if offerings, moves := r.movesTo(node); moves {
				moving[node.Name] = offerings
			}
		}
	}
	if len(unplaced) == 0 {
		return podsToMove{}, nil
	}
	all, err := ctx.AllPodLister().List()
	if err != nil {
		return podsToMove{}, err
	}
	var toMove, terminating []*apiv1.Pod
	for _, pod := range all {
		_, reclaiming := unplaced[pod.Spec.NodeName]
		switch {
		case !reclaiming || !isRecreated(pod):
		case pod.DeletionTimestamp == nil:
			toMove = append(toMove, pod)
		default:
			terminating = append(terminating, pod)
		}
	}
	toMove = podutil.FilterRecreatablePods(append(toMove, withoutSuccessor(terminating, all)...))
	toMove = coreutils.FilterOutExpendablePods(toMove, ctx.ExpendablePodsPriorityCutoff)
	nodeOf := make(map[types.UID]string, len(toMove))
	for _, pod := range toMove {
		nodeOf[pod.UID] = pod.Spec.NodeName
	}
	copies := onSpotOnly(notTerminating(copied(podutil.ClearPodNodeNames(toMove))), nodeOf, moving)
	groupBySpec(ctx, copies)
	return podsToMove{pods: copies, nodeOf: nodeOf, unplaced: unplaced}, nil
}

// unready returns of each reclaiming node how many pods have no place on a ready node. It is nil if nothing is known.
func (p podsToMove) unready(ctx *cacontext.AutoscalingContext) map[string]int {
	if len(p.unplaced) == 0 {
		return nil
	}
	unready := make(map[string]int, len(p.unplaced))
	for node := range p.unplaced {
		unready[node] = 0
	}
	for _, node := range p.nodeOf {
		unready[node]++
	}
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		klog.ErrorS(err, "Cannot list the nodes of the snapshot to find those that are ready for the pods of reclaiming nodes")
	}
	for _, info := range nodes {
		if !isReady(info.Node()) {
			continue
		}
		for _, pod := range info.Pods() {
			if node, added := p.nodeOf[pod.UID]; added {
				unready[node]--
			}
		}
	}
	return unready
}

// isRecreated returns whether the pod has not ended, and a controller creates another one when it is gone.
func isRecreated(pod *apiv1.Pod) bool {
	return !kubepodutil.IsPodTerminal(pod) && metav1.GetControllerOf(pod) != nil
}

// withoutSuccessor returns the terminating pods, without as many of each owner as the owner has created pods since the first
// of them was deleted.
func withoutSuccessor(terminating, all []*apiv1.Pod) (left []*apiv1.Pod) {
	since, successors := map[types.UID]time.Time{}, map[types.UID]int{}
	for _, pod := range terminating {
		owner, deleted := metav1.GetControllerOf(pod).UID, deletedAt(pod)
		if first, known := since[owner]; !known || deleted.Before(first) {
			since[owner] = deleted
		}
	}
	for _, pod := range all {
		owner := metav1.GetControllerOf(pod)
		if owner == nil || pod.DeletionTimestamp != nil {
			continue
		}
		if deleted, known := since[owner.UID]; known && !pod.CreationTimestamp.Time.Before(deleted) {
			successors[owner.UID]++
		}
	}
	for _, pod := range terminating {
		if owner := metav1.GetControllerOf(pod).UID; successors[owner] > 0 {
			successors[owner]--
		} else {
			left = append(left, pod)
		}
	}
	return left
}

// deletedAt returns when the deletion of the pod was requested. DeletionTimestamp is when its grace period ends.
func deletedAt(pod *apiv1.Pod) time.Time {
	return pod.DeletionTimestamp.Add(-time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second)
}

// notTerminating clears the deletion of the copies, as their successors will have none.
func notTerminating(copies []*apiv1.Pod) []*apiv1.Pod {
	for _, pod := range copies {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	}
	return copies
}

// movesTo returns where the pods of the reclaiming node are to move, and false if they are not to, as when another notice has taken the place of the
// move. What a former leader planned is not known: any spot will do then.
func (r *ReclaimingPods) movesTo(node *apiv1.Node) (offerings []pricing.Offering, moves bool) {
	source, marked := node.Annotations[api.AnnotationReclaimSource]
	if marked && source != api.ReclaimSourceMove {
		return nil, false
	}
	if r.moves != nil {
		offerings, moves = r.moves.MovesTo(node.Name)
	}
	return offerings, moves || marked
}

// onSpotOnly has the copies of pods that are to move take spot instances only. Those are there, and may be lost again before the pods leave: then
// they stay where they are.
func onSpotOnly(copies []*apiv1.Pod, nodeOf map[types.UID]string, moving map[string][]pricing.Offering) []*apiv1.Pod {
	for _, pod := range copies {
		if offerings, moves := moving[nodeOf[pod.UID]]; moves {
			pod.Annotations = maps.Clone(pod.Annotations)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.AnnotationOnDemandAfter, api.OnDemandNever)
			processors.RequireSpot(&pod.Spec, offerings)
		}
	}
	return copies
}

// CleanUp cleans up the inner processor.
func (r *ReclaimingPods) CleanUp() { r.inner.CleanUp() }
