package supervisor

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/client-go/tools/cache"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// podIndex has the pods of the cluster that take up capacity or wait for it, by job and by node. Pods that have ended are left
// out, and those that belong to their node: of DaemonSets, and static pods. It goes by names, as informers do: to them, a pod that
// was made again under its name while their watch was broken is a pod that has changed. It is safe for concurrent use.
type podIndex struct {
	member func(*corev1.Pod) jobs.Membership
	store  cache.Indexer // of indexedPods
}

type indexedPod struct {
	*corev1.Pod
	member jobs.Membership
}

const (
	indexJob  = "job"
	indexNode = "node"
)

func newPodIndex(member func(*corev1.Pod) jobs.Membership) *podIndex {
	return &podIndex{member: member, store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		indexJob: func(object any) ([]string, error) { return []string{object.(indexedPod).member.Ref.String()}, nil },
		indexNode: func(object any) ([]string, error) {
			if node := object.(indexedPod).Spec.NodeName; node != "" {
				return []string{node}, nil
			}
			return nil, nil
		},
	})}
}

// put records the pod as it is now, and returns whether it waits for a node.
func (x *podIndex) put(pod *corev1.Pod) (ref jobs.Ref, pending bool) {
	if kubepod.IsPodTerminal(pod) || podutil.IsDaemonSetPod(pod) || podutil.IsMirrorPod(pod) {
		x.remove(pod)
		return jobs.Ref{}, false
	}
	member := x.member(pod)
	_ = x.store.Add(indexedPod{pod, member}) // fails only where the key function does
	return member.Ref, isPending(pod)
}

func (x *podIndex) remove(pod *corev1.Pod) { _ = x.store.Delete(indexedPod{Pod: pod}) }

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
func (x *podIndex) count(refs ...jobs.Ref) (counts podCounts) {
	for _, ref := range refs {
		objects, _ := x.store.ByIndex(indexJob, ref.String()) // fails only where there is no such index
		for _, object := range objects {
			counts.add(object.(indexedPod))
		}
	}
	return counts
}

func (c *podCounts) add(pod indexedPod) {
	c.total++
	if created := pod.CreationTimestamp.Time; created.After(c.newest) {
		c.newest = created
	}
	isLauncher := pod.member.Role == jobs.RoleLauncher
	switch {
	case pod.DeletionTimestamp != nil:
		c.terminating++
	case isPending(pod.Pod):
		if c.first == nil || pod.CreationTimestamp.Before(&c.first.CreationTimestamp) {
			c.first = pod.Pod
		}
		if !isLauncher {
			c.pending++
		}
	case pod.Spec.NodeName != "" && !isLauncher:
		c.running++
		if isReady(pod.Pod) {
			c.ready++
		}
	}
}

// onNode counts the pods on a node: those of the job, by the String of its Ref, and others.
func (x *podIndex) onNode(node, job string) (own, others int) {
	objects, _ := x.store.ByIndex(indexNode, node)
	for _, object := range objects {
		if object.(indexedPod).member.Ref.String() == job {
			own++
		} else {
			others++
		}
	}
	return own, others
}
