package jobs

import corev1 "k8s.io/api/core/v1"

// Reasons of the Events on jobs.
const (
	// ReasonWarned: nodes of the job are reclaimed, a checkpoint is asked for.
	ReasonWarned = "SpotJobWarned"
	// ReasonShrunk: the job was told to go on without the workers that it loses.
	ReasonShrunk = "SpotJobShrunk"
	// ReasonSuspended: the job was suspended for a reclaim.
	ReasonSuspended = "SpotJobSuspended"
	// ReasonStopped: the job was told to save its work and to stop, before it is suspended.
	ReasonStopped = "SpotJobStopped"
	// ReasonResumed: a suspended job runs again.
	ReasonResumed = "SpotJobResumed"
	// ReasonGrown: a job that was shrunk gets workers again.
	ReasonGrown = "SpotJobGrown"
	// ReasonTimedOut: the job was suspended because its maximum wait was over.
	ReasonTimedOut = "SpotJobTimedOut"
)

func eventType(reason string) string {
	switch reason {
	case ReasonResumed, ReasonGrown:
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
