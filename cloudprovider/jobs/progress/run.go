package progress

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// run is how long a job has run since it was started last.
type run struct {
	// of is the work that its pods state.
	of          string
	from, until time.Time
	// pods are how many trained, without launchers.
	pods int
	// acknowledges is whether one of its pods says that the job acknowledges when its work is saved.
	acknowledges bool
	// isUnit is whether each pod of the job saves its work apart from the others.
	isUnit bool
}

// runOf returns the run until a time of a job that was asked for a checkpoint before. It has no pods if none runs, or they do not state their work and
// their deadline. It began when the last container was started: whatever ran before may have waited for that, or have been lost with what it replaced.
func (p *Progress) runOf(pods []*corev1.Pod, asked, until time.Time) (r run) {
	r.until = until
	for _, pod := range pods {
		if isTimed(pod) {
			r.of = pod.Annotations[api.AnnotationWork]
			r.isUnit = r.isUnit || p.config.Jobs.UnitOf(pod) != ""
		}
		started := startOf(pod, asked)
		if started.After(r.from) {
			r.from = started
		}
		if started.IsZero() {
			continue
		}
		value := pod.Annotations[api.AnnotationAwaitCheckpoint]
		r.acknowledges = r.acknowledges || value != "" && value != "false"
		if p.config.Jobs.Member(pod).Role != jobs.RoleLauncher {
			r.pods++
		}
	}
	if r.of == "" {
		return run{}
	}
	return r
}

// startOf returns when the last container of the pod was started that has not ended before a time, zero if there is none.
func startOf(pod *corev1.Pod, until time.Time) (last time.Time) {
	for _, container := range pod.Status.ContainerStatuses {
		var started time.Time
		switch state := container.State; {
		case state.Running != nil:
			started = state.Running.StartedAt.Time
		case state.Terminated != nil && state.Terminated.FinishedAt.After(until):
			started = state.Terminated.StartedAt.Time
		}
		if started.After(last) {
			last = started
		}
	}
	return last
}

// predates returns whether the run began before the job was created: it was of another job of that name.
func (r run) predates(job jobs.Job) bool {
	return job.Object != nil && job.Object.GetCreationTimestamp().After(r.from)
}

// after returns what the job has saved with the run, if it had saved so much before. A job with fewer workers than it asks for does as much less.
// Of one whose pods save their work apart nobody knows how much it is. Where the owner wrote how much was saved, and not when, nothing is added: that
// may be a part of the run.
func (r run) after(before jobs.SavedWork, replicas int, restart time.Duration) jobs.SavedWork {
	if before.Of != "" && before.Of != r.of {
		before = jobs.SavedWork{} // the owner has said anew how much is left
	}
	if replicas <= 0 || r.isUnit && replicas > 1 {
		return before
	}
	began, part := r.from.Add(restart), min(1, float64(r.pods)/float64(replicas))
	if before.At.After(began) {
		began = before.At
	}
	if before.Work > 0 && before.At.IsZero() {
		part = 0
	}
	done := time.Duration(part * float64(max(0, r.until.Sub(began))))
	at := r.until
	if before.At.After(at) {
		at = before.At
	}
	return jobs.SavedWork{Work: before.Work + done.Round(time.Second), Of: r.of, At: at}
}
