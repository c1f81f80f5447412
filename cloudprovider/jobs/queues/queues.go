// Package queues tells whether the ClusterQueue of a job has quota left for it, before nodes are bought for a job that Kueue
// (sigs.k8s.io/kueue) has yet to admit again. It goes by what Kueue itself says of its ClusterQueues, and counts quota only
// where the job needs neither to borrow nor to preempt others. Which flavors the taints and labels of nodes leave to its pods is not read.
// Whatever else is possible only Kueue knows.
package queues

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Quotas are what the ClusterQueues had left at one moment, less what is claimed of it. They are not safe for concurrent use.
type Quotas struct {
	queues        map[types.NamespacedName]localQueue
	clusterQueues map[string]clusterQueue
	// topologies are the ResourceFlavors whose nodes have a topology.
	topologies sets.Set[string]
	// claimed is what is claimed of each ClusterQueue.
	claimed map[string]corev1.ResourceList
}

// New returns the Quotas of these LocalQueues, ClusterQueues and ResourceFlavors. What cannot be read of them is left out.
func New(localQueues, clusterQueues, flavors []unstructured.Unstructured) *Quotas {
	q := &Quotas{
		queues: map[types.NamespacedName]localQueue{}, clusterQueues: map[string]clusterQueue{}, topologies: sets.New[string](),
		claimed: map[string]corev1.ResourceList{},
	}
	for i := range flavors {
		var flavor flavor
		if decode(&flavors[i], &flavor) && flavor.Spec.TopologyName != "" {
			q.topologies.Insert(flavors[i].GetName())
		}
	}
	for i := range localQueues {
		var queue localQueue
		if decode(&localQueues[i], &queue) {
			q.queues[types.NamespacedName{Namespace: localQueues[i].GetNamespace(), Name: localQueues[i].GetName()}] = queue
		}
	}
	for i := range clusterQueues {
		var queue clusterQueue
		if decode(&clusterQueues[i], &queue) {
			q.clusterQueues[clusterQueues[i].GetName()] = queue
		}
	}
	return q
}

// Uses returns what the pods take of a quota. Kueue counts the pods, too (pkg/workload/resources.go, 0.12.3).
func Uses(pods []*corev1.Pod) corev1.ResourceList {
	used := corev1.ResourceList{corev1.ResourcePods: *resource.NewQuantity(int64(len(pods)), resource.DecimalSI)}
	for _, pod := range pods {
		used = quota.Add(used, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	}
	return used
}

// NeedsNodes returns whether Kueue admits a job with such pods in the LocalQueue only where it finds their nodes ready. It does with
// topology-aware scheduling (pkg/cache/tas_flavor.go, 0.12.3), for which pods ask, or which all flavors of the ClusterQueue have
// (isTASImplied in pkg/scheduler/flavorassigner/tas_flavorassigner.go).
func (q *Quotas) NeedsNodes(queue types.NamespacedName, pods []*corev1.Pod) bool {
	cluster, known := q.clusterQueues[q.queues[queue].Spec.ClusterQueue]
	return known && cluster.hasOnly(q.topologies) || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		for key := range pod.Annotations {
			if strings.HasPrefix(key, "kueue.x-k8s.io/podset-") && strings.HasSuffix(key, "-topology") {
				return true
			}
		}
		return false
	})
}

// Claim takes what a job will use out of the quota that is left.
func (q *Quotas) Claim(queue types.NamespacedName, use corev1.ResourceList) {
	name := q.queues[queue].Spec.ClusterQueue
	q.claimed[name] = quota.Add(q.claimed[name], use)
}

// Holds returns whether a job that is put in the LocalQueue now is admitted at once, as far as its ClusterQueue says.
func (q *Quotas) Holds(queue types.NamespacedName, use corev1.ResourceList) bool {
	local := q.queues[queue]
	cluster, known := q.clusterQueues[local.Spec.ClusterQueue]
	if !known || isStopped(local.Spec.StopPolicy) || !cluster.admits() {
		return false
	}
	for _, group := range cluster.Spec.ResourceGroups {
		need := quota.Mask(use, group.CoveredResources)
		holds := func(flavor flavorQuotas) bool { return q.hasLeft(local.Spec.ClusterQueue, flavor.Name, need) }
		if !quota.IsZero(need) && !slices.ContainsFunc(group.Flavors, holds) {
			return false
		}
	}
	return true
}

// hasLeft returns whether the ClusterQueue has so much left of its own quota of the flavor, and whether others of its cohort have left it that.
func (q *Quotas) hasLeft(name, flavor string, need corev1.ResourceList) bool {
	if fits, _ := quota.LessThanOrEqual(need, q.left(name, flavor)); !fits {
		return false
	}
	queue := q.clusterQueues[name]
	cohort := queue.cohort()
	if cohort == "" {
		return true
	}
	var left corev1.ResourceList
	for other, of := range q.clusterQueues {
		if of.cohort() == cohort {
			left = quota.Add(left, q.left(other, flavor))
		}
	}
	fits, _ := quota.LessThanOrEqual(need, left)
	return fits
}

// left returns what the ClusterQueue has left of the flavor, as if what is claimed were to be of this one.
func (q *Quotas) left(name, flavor string) corev1.ResourceList {
	queue := q.clusterQueues[name]
	left := queue.left(flavor)
	return quota.Subtract(left, quota.Mask(q.claimed[name], quota.ResourceNames(left)))
}
