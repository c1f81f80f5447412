package reclaim

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// heard says whether the job gave its word that its work is saved: on one of its pods, or through the node-agent on the
// Node of one. The word of a pod that has ended counts.
func (c *Controller) heard(l loss, r round) bool {
	pods := map[string][]*corev1.Pod{}
	for _, pod := range l.pods {
		if pod.Annotations[api.AnnotationCheckpointAcknowledged] == r.id {
			return true
		}
		if pod.Spec.NodeName != "" {
			pods[pod.Spec.NodeName] = append(pods[pod.Spec.NodeName], pod)
		}
	}
	for name, there := range pods {
		if node := c.node(name); node != nil && nodeSays(node, r, there) {
			return true
		}
	}
	return false
}

// awaits says until when the word is worth waiting for: not at all where no pod that runs has declared that one will
// come, and never beyond the budget.
func (l *loss) awaits(r round) (until time.Time) {
	budget := l.budget()
	for _, pod := range l.pods {
		declared := pod.Annotations[api.AnnotationAwaitCheckpoint]
		if declared == "" || declared == "false" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		limit := budget
		if most, err := time.ParseDuration(declared); err == nil {
			limit = earlier(budget, r.requested.Add(most))
		} else if declared != "true" {
			klog.V(1).InfoS("Neither true nor a duration; waiting as long as can be", "annotation", api.AnnotationAwaitCheckpoint, "pod", klog.KObj(pod), "value", declared)
		}
		if limit.After(until) {
			until = limit
		}
	}
	return until
}

const (
	// saveMargin is what is left for the decision and the drain when the wait for the word ends.
	saveMargin = 20 * time.Second
	// saveMarginFraction of a notice that is shorter than usual.
	saveMarginFraction = 10
	defaultGrace       = 30 * time.Second
)

// budget is when the first of the doomed pods must go, so that it has its grace before the deadline, and its job's system
// is asked before evictions turn into deletions.
func (l *loss) budget() (until time.Time) {
	for _, leaving := range []bool{false, true} { // those on their way out count only where there are no others
		for _, pod := range l.doomed {
			if end := pod.budget(); leaving == (pod.DeletionTimestamp != nil) && (until.IsZero() || end.Before(until)) {
				until = end
			}
		}
		if !until.IsZero() {
			break
		}
	}
	return until
}

// budget grants at most half of the notice as the pod's grace: more would leave nothing to wait for the word.
func (p doomedPod) budget() time.Time {
	length := max(p.notice.Deadline.Sub(p.notice.FirstSeen), 0)
	grace := time.Duration(ptr.Deref(p.Spec.TerminationGracePeriodSeconds, int64(defaultGrace/time.Second))) * time.Second
	end := earlier(p.notice.Deadline.Add(-min(grace, length/2)), p.notice.DeleteFrom())
	return end.Add(-min(saveMargin, length/saveMarginFraction))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
