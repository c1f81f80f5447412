package notice

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// FromMarks returns the notice that the Node's marks state. It returns false if no deadline can be read from them.
func FromMarks(node *corev1.Node, instanceID string) (Notice, bool) {
	deadline, ok := deadlineOn(node)
	if !ok {
		return Notice{}, false
	}
	n := Notice{
		InstanceID: instanceID, Deadline: deadline.UTC(), Source: SourceUnknown,
		Stated: node.Annotations[api.AnnotationReclaimStated] == "true",
	}
	if source := Source(node.Annotations[api.AnnotationReclaimSource]); slices.Contains(Sources, source) {
		n.Source = source
	}
	if d, stands, err := DrillOf(node); n.IsDrill() && stands && err == nil {
		n.Until = d.Until
	}
	n.Confirmed = !n.Source.NeedsConfirmation() || cluster.IsConfirmed(node)
	if n.FirstSeen = cluster.TimeOf(node, api.AnnotationReclaimNoticed); n.FirstSeen.IsZero() {
		n.FirstSeen = n.Deadline.Add(-DefaultPeriod)
	}
	return n, true
}

// deadlineOn reads the annotation, or else the taint, which somebody may have left.
func deadlineOn(node *corev1.Node) (time.Time, bool) {
	if deadline := cluster.TimeOf(node, api.AnnotationReclaimDeadline); !deadline.IsZero() {
		return deadline, true
	}
	i := slices.IndexFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == api.TaintReclaim })
	if i < 0 {
		return time.Time{}, false
	}
	seconds, err := strconv.ParseInt(node.Spec.Taints[i].Value, 10, 64)
	return time.Unix(seconds, 0), err == nil
}
