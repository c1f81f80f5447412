package releaseall

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	coretaints "k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/kubernetes/pkg/util/taints"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/nodepatch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// unmarkNodes removes from Nodes what the autoscaler has written there.
func (r *releaser) unmarkNodes(ctx context.Context, instances sets.Set[string]) error {
	r.say("Removing the marks of Nodes")
	list, err := r.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	now := r.clock.Now()
	workqueue.ParallelizeUntil(ctx, parallelism, len(list.Items), func(i int) {
		node := &list.Items[i]
		isOurs := isOf(node, instances)
		unmark := func(node *corev1.Node) { unmarkNode(node, isOurs, now) }
		entry := Node{Name: node.Name, Marks: marksOf(node, isOurs), Leaving: isLeaving(node, now), Faulty: isFaulty(node, now)}
		if !entry.Leaving && !nodepatch.Changes(node, unmark) {
			return
		}
		if !r.dryRun {
			ctx, cancel := context.WithTimeout(ctx, nodepatch.Timeout)
			defer cancel()
			if _, err := nodepatch.Apply(ctx, r.kube, node, unmark); err != nil {
				entry.Error = err.Error()
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Nodes = append(r.report.Nodes, entry)
	})
	return nil
}

// isOf returns whether the Node is one of the instances, or one that the autoscaler has given back.
func isOf(node *corev1.Node, instances sets.Set[string]) bool {
	_, isRemoved := node.Annotations[api.AnnotationRemoved]
	_, id, err := providerid.Parse(node.Spec.ProviderID)
	return isRemoved || err == nil && instances.Has(id)
}

// isLeaving returns whether the instance of the Node is about to be released: Alibaba Cloud has announced that, or ESS has accepted to remove it.
// An instance that is drilled stays, and so does one that only the autoscaler gives back, as long as ESS has not accepted to remove it.
func isLeaving(node *corev1.Node, now time.Time) bool {
	if n, isMarked := notice.FromMarks(node, ""); isMarked && !n.IsDrill() && !n.IsGivenBack() && now.Before(n.Deadline.Add(notice.ReleaseGrace)) {
		return true
	}
	removed := cluster.TimeOf(node, api.AnnotationRemoved)
	return !removed.IsZero() && now.Before(removed.Add(notice.RemovalTime))
}

// isFaulty returns whether the autoscaler was about to give back the instance of the Node because it is faulty, and ESS has not accepted that.
func isFaulty(node *corev1.Node, now time.Time) bool {
	n, isMarked := notice.FromMarks(node, "")
	return isMarked && n.Source == notice.SourceFault && !isLeaving(node, now)
}

// noted are the annotations by which the autoscaler and its node-agent make notes on Nodes, beside the marks and the sources of notices.
var noted = []string{
	api.AnnotationReclaimCancelled, api.AnnotationGiveBack, api.AnnotationRemoved, api.AnnotationAwaitedAcknowledgements,
	api.AnnotationCheckpointAcknowledged,
}

// unmarkNode removes from the Node all that the autoscaler has written there. A Node whose instance is about to be released keeps it: jobs are
// resumed next, and one that began there would lose its work in minutes. Its marks say so to pods that tolerate every taint, too, and if it
// stays after all, they are removed by the next run. A faulty Node stays cordoned, since nobody gives it back any more. Taints of scale-down
// are removed from our own Nodes only, since those of another Cluster Autoscaler look the same.
func unmarkNode(node *corev1.Node, isOurs bool, now time.Time) {
	if isLeaving(node, now) {
		return
	}
	_, isGivenBack := node.Annotations[api.AnnotationGiveBack]
	staysCordoned := isFaulty(node, now)
	mark.Remove(node, now)
	switch {
	case staysCordoned:
		node.Spec.Unschedulable = true
	case isGivenBack:
		node.Spec.Unschedulable = false
	}
	for _, key := range noted {
		delete(node.Annotations, key)
	}
	if isOurs {
		for _, key := range []string{coretaints.ToBeDeletedTaint, coretaints.DeletionCandidateTaint} {
			node.Spec.Taints, _ = taints.DeleteTaintsByKey(node.Spec.Taints, key)
		}
	}
}

// marksOf says what is on the Node.
func marksOf(node *corev1.Node, isOurs bool) (marks []string) {
	add := func(is bool, what string) {
		if is {
			marks = append(marks, what)
		}
	}
	_, isGivenBack := node.Annotations[api.AnnotationGiveBack]
	_, isRemoved := node.Annotations[api.AnnotationRemoved]
	add(cluster.IsMarked(node), "reclaim")
	add(isGivenBack, "give-back")
	add(isRemoved, "removal")
	add(isOurs && (coretaints.HasToBeDeletedTaint(node) || coretaints.HasDeletionCandidateTaint(node)), "scale-down")
	if len(marks) == 0 {
		marks = []string{"notes"}
	}
	return marks
}
