package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events on Nodes and pods.
const (
	// ReasonNotice: the Node was marked.
	ReasonNotice = "SpotReclaimNotice"
	// ReasonEvicted, on a pod: it was evicted in time.
	ReasonEvicted = "SpotReclaimEvicted"
	// ReasonDeleted, on a pod: eviction would have come too late, it was deleted.
	ReasonDeleted = "SpotReclaimDeleted"
	// ReasonDrained: the Node is without pods.
	ReasonDrained = "SpotReclaimDrained"
	// ReasonCancelled: the notice was withdrawn, the marks are off.
	ReasonCancelled = "SpotReclaimCancelled"
	// ReasonReleased: the instance is no more, the Node was removed.
	ReasonReleased = "SpotReclaimReleased"
)

func (c *Controller) event(object runtime.Object, reason, format string, args ...any) {
	kind := corev1.EventTypeNormal
	if reason == ReasonNotice || reason == ReasonDeleted {
		kind = corev1.EventTypeWarning
	}
	c.Recorder.Eventf(object, kind, reason, format, args...)
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
