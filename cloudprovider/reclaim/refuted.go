package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Whoever has the token of a sender chooses the times of events, so a false notice that was taken back could be pushed anew
// at once, or for the next Nodes. What is known of it is on the Node (api.AnnotationReclaimCancelled), also to the next leader.

const (
	// refutedHold is for how long after ECS contradicted a notice further ones are not acted upon for being pushed.
	refutedHold = 30 * time.Minute
	// refutedCounts is for how long a Node counts as unconfirmed after that.
	refutedCounts = 10 * time.Minute
)

// isRefuted says whether the Node was given back shortly before the notice, or since: ECS had contradicted the last one.
func isRefuted(node *corev1.Node, n Notice) bool {
	refuted := timeOf(node, api.AnnotationReclaimCancelled)
	return !refuted.IsZero() && n.FirstSeen.Sub(refuted) < refutedHold
}

// refuted are the spot instances whose Nodes were given back of late.
func (c *Controller) refuted() sets.Set[string] {
	found := sets.New[string]()
	for _, node := range indexed[*corev1.Node](c.nodeInformer, byMark, cancelled) {
		if !isOnDemand(node) && c.Clock.Since(timeOf(node, api.AnnotationReclaimCancelled)) < refutedCounts {
			found.Insert(c.instanceID(node))
		}
	}
	return found
}
