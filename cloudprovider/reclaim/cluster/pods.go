package cluster

import (
	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
)

// Drainable returns the pods that a drain evicts: those that have not ended and do not belong to their Node.
func Drainable(pods []*corev1.Pod) []*corev1.Pod {
	var left []*corev1.Pod
	for _, pod := range pods {
		if !kubepod.IsPodTerminal(pod) && !podindex.BelongsToNode(pod) {
			left = append(left, pod)
		}
	}
	return left
}

// Labels by which pods of the node-agent are known, and their values. Source: deploy/manifests/optional/node-agent.yaml.
const (
	labelComponent, componentNodeAgent = "app.kubernetes.io/component", "node-agent"
	labelPartOf, partOfAutoscaler      = "app.kubernetes.io/part-of", "gpu-spot-autoscaler"
)

// IsNodeAgent returns whether the pod is one of the node-agent's DaemonSet.
func IsNodeAgent(pod *corev1.Pod) bool {
	return podutil.IsDaemonSetPod(pod) && pod.Labels[labelComponent] == componentNodeAgent && pod.Labels[labelPartOf] == partOfAutoscaler
}

// Party is the other side of a handshake: all pods of a job, or those of one of its units. It is comparable.
type Party struct {
	jobs.Ref
	// Unit is the name of the unit as jobs.Registry has it, empty for all pods of the job.
	Unit string
}

// String returns that of the Ref, with the unit if it is only one.
func (p Party) String() string {
	if p.Unit == "" {
		return p.Ref.String()
	}
	return p.Ref.String() + "/" + p.Unit
}

// Job returns the party of all pods of the job.
func (p Party) Job() Party { return Party{Ref: p.Ref} }

// PartyOf returns the party that the pod belongs to.
func (c *Cluster) PartyOf(pod *corev1.Pod) Party {
	return Party{Ref: c.jobs.Member(pod).Ref, Unit: c.jobs.UnitOf(pod)}
}

// RoleOf returns the role of the pod in its job.
func (c *Cluster) RoleOf(pod *corev1.Pod) jobs.Role { return c.jobs.Member(pod).Role }

// SystemOf returns the name of the system of the pod's job.
func (c *Cluster) SystemOf(pod *corev1.Pod) string { return c.jobs.Member(pod).System }
