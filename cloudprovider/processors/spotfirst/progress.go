package spotfirst

import (
	"time"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// Progress knows how much of their work jobs have done. *progress.Progress implements it.
type Progress interface {
	// Done returns how much of the work that the pod states its job has done: what is saved, and, if the pod runs and its job acknowledges that its work
	// is saved, what it has done since. It returns false as long as that is being read.
	Done(pod *apiv1.Pod) (done time.Duration, known bool)
}

// saysDone returns whether the pod itself says how much of its work is saved, so that nobody else is asked.
func saysDone(pod *apiv1.Pod) bool {
	_, says := pod.Annotations[api.AnnotationWorkSaved]
	return says
}
