package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// mostPending bounds the pods that Pending tells of.
const mostPending = 200

// Pending returns the pods for which something may have to be bought, those that wait the longest first, and how many there are: of many, only
// the first are returned. It tells what the last loops found and simulates nothing, so it is cheap.
func (e *Explainer) Pending() (pods []status.PendingPod, total int, err error) {
	all, err := e.config.Pods.List(labels.Everything())
	if err != nil {
		return nil, 0, fmt.Errorf("list pods: %w", err)
	}
	waiting := slices.DeleteFunc(slices.Clone(all), func(pod *apiv1.Pod) bool { return pod.Spec.NodeName != "" || e.needless(pod) != nil })
	slices.SortFunc(waiting, func(a, b *apiv1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	pods = []status.PendingPod{}
	for _, pod := range waiting[:min(len(waiting), mostPending)] {
		why := e.lastReason(pod)
		pods = append(pods, status.PendingPod{
			Namespace: pod.Namespace, Name: pod.Name, Since: pod.CreationTimestamp.UTC(), Reason: string(why.Code), Message: why.Message,
		})
	}
	return pods, len(waiting), nil
}

// lastReason returns what the last loops found, in the words of the pod's Event, with the code of the reason that is the easiest to mend.
func (e *Explainer) lastReason(pod *apiv1.Pod) *reasons.Reason {
	if skipped := e.config.Skipped.Of(pod.UID); skipped != nil {
		return skipped
	}
	judged, known := e.config.Judgements.of(pod.UID)
	switch {
	case !known:
		return reasons.New(reasons.NotJudged, "", "no loop has looked at it within the last %v", judgementAge)
	case len(judged.bought) > 0:
		return reasons.New(reasons.Bought, "", "an instance was bought for it: %v", judged.bought)
	case judged.found[""] != nil:
		return judged.found[""]
	}
	nearest := reasons.NoPools
	var easiest *reasons.Reason
	for _, reason := range judged.found {
		if easiest == nil || reasons.Easier(reason, easiest) < 0 {
			easiest, nearest = reason, reason.Code
		}
	}
	return reasons.New(nearest, "", "%s", inALine(judged.found))
}
