package supervisor

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// crews are the pods of the cluster that take up room or want it, by job and by node. Pods that have ended are left out, and
// those that belong to a node and not to anybody.
type crews struct {
	member  func(*corev1.Pod) jobs.Membership
	members map[types.UID]jobs.Membership
	byJob   map[jobs.Ref]map[types.UID]*corev1.Pod
	byNode  map[string]map[types.UID]*corev1.Pod
}

func newCrews(member func(*corev1.Pod) jobs.Membership) crews {
	return crews{
		member: member, members: map[types.UID]jobs.Membership{},
		byJob: map[jobs.Ref]map[types.UID]*corev1.Pod{}, byNode: map[string]map[types.UID]*corev1.Pod{},
	}
}

// put records the pod as it is now, and says whether it waits for a node.
func (c *crews) put(pod *corev1.Pod) (ref jobs.Ref, pending bool) {
	c.remove(pod)
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || podutil.IsDaemonSetPod(pod) || podutil.IsMirrorPod(pod) {
		return jobs.Ref{}, false
	}
	member := c.member(pod)
	c.members[pod.UID] = member
	insert(c.byJob, member.Ref, pod)
	if pod.Spec.NodeName != "" {
		insert(c.byNode, pod.Spec.NodeName, pod)
	}
	return member.Ref, isPending(pod)
}

func (c *crews) remove(pod *corev1.Pod) {
	member, known := c.members[pod.UID]
	if !known {
		return
	}
	delete(c.members, pod.UID)
	take(c.byJob, member.Ref, pod.UID)
	take(c.byNode, pod.Spec.NodeName, pod.UID)
}

func insert[K comparable](index map[K]map[types.UID]*corev1.Pod, key K, pod *corev1.Pod) {
	if index[key] == nil {
		index[key] = map[types.UID]*corev1.Pod{}
	}
	index[key][pod.UID] = pod
}

func take[K comparable](index map[K]map[types.UID]*corev1.Pod, key K, uid types.UID) {
	delete(index[key], uid)
	if len(index[key]) == 0 {
		delete(index, key)
	}
}

// isPending says whether the pod wants a node. One that is gated does not want it yet.
func isPending(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

// census is what there is of a job's pods.
type census struct {
	// first is the pending pod that was made first.
	first *corev1.Pod
	// workers have a node and are to stay. Hosts are among them, launchers are not.
	workers int
	// wanted are workers that are pending, leaving pods that are on their way out.
	wanted, leaving int
	pods            int
	// newest is when the last of all pods was made.
	newest time.Time
}

func (c *crews) census(refs ...jobs.Ref) (counted census) {
	for _, ref := range refs {
		c.count(ref, &counted)
	}
	return counted
}

func (c *crews) count(ref jobs.Ref, counted *census) {
	for uid, pod := range c.byJob[ref] {
		counted.pods++
		if made := pod.CreationTimestamp.Time; made.After(counted.newest) {
			counted.newest = made
		}
		launcher := c.members[uid].Role == jobs.RoleLauncher
		switch {
		case pod.DeletionTimestamp != nil:
			counted.leaving++
		case isPending(pod):
			if counted.first == nil || pod.CreationTimestamp.Before(&counted.first.CreationTimestamp) {
				counted.first = pod
			}
			if !launcher {
				counted.wanted++
			}
		case pod.Spec.NodeName != "" && !launcher:
			counted.workers++
		}
	}
}

// on counts the pods on a node, those of the job and others.
func (c *crews) on(node string, ref string) (own, others int) {
	for uid := range c.byNode[node] {
		if c.members[uid].Ref.String() == ref {
			own++
		} else {
			others++
		}
	}
	return own, others
}

// since is when the job began to wait.
func (c census) since() time.Time { return c.first.CreationTimestamp.Time }
