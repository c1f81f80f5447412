package podlist

import (
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Supervision knows the jobs that have waited for too long, and those that are suspended or shrunk until there is capacity for them.
// Returning is called when a loop begins, and again when it takes up the stand-ins. Abandoned is called for each pending pod at any time, and
// Fits once for each gang after Returning. They must not block.
type Supervision interface {
	// Abandoned returns whether the pod's job has waited for its maximum wait. Nothing is bought for such a pod any more.
	Abandoned(pod *apiv1.Pod) bool
	// Returning returns the pods that jobs would have back if there were capacity for them.
	Returning() []StandInGang
	// Fits is called for each gang of stand-ins with the places that its pods would have.
	Fits(ref string, found Placement)
}

// StandInGang is pods of a job that do not exist. They are placed and bought for as if they did.
type StandInGang struct {
	// Ref is unique among these gangs, and stays the same from loop to loop.
	Ref string
	// Pods need neither a UID nor a node. They are not changed.
	Pods []*apiv1.Pod
	// Min is how many of the pods must have a place at the same time. If fewer can have one, nothing is bought and no node is
	// kept for them.
	Min int
	// Extra is whether the job does without these pods.
	Extra Extra
}

// Extra is whether stand-ins are more than their job asks for, and what may be bought for them then.
type Extra int

const (
	// NotExtra is said of pods that the job asks for. What they need is bought.
	NotExtra Extra = iota
	// ExtraSpot is said of pods for which spot instances may be bought, or nothing if they are to be on demand.
	ExtraSpot
	// ExtraFree is said of pods for which nothing is bought. They are placed on nodes that are ready.
	ExtraFree
)

// Placement is where the stand-ins of a gang would go. The pods are those of the gang, in its order.
type Placement struct {
	// Ready are the pods that fit ready nodes, Coming those that fit upcoming nodes. All of them are in Coming as long as the
	// scheduler might place one of them on a node that is being deleted.
	Ready, Coming []*apiv1.Pod
}

const (
	// standInPrefix starts the UIDs of pods that do not exist.
	standInPrefix = "stand-in/"
	// extraPrefix starts those of them that their job does without.
	extraPrefix = standInPrefix + "extra/"
	// standInAge is the age of pods that do not exist. It must exceed --new-pod-scale-up-delay.
	standInAge = time.Hour
)

// IsStandIn returns whether [Deferral] added the pod for one that does not exist, of a held or growing job. It is safe for concurrent use.
func IsStandIn(pod *apiv1.Pod) bool { return strings.HasPrefix(string(pod.UID), standInPrefix) }

// extra returns 1 for a stand-in for a pod that its job does without, else 0.
func extra(pod *apiv1.Pod) int {
	if strings.HasPrefix(string(pod.UID), extraPrefix) {
		return 1
	}
	return 0
}

// standIns applies a Supervision to the pods of a loop.
type standIns struct {
	supervision Supervision
	clock       clock.PassiveClock

	// The following is the state of the current loop. atStart are the gangs that returned when it began: their first pods by
	// reference.
	atStart map[string]*apiv1.Pod
	gangs   []StandInGang
	// moreNextLoop is whether a gang has to wait for the next loop.
	moreNextLoop bool
	// members are the pods that stand in for those of the gangs, by UID.
	members map[types.UID]member
}

// member is an index into standIns.gangs and one into the pods of that gang.
type member struct{ gang, pod int }

func (s *standIns) beginLoop() {
	s.atStart = map[string]*apiv1.Pod{}
	for _, gang := range s.supervision.Returning() {
		s.atStart[gang.Ref] = gang.Pods[0]
	}
}

// returning returns the gangs that returned before core listed the pods of this loop. A gang returns when its former pods are
// gone. If they went after the list was made, the list still has them: they occupy the nodes that the returning pods need, and
// nodes would be bought that nobody needs.
func (s *standIns) returning() []StandInGang {
	all := s.supervision.Returning()
	known := slices.DeleteFunc(slices.Clone(all), func(gang StandInGang) bool { return s.atStart[gang.Ref] != gang.Pods[0] })
	s.moreNextLoop = len(known) < len(all)
	for i, gang := range known {
		if gang.Extra == ExtraSpot && slices.ContainsFunc(gang.Pods, isOnDemand) {
			known[i].Extra = ExtraFree
		}
	}
	return known
}

// isOnDemand returns whether no spot instances may be bought for the pod.
func isOnDemand(pod *apiv1.Pod) bool {
	return pod.Annotations[api.AnnotationCapacity] == api.CapacityOnDemand
}

// admit removes abandoned pods, and adds those that would return. They have the lowest priority for which core buys, whatever
// their own, so that they displace no existing pod.
func (s *standIns) admit(ctx *cacontext.AutoscalingContext, pods []*apiv1.Pod) []*apiv1.Pod {
	admitted := make([]*apiv1.Pod, 0, len(pods))
	for _, pod := range pods {
		if !s.supervision.Abandoned(pod) {
			admitted = append(admitted, pod)
		}
	}

	s.gangs, s.members = s.returning(), map[types.UID]member{}
	created := s.clock.Now().Add(-standInAge)
	for g, gang := range s.gangs {
		for i, pod := range gang.Pods {
			if ptr.Deref(pod.Spec.Priority, 0) < int32(ctx.ExpendablePodsPriorityCutoff) {
				continue // core buys nothing for such pods
			}
			standIn := newStandIn(gang, i)
			standIn.CreationTimestamp.Time = created.Add(time.Duration(i))
			standIn.Spec.Priority = ptr.To(int32(ctx.ExpendablePodsPriorityCutoff))
			s.members[standIn.UID] = member{g, i}
			admitted = append(admitted, standIn)
		}
	}
	return admitted
}

// newStandIn returns a pending pod for the gang's i-th. Its gang is the given one, whatever the pod declares.
func newStandIn(gang StandInGang, i int) *apiv1.Pod {
	pod := gang.Pods[i].DeepCopy()
	prefix := standInPrefix
	if gang.Extra != NotExtra {
		prefix = extraPrefix
	}
	pod.UID = types.UID(fmt.Sprintf("%s%s/%d", prefix, gang.Ref, i))
	pod.Name = fmt.Sprintf("%s-stand-in-%d", pod.Name, i) // other pods of the job may have the same name
	pod.Spec.NodeName, pod.Status = "", apiv1.PodStatus{Phase: apiv1.PodPending}
	for _, declaration := range gangDeclarations {
		for _, declared := range []map[string]string{pod.Labels, pod.Annotations} {
			delete(declared, declaration.name)
			delete(declared, declaration.size)
		}
	}
	if gang.Extra != NotExtra {
		delete(pod.Annotations, api.AnnotationOnDemandFloor)
	}
	if gang.Extra == ExtraSpot {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, api.AnnotationOnDemandAfter, api.OnDemandNever)
	}
	if gang.Min > 1 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[gangDeclarations[0].name] = standInPrefix + gang.Ref
		pod.Annotations[gangDeclarations[0].size] = fmt.Sprint(gang.Min)
	}
	return pod
}
