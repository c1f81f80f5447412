// Package podindex finds the pods of a job, of one of its units, and of a Node. It adds indexes to the informer that the rest of the
// process uses, and has no state of its own.
package podindex

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/client-go/tools/cache"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/wire"
)

// Names of the indexes, distinct from those that others may add to the same informer.
const (
	byNode = "gpu-spot/node"
	byJob  = "gpu-spot/job"
)

// Jobs tells which pods belong together. It is implemented by *jobs.Registry.
type Jobs interface {
	// Member is called for every pod of the cluster whenever it changes. It goes by the pod alone.
	Member(pod *corev1.Pod) jobs.Membership
	// UnitOf returns the name of those pods of the job that lose their work with this one, empty for all of them. It goes by the pod alone.
	UnitOf(pod *corev1.Pod) string
}

// Index is safe for concurrent use. Like the cache that it reads, it may be ahead of the informer's handlers, and never behind them.
type Index struct {
	jobs Jobs
	pods cache.SharedIndexInformer
}

// New adds the indexes to the informer of pods, which must not have been started. The error says that they could not be added.
func New(pods cache.SharedIndexInformer, jobs Jobs) (*Index, error) {
	x := &Index{jobs: jobs, pods: pods}
	if err := pods.AddIndexers(cache.Indexers{
		byNode: func(obj any) ([]string, error) {
			if node := obj.(*corev1.Pod).Spec.NodeName; node != "" {
				return []string{node}, nil
			}
			return nil, nil
		},
		byJob: func(obj any) ([]string, error) { return x.jobKeys(obj.(*corev1.Pod)), nil },
	}); err != nil {
		return nil, fmt.Errorf("index pods: %w", err)
	}
	return x, nil
}

// jobKeys returns the key of the pod's job, and that of its unit if it is in one. Pods that belong to their Node have none.
func (x *Index) jobKeys(pod *corev1.Pod) []string {
	if BelongsToNode(pod) {
		return nil
	}
	ref := x.jobs.Member(pod).Ref
	if unit := x.jobs.UnitOf(pod); unit != "" {
		return []string{ref.String(), unitKey(ref, unit)}
	}
	return []string{ref.String()}
}

func unitKey(ref jobs.Ref, unit string) string { return ref.String() + "/" + unit }

// OnNode returns the pods on the Node of that name.
func (x *Index) OnNode(name string) []*corev1.Pod { return x.find(byNode, name) }

// OfJob returns the pods of the job, those that have ended too.
func (x *Index) OfJob(ref jobs.Ref) []*corev1.Pod { return x.find(byJob, ref.String()) }

// OfUnit returns the pods of a unit of the job, by its name as Jobs has it.
func (x *Index) OfUnit(ref jobs.Ref, unit string) []*corev1.Pod {
	return x.find(byJob, unitKey(ref, unit))
}

// find panics if the index does not exist, but New has added both.
func (x *Index) find(index, key string) []*corev1.Pod {
	objects, err := x.pods.GetIndexer().ByIndex(index, key)
	if err != nil {
		panic(err)
	}
	found := make([]*corev1.Pod, 0, len(objects))
	for _, object := range objects {
		found = append(found, object.(*corev1.Pod))
	}
	return found
}

// BelongsToNode returns whether the pod is the kubelet's own or a DaemonSet's: it goes with its Node, and is part of no job.
func BelongsToNode(pod *corev1.Pod) bool {
	return podutil.IsMirrorPod(pod) || podutil.IsStaticPod(pod) || podutil.IsDaemonSetPod(pod)
}

// CallersOf returns the names by which the node-agent knows the pod when it calls.
func CallersOf(pod *corev1.Pod) (callers []string) {
	if pod.Spec.HostNetwork {
		return []string{api.CallerHost}
	}
	for _, ip := range pod.Status.PodIPs { // informers have those of pods that ask, and not PodIP
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			callers = append(callers, wire.Caller(address))
		}
	}
	return callers
}
