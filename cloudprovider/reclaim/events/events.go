// Package events has the Events that reclaims write, in one list, and what bounds their number.
package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

// Reasons of the Events on Nodes, pods and jobs.
const (
	// ReasonNotice: the Node was marked.
	ReasonNotice = "SpotReclaimNotice"
	// ReasonHeld: a notice was pushed that nothing is done about until another source confirms it.
	ReasonHeld = "SpotReclaimHeld"
	// ReasonFault: a condition says that the Node is faulty, so it is drained and its instance given back.
	ReasonFault = "SpotNodeFault"
	// ReasonFaultHeld: a condition says so, and nothing is done because too many other Nodes are or were faulty.
	ReasonFaultHeld = "SpotNodeFaultHeld"
	// ReasonFaultStays: the instance of the faulty Node could not be given back.
	ReasonFaultStays = "SpotNodeFaultStays"
	// ReasonMoveEnded: the jobs of an on-demand Node have not moved to spot instances, and the Node is restored.
	ReasonMoveEnded = "SpotMoveEnded"
	// ReasonDrillEnded: a drill is over, and the Node is restored.
	ReasonDrillEnded = "SpotDrillEnded"
	// ReasonWarned, on a pod of a job: its Node will be released, and it was asked to save its work.
	ReasonWarned = "SpotReclaimWarned"
	// ReasonSaved, on a job, or on a pod if there is no other object: its work is saved.
	ReasonSaved = "SpotCheckpointAcknowledged"
	// ReasonUnsaved, on the same: the acknowledgement was awaited, and did not come in time.
	ReasonUnsaved = "SpotCheckpointMissed"
	// ReasonUnprepared, on the same: the job could be neither shrunk nor suspended.
	ReasonUnprepared = "SpotReclaimUnprepared"
	// ReasonEvicted, on a pod: it was evicted in time.
	ReasonEvicted = "SpotReclaimEvicted"
	// ReasonDeleted, on a pod: an eviction would have come too late, so it was deleted.
	ReasonDeleted = "SpotReclaimDeleted"
	// ReasonDrained: the Node is without pods.
	ReasonDrained = "SpotReclaimDrained"
	// ReasonCancelled: the notice was withdrawn, and the marks were removed.
	ReasonCancelled = "SpotReclaimCancelled"
	// ReasonRemoved: the instance was given back and is gone, and the Node was deleted.
	ReasonRemoved = "SpotNodeRemoved"
	// ReasonStopped: the instance was stopped instead of released, and the Node stays marked.
	ReasonStopped = "SpotReclaimStopped"
	// ReasonReleased: the instance was released, and the Node was deleted.
	ReasonReleased = "SpotReclaimReleased"
)

// Bounds of the Events on pods, per second and at once. Thousands of pods may go at the same time, and each Event is a request that
// an eviction waits for.
const podQPS, podBurst = 2, 200

// Recorder writes Events. It is safe for concurrent use.
type Recorder struct {
	recorder record.EventRecorder
	pods     flowcontrol.PassiveRateLimiter
}

// NewRecorder returns a Recorder that writes with the given one.
func NewRecorder(recorder record.EventRecorder, clk clock.PassiveClock) *Recorder {
	return &Recorder{recorder: recorder, pods: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(podQPS, podBurst, clk)}
}

// Eventf writes an Event, of the type that its reason has.
func (r *Recorder) Eventf(object runtime.Object, reason, format string, args ...any) {
	kind := corev1.EventTypeNormal
	switch reason {
	case ReasonNotice, ReasonHeld, ReasonFault, ReasonFaultHeld, ReasonFaultStays, ReasonWarned, ReasonUnsaved, ReasonUnprepared, ReasonDeleted, ReasonStopped:
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(object, kind, reason, format, args...)
}

// PodEventf is for what happens to each pod. It leaves the Event out if too much of that happens at once: the Events on Nodes and
// jobs say the same.
func (r *Recorder) PodEventf(pod *corev1.Pod, reason, format string, args ...any) {
	if r.pods.TryAccept() {
		r.Eventf(pod, reason, format, args...)
	}
}

// FormatTime returns the time as Events and annotations have it.
func FormatTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// FormatLeft returns how much time is left as Events have it.
func FormatLeft(left time.Duration) string { return left.Round(time.Second).String() }
