package handshake

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/batchjob"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// Answer says whether a pod may be evicted.
type Answer struct {
	// Reason is why it must stay for now; empty if it may be evicted.
	Reason string
	// From is when it need not stay any longer, if time alone decides that.
	From time.Time
	// Unknown is true if there is no handshake with its job, or none that asked the pod.
	Unknown bool
	// Begun is when this process began the handshake with its job, zero if there is none.
	Begun time.Time
}

// MayEvict returns whether the pod may be evicted from its Node, which has the notice. It changes nothing.
func (c *Controller) MayEvict(pod *corev1.Pod, node *corev1.Node, n notice.Notice) Answer {
	s, open := c.table.get(c.config.Cluster.PartyOf(pod))
	until, doubtful := c.config.Notices.DoubtfulUntil(n)
	if !doubtful && cameBack(pod, &outlook{reclaiming: true, notice: n, drained: cluster.DrainedAt(node)}, s, open) {
		return Answer{}
	}
	if !open {
		return Answer{Unknown: true, Reason: "its job is to be looked at"}
	}
	answer := Answer{Begun: s.begun}
	warned := pod.Annotations[api.AnnotationCheckpointRequest] == s.id
	switch {
	case !s.leaving.Has(pod.UID):
		answer.Unknown, answer.Reason = true, "its job is to be looked at"
	case doubtful:
		answer.Reason, answer.From = "nothing has confirmed the notice", until
	case !s.phase.isDecided():
		answer.Reason = "its job is being asked"
	case s.phase == Shrinking:
		answer.Reason = "its job's system is taking it out of the job"
	case c.config.Clock.Now().Before(s.evictFrom):
		answer.Reason, answer.From = "its job's system is ending it", s.evictFrom
	case !s.untrack.IsZero() && batchjob.IsTracked(pod) && c.config.Clock.Now().Before(s.evictFrom.Add(untrackPatience)):
		answer.Reason, answer.From = "the Job controller would count its end", s.evictFrom.Add(untrackPatience)
	case !warned && c.config.Clock.Since(s.begun) < warnPatienceOf(n):
		answer.Reason, answer.From = "it is not warned", s.begun.Add(warnPatienceOf(n))
	case !c.isNext(pod, s):
		answer.Reason = "others of its job leave before it"
	}
	return answer
}

// rank is the place in the order in which the pods of a job leave: the loss of the host ends the rendezvous of the workers, the
// loss of the launcher ends the job.
func rank(role jobs.Role) int {
	switch role {
	case jobs.RoleLauncher:
		return 2
	case jobs.RoleHost:
		return 1
	}
	return 0
}

// isNext returns whether no pod is left that must leave before this one. Pods that were not part of the handshake do not count:
// they came back, and may do so again and again.
func (c *Controller) isNext(pod *corev1.Pod, s state) bool {
	role := c.config.Cluster.RoleOf(pod)
	if rank(role) == 0 {
		return true
	}
	for _, other := range c.config.Cluster.PodsOf(c.config.Cluster.PartyOf(pod).Job()) {
		if s.leaving.Has(other.UID) && rank(c.config.Cluster.RoleOf(other)) < rank(role) {
			return false
		}
	}
	return true
}
