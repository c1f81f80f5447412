package supervisor

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
)

// podCounter counts the pods that take up capacity or wait for it. It leaves out those that have ended, and those that belong to their
// Node. It is safe for concurrent use.
type podCounter struct {
	index  *podindex.Index
	member func(*corev1.Pod) jobs.Membership
}

// isPending returns whether the pod wants a node. A pod with scheduling gates does not want one yet.
func isPending(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}

// isReady returns whether the pod runs and is ready. The informer leaves out the condition of a pod that is.
func isReady(pod *corev1.Pod) bool {
	_, ready := kubepod.GetPodCondition(&pod.Status, corev1.PodReady)
	return pod.Status.Phase == corev1.PodRunning && (ready == nil || ready.Status == corev1.ConditionTrue)
}

// podCounts sums up the pods of a job.
type podCounts struct {
	// first is the pending pod that was created first, nil where none is pending.
	first *corev1.Pod
	// running counts workers that have a node and are to stay, pending those that have none. Hosts are among them, launchers
	// are not. terminating counts all pods that are being deleted.
	// ready counts the running workers that are ready.
	running, ready, pending, terminating int
	total                                int
	// newest is when the last of all pods was created.
	newest time.Time
}

// since returns when the job began to wait.
func (c podCounts) since() time.Time { return c.first.CreationTimestamp.Time }

// count counts the pods of a job that has these Refs.
func (c podCounter) count(refs ...jobs.Ref) (counts podCounts) {
	for _, ref := range refs {
		for _, pod := range c.index.OfJob(ref) {
			if !kubepod.IsPodTerminal(pod) {
				counts.add(pod, c.member(pod).Role)
			}
		}
	}
	return counts
}

func (c *podCounts) add(pod *corev1.Pod, role jobs.Role) {
	c.total++
	if created := pod.CreationTimestamp.Time; created.After(c.newest) {
		c.newest = created
	}
	isLauncher := role == jobs.RoleLauncher
	switch {
	case pod.DeletionTimestamp != nil:
		c.terminating++
	case isPending(pod):
		if c.first == nil || pod.CreationTimestamp.Before(&c.first.CreationTimestamp) {
			c.first = pod
		}
		if !isLauncher {
			c.pending++
		}
	case pod.Spec.NodeName != "" && !isLauncher:
		c.running++
		if isReady(pod) {
			c.ready++
		}
	}
}

// onNode counts the pods on a node: those of the job, by the String of its Ref, and others.
func (c podCounter) onNode(node, job string) (own, others int) {
	for _, pod := range c.index.OnNode(node) {
		switch {
		case kubepod.IsPodTerminal(pod) || podindex.BelongsToNode(pod):
		case c.member(pod).Ref.String() == job:
			own++
		default:
			others++
		}
	}
	return own, others
}
