package mark

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/util/taints"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/nodepatch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// annotations are those of the marks.
var annotations = []string{
	api.AnnotationReclaimDeadline, api.AnnotationReclaimNoticed, api.AnnotationReclaimStated, api.AnnotationReclaimSource,
	api.AnnotationReclaimConfirmed, api.AnnotationReclaimCordoned, api.AnnotationReclaimDrained, api.AnnotationReclaimForced,
}

// cordonTaint is the taint that Kubernetes' node lifecycle controller puts on an unschedulable Node. It comes with the marks, so
// that a thousand marks are not a thousand more changes by that controller.
var cordonTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// IsComplete returns whether the Node has all marks of the notice.
func IsComplete(node *corev1.Node, n notice.Notice) bool {
	return !nodepatch.Changes(node, func(node *corev1.Node) { apply(node, n) })
}

// apply puts the marks on the Node that are missing.
func apply(node *corev1.Node, n notice.Notice) {
	replaceYielded(node, n)
	node.Annotations[api.AnnotationReclaimDeadline] = n.Deadline.UTC().Format(time.RFC3339)
	node.Annotations[api.AnnotationReclaimNoticed] = n.FirstSeen.UTC().Format(time.RFC3339Nano)
	node.Annotations[api.AnnotationReclaimSource] = string(n.Source)
	if n.Stated {
		node.Annotations[api.AnnotationReclaimStated] = "true"
	}
	if n.Confirmed && n.Source.NeedsConfirmation() {
		node.Annotations[api.AnnotationReclaimConfirmed] = "true"
	}
	node.Labels[api.LabelReclaiming] = "true"
	taint := corev1.Taint{Key: api.TaintReclaim, Value: strconv.FormatInt(n.Deadline.Unix(), 10), Effect: corev1.TaintEffectNoSchedule}
	if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }) {
		node.Spec.Taints, _ = taints.DeleteTaintsByKey(node.Spec.Taints, api.TaintReclaim)
		node.Spec.Taints = append(node.Spec.Taints, taint)
		if !node.Spec.Unschedulable && !taints.TaintExists(node.Spec.Taints, &cordonTaint) {
			node.Spec.Taints = append(node.Spec.Taints, cordonTaint)
		}
	}
	if !node.Spec.Unschedulable {
		node.Annotations[api.AnnotationReclaimCordoned] = "true"
		node.Spec.Unschedulable = true
	}
}

// Remove takes off the Node what apply and the sources put on, and nothing else. If there was anything, it notes when, unless it was a
// drill.
func Remove(node *corev1.Node, now time.Time) {
	found, drilled := false, isOfDrill(node)
	delete(node.Annotations, api.AnnotationDrill)
	if node.Spec.Unschedulable && node.Annotations[api.AnnotationReclaimCordoned] == "true" {
		node.Spec.Unschedulable = false
		node.Spec.Taints, _ = taints.DeleteTaint(node.Spec.Taints, &cordonTaint)
		found = true
	}
	for _, key := range slices.Concat(annotations, notice.SourceAnnotations) {
		if _, ok := node.Annotations[key]; ok {
			delete(node.Annotations, key)
			found = true
		}
	}
	if _, ok := node.Labels[api.LabelReclaiming]; ok {
		delete(node.Labels, api.LabelReclaiming)
		found = true
	}
	if taints.TaintKeyExists(node.Spec.Taints, api.TaintReclaim) {
		node.Spec.Taints, _ = taints.DeleteTaintsByKey(node.Spec.Taints, api.TaintReclaim)
		found = true
	}
	if found && !drilled {
		node.Annotations[api.AnnotationReclaimCancelled] = now.UTC().Format(time.RFC3339)
	}
}

// Drained notes when the Node was first without pods.
func Drained(node *corev1.Node, now time.Time) {
	if cluster.IsMarked(node) && !cluster.IsDrained(node) {
		node.Annotations[api.AnnotationReclaimDrained] = now.UTC().Format(time.RFC3339Nano)
	}
}

// Forced notes that the Node is not emptied by evictions alone, so that whoever leads then counts it so.
func Forced(node *corev1.Node) {
	if cluster.IsMarked(node) && !cluster.IsDrained(node) && node.Annotations[api.AnnotationReclaimForced] == "" {
		node.Annotations[api.AnnotationReclaimForced] = "true"
	}
}
