package reclaim

import (
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// rank is the place in the order in which the pods of a job go: losing the host ends the rendezvous of the workers, losing
// the launcher ends the job.
func rank(role jobs.Role) int {
	switch role {
	case jobs.RoleLauncher:
		return 2
	case jobs.RoleHost:
		return 1
	}
	return 0
}

// isNext says whether no pod is left that must go before this one. Those that were not part of the round count no more: they
// came back, and may do so again and again.
func (c *Controller) isNext(pod *corev1.Pod, member jobs.Membership, r round) bool {
	if rank(member.Role) == 0 {
		return true
	}
	for _, other := range c.podsOf(party{Ref: member.Ref}) {
		if r.doomed.Has(other.UID) && rank(c.Jobs.Member(other).Role) < rank(member.Role) {
			return false
		}
	}
	return true
}

// latecomers are the Nodes with pods that wait for others of their job to go.
func (l *loss) latecomers() (nodes []string) {
	for _, pod := range l.doomed {
		if rank(pod.role) > 0 {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	return nodes
}
