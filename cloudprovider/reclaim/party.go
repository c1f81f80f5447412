package reclaim

import (
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// party is whom a handshake is with: the pods of a job together, or one pod of those that have only their controller in
// common. It is comparable.
type party struct {
	jobs.Ref
	// pod is the name of the one that is on its own, empty for all pods of the job.
	pod string
}

// String is that of the Ref, with the pod where it is on its own.
func (p party) String() string {
	if p.pod == "" {
		return p.Ref.String()
	}
	return p.Ref.String() + "/" + p.pod
}

// whole are all pods of the job.
func (p party) whole() party { return party{Ref: p.Ref} }

func (c *Controller) partyOf(pod *corev1.Pod) party {
	p := party{Ref: c.Jobs.Member(pod).Ref}
	if c.Jobs.Alone(pod) {
		p.pod = pod.Name
	}
	return p
}
