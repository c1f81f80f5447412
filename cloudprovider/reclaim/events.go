package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Reasons of the Events on Nodes, pods and jobs.
const (
	// ReasonNotice: the Node was marked.
	ReasonNotice = "SpotReclaimNotice"
	// ReasonHeld: a notice was pushed that is not acted upon before another source confirms it.
	ReasonHeld = "SpotReclaimHeld"
	// ReasonWarned, on a pod of a job: its Node will be released, it is asked to save its work.
	ReasonWarned = "SpotReclaimWarned"
	// ReasonSaved, on a job, or on a pod where there is no other object: its work is saved.
	ReasonSaved = "SpotCheckpointAcknowledged"
	// ReasonUnsaved, on the same: the word that it is was awaited, and did not come in time.
	ReasonUnsaved = "SpotCheckpointMissed"
	// ReasonUnprepared, on the same: the job could be neither shrunk nor suspended.
	ReasonUnprepared = "SpotReclaimUnprepared"
	// ReasonEvicted, on a pod: it was evicted in time.
	ReasonEvicted = "SpotReclaimEvicted"
	// ReasonDeleted, on a pod: eviction would have come too late, it was deleted.
	ReasonDeleted = "SpotReclaimDeleted"
	// ReasonDrained: the Node is without pods.
	ReasonDrained = "SpotReclaimDrained"
	// ReasonCancelled: the notice was withdrawn, the marks are off.
	ReasonCancelled = "SpotReclaimCancelled"
	// ReasonRemoved: the instance was given back and is no more, the Node was removed.
	ReasonRemoved = "SpotNodeRemoved"
	// ReasonStopped: the instance was stopped instead of released, the Node stays marked.
	ReasonStopped = "SpotReclaimStopped"
	// ReasonReleased: the instance is no more, the Node was removed.
	ReasonReleased = "SpotReclaimReleased"
)

func (c *Controller) event(object runtime.Object, reason, format string, args ...any) {
	kind := corev1.EventTypeNormal
	switch reason {
	case ReasonNotice, ReasonHeld, ReasonWarned, ReasonUnsaved, ReasonUnprepared, ReasonDeleted, ReasonStopped:
		kind = corev1.EventTypeWarning
	}
	c.Recorder.Eventf(object, kind, reason, format, args...)
}

// Events on pods, per second and burst. Thousands of pods may go at the same time, and each Event is a request.
const podEventQPS, podEventBurst = 20, 200

// podEvent is for what happens to each pod. It is left out where too much of that happens at once: the Events on Nodes and
// jobs tell the story too.
func (c *Controller) podEvent(pod *corev1.Pod, reason, format string, args ...any) {
	if c.handshakes.podEvents.TryAccept() {
		c.event(pod, reason, format, args...)
	}
}

func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }
