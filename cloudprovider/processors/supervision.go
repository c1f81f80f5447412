package processors

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// Supervision knows the jobs that wait, and those that are held back until they can go on. A loop calls all three, in
// this order; they must not block.
type Supervision interface {
	// Abandoned says whether the pod's job has waited for as long as it may: nothing is bought for the pod any more.
	Abandoned(pod *apiv1.Pod) bool
	// Returning are the pods that jobs would get back if they could have them.
	Returning() []ReturningGang
	// Fits is told, for each returning gang, where its pods would go.
	Fits(ref string, found Placement)
}

// ReturningGang is pods of a job that do not exist, and are to be placed and bought for as if they did.
type ReturningGang struct {
	// Ref tells it from others, and stays the same from loop to loop.
	Ref string
	// Pods need neither a UID nor a node. They are left as they are.
	Pods []*apiv1.Pod
	// Min is how many of them must have a place at the same time. With less nothing is bought, and no node is kept for them.
	Min int
}

// Placement is where the pods of a returning gang would go. The pods are those of the gang, in its order.
type Placement struct {
	// Ready would go to nodes that are there and ready, Coming to nodes that are on their way. All are Coming as long as
	// there is a node that is being deleted and that the scheduler might take instead.
	Ready, Coming []*apiv1.Pod
}

const (
	// returningPrefix begins the UIDs of pods that do not exist.
	returningPrefix = "returning/"
	// returningAge is what they pretend to be of age, for --new-pod-scale-up-delay.
	returningAge = time.Hour
)

// Returning says whether the pod is one that Hold took in for a job that is held. It can be asked at any time.
func Returning(pod *apiv1.Pod) bool { return strings.HasPrefix(string(pod.UID), returningPrefix) }

// supervised has a loop follow a Supervision.
type supervised struct {
	supervision Supervision
	clock       clock.PassiveClock

	// The state of the loop under way. offered are the gangs that were there when it began, by reference, each told by its
	// first pod.
	offered map[string]*apiv1.Pod
	gangs   []ReturningGang
	// unripe: there are gangs for the next loop.
	unripe bool
	// copies are, by UID, what stands for which pod of which gang.
	copies map[types.UID]member
}

// member is the place of a pod in gangs.
type member struct{ gang, pod int }

func (s *supervised) beginLoop() {
	s.offered = map[string]*apiv1.Pod{}
	for _, gang := range s.supervision.Returning() {
		s.offered[gang.Ref] = gang.Pods[0]
	}
}

// ripe returns the gangs that returned already when the loop began, before core listed the pods. A gang returns once its
// former pods are gone. Where they went later than that, core's list may still have them: they take the room that the
// returning pods need, and nodes would be bought that nobody needs.
func (s *supervised) ripe() []ReturningGang {
	returning := s.supervision.Returning()
	ripe := slices.DeleteFunc(slices.Clone(returning), func(gang ReturningGang) bool { return s.offered[gang.Ref] != gang.Pods[0] })
	s.unripe = len(ripe) < len(returning)
	return ripe
}

// admit leaves out abandoned pods and adds those that would return. They come last, so that nobody who is there has to
// give way: their priority is the lowest for which core buys, whatever they would have.
func (s *supervised) admit(ctx *cacontext.AutoscalingContext, pods []*apiv1.Pod) []*apiv1.Pod {
	admitted := make([]*apiv1.Pod, 0, len(pods))
	for _, pod := range pods {
		if !s.supervision.Abandoned(pod) {
			admitted = append(admitted, pod)
		}
	}
	heldPods.WithLabelValues("abandoned").Set(float64(len(pods) - len(admitted)))

	s.gangs, s.copies = s.ripe(), map[types.UID]member{}
	born := s.clock.Now().Add(-returningAge)
	for g, gang := range s.gangs {
		for i, pod := range gang.Pods {
			if ptr.Deref(pod.Spec.Priority, 0) < int32(ctx.ExpendablePodsPriorityCutoff) {
				continue // core buys nothing for such pods
			}
			stands := standIn(gang, i)
			stands.CreationTimestamp.Time = born.Add(time.Duration(i))
			stands.Spec.Priority = ptr.To(int32(ctx.ExpendablePodsPriorityCutoff))
			s.copies[stands.UID] = member{g, i}
			admitted = append(admitted, stands)
		}
	}
	return admitted
}

// standIn is a pending pod for the gang's i-th.
func standIn(gang ReturningGang, i int) *apiv1.Pod {
	pod := gang.Pods[i].DeepCopy()
	pod.UID = types.UID(fmt.Sprintf("%s%s/%d", returningPrefix, gang.Ref, i))
	pod.Name = fmt.Sprintf("%s-returning-%d", pod.Name, i) // others of the job may have their names
	pod.Spec.NodeName, pod.Status = "", apiv1.PodStatus{Phase: apiv1.PodPending}
	for _, declaration := range gangDeclarations {
		for _, declared := range []map[string]string{pod.Labels, pod.Annotations} {
			delete(declared, declaration.name)
			delete(declared, declaration.size)
		}
	}
	if gang.Min > 1 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[gangDeclarations[0].name] = returningPrefix + gang.Ref
		pod.Annotations[gangDeclarations[0].size] = fmt.Sprint(gang.Min)
	}
	return pod
}

// placed is a copy that found a place in the snapshot.
type placed struct {
	member
	copy *apiv1.Pod
	node *apiv1.Node
}

// judge tells where the returning pods went. Those that went to nodes on their way out, as pods do that tolerate
// everything, are given another place, or else added to what is left. The pods of a gang that cannot have its minimum are
// taken out of the snapshot again: the nodes that they would fill are of no use to it, and scale-down may have them.
func (s *supervised) judge(ctx *cacontext.AutoscalingContext, left []*apiv1.Pod) []*apiv1.Pod {
	if len(s.gangs) == 0 {
		return left
	}
	located, misplaced := s.locate(ctx)
	for _, pod := range misplaced {
		withdraw(ctx, pod)
		if node := staying(ctx, pod.copy); node != nil {
			located[pod.gang] = append(located[pod.gang], placed{pod.member, pod.copy, node})
		} else {
			left = append(left, pod.copy)
		}
	}
	going := beingDeleted(ctx)
	for g, gang := range s.gangs {
		var found Placement
		slices.SortFunc(located[g], func(a, b placed) int { return a.pod - b.pod })
		safe := !isLured(ctx, located[g], going)
		for _, pod := range located[g] {
			if safe && isThere(pod.node) {
				found.Ready = append(found.Ready, gang.Pods[pod.pod])
			} else {
				found.Coming = append(found.Coming, gang.Pods[pod.pod])
			}
			if len(located[g]) < gang.Min {
				withdraw(ctx, pod)
			}
		}
		s.supervision.Fits(gang.Ref, found)
	}
	return left
}

// locate finds the copies in the snapshot: by gang, and those that may not stay.
func (s *supervised) locate(ctx *cacontext.AutoscalingContext) (located map[int][]placed, misplaced []placed) {
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		klog.Errorf("Cannot tell where jobs could resume: %v", err)
	}
	located = map[int][]placed{}
	for _, info := range nodes {
		for _, podInfo := range info.Pods() {
			at, ours := s.copies[podInfo.UID]
			switch {
			case !ours:
			case isLeaving(info.Node()):
				misplaced = append(misplaced, placed{at, podInfo.Pod, info.Node()})
			default:
				located[at.gang] = append(located[at.gang], placed{at, podInfo.Pod, info.Node()})
			}
		}
	}
	return located, misplaced
}

// staying finds the pod a place on a node that is there to stay, or is to come, and returns the node; nil where there is
// none. Without it, what was bought for the pod would be bought again in every loop.
func staying(ctx *cacontext.AutoscalingContext, pod *apiv1.Pod) *apiv1.Node {
	name, refused := ctx.ClusterSnapshot.SchedulePodOnAnyNodeMatching(pod, func(info *framework.NodeInfo) bool { return !isLeaving(info.Node()) })
	if refused != nil {
		return nil
	}
	info, err := ctx.ClusterSnapshot.GetNodeInfo(name)
	if err != nil {
		return nil
	}
	return info.Node()
}

// isLeaving says whether the node is not meant for further pods.
func isLeaving(node *apiv1.Node) bool {
	return node.Spec.Unschedulable || taints.HasToBeDeletedTaint(node)
}

// isThere says whether a pod that fits the node could start on it now.
func isThere(node *apiv1.Node) bool {
	readiness, err := kubeutil.GetNodeReadiness(node)
	return err == nil && readiness.Ready && node.Annotations[core.NodeUpcomingAnnotation] != "true"
}

// beingDeleted are the nodes that scale-down is deleting.
func beingDeleted(ctx *cacontext.AutoscalingContext) (going []*apiv1.Node) {
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		klog.Errorf("Cannot tell which nodes are being deleted: %v", err)
	}
	for _, info := range nodes {
		if taints.HasToBeDeletedTaint(info.Node()) {
			going = append(going, info.Node())
		}
	}
	return going
}

// isLured says whether the scheduler might put one of the pods on one of these nodes, because it tolerates everything. It
// would die with the node.
func isLured(ctx *cacontext.AutoscalingContext, pods []placed, going []*apiv1.Node) bool {
	for _, pod := range pods {
		if !corev1helpers.TolerationsTolerateTaint(pod.copy.Spec.Tolerations, &apiv1.Taint{Key: taints.ToBeDeletedTaint, Effect: apiv1.TaintEffectNoSchedule}) {
			continue
		}
		for _, node := range going {
			if ctx.ClusterSnapshot.CheckPredicates(pod.copy, node.Name) == nil {
				return true
			}
		}
	}
	return false
}

func withdraw(ctx *cacontext.AutoscalingContext, pod placed) {
	if err := ctx.ClusterSnapshot.UnschedulePod(pod.copy.Namespace, pod.copy.Name, pod.node.Name); err != nil {
		klog.Errorf("Cannot take pod %s/%s out of the simulation: %v", pod.copy.Namespace, pod.copy.Name, err)
	}
}
