package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/kubernetes/pkg/util/taints"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// IsOnDemand returns whether ACK's label or ours says that the Node's instance is pay-as-you-go. Such an instance is never
// reclaimed, so a notice for it is an error or a lie, and no notice touches its Node.
func IsOnDemand(node *corev1.Node) bool {
	return api.IsOnDemand(node.Labels)
}

// IsMarked returns whether anything on the Node says that it is reclaiming. The marks may be incomplete, because somebody took
// one off.
func IsMarked(node *corev1.Node) bool {
	_, annotated := node.Annotations[api.AnnotationReclaimDeadline]
	return annotated || taints.TaintKeyExists(node.Spec.Taints, api.TaintReclaim)
}

// IsConfirmed returns whether the marks say that another source has confirmed a notice that was only pushed.
func IsConfirmed(node *corev1.Node) bool {
	return node.Annotations[api.AnnotationReclaimConfirmed] == "true"
}

// DrainedAt returns when the Node was first without pods that are to be drained, zero if it has not been.
func DrainedAt(node *corev1.Node) time.Time { return TimeOf(node, api.AnnotationReclaimDrained) }

// IsDrained returns whether the Node was without pods that are to be drained at some time since its notice.
func IsDrained(node *corev1.Node) bool {
	_, drained := node.Annotations[api.AnnotationReclaimDrained]
	return drained
}

// IsReady returns whether the Node is ready.
func IsReady(node *corev1.Node) bool {
	_, ready := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

// TimeOf returns the RFC 3339 time in an annotation of the Node, zero if it is missing or cannot be parsed.
func TimeOf(node *corev1.Node, annotation string) time.Time {
	text := node.Annotations[annotation]
	if text == "" {
		return time.Time{} // time.Parse would allocate an error for each Node at each heartbeat
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}
