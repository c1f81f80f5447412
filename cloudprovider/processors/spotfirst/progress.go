package spotfirst

import (
	"time"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Progress knows how much of their work jobs have saved. *progress.Progress implements it.
type Progress interface {
	// Saved returns how much of the work that the pod states its job had saved, and when; zero if that is not known.
	Saved(pod *apiv1.Pod) (saved time.Duration, at time.Time)
}

// leaving returns the settings with the work that is left of the job of the pod, which runs since a time, or does not if that is zero. It does nothing
// useful until it has restarted.
func (s settings) leaving(progress Progress, pod *apiv1.Pod, since time.Time, restart time.Duration, now time.Time) settings {
	if s.work <= 0 {
		return s
	}
	var saved time.Duration
	var at time.Time
	if _, says := pod.Annotations[api.AnnotationWorkSaved]; progress != nil && !says {
		saved, at = progress.Saved(pod)
	}
	if !since.IsZero() {
		since = since.Add(restart)
		if at.After(since) {
			since = at
		}
		saved += max(0, now.Sub(since))
	}
	s.work = max(0, s.work-saved)
	return s
}

// awaits returns whether the pod says that it acknowledges when its work is saved.
func awaits(pod *apiv1.Pod) bool {
	value := pod.Annotations[api.AnnotationAwaitCheckpoint]
	return value != "" && value != "false"
}

// startOf returns when the last container of the pod was started, zero if none runs.
func startOf(pod *apiv1.Pod) (last time.Time) {
	for _, container := range pod.Status.ContainerStatuses {
		if running := container.State.Running; running != nil && running.StartedAt.After(last) {
			last = running.StartedAt.Time
		}
	}
	return last
}
