package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/cloudprovider/status"
)

// mostPending bounds the pods that Pending tells of.
const mostPending = 200

// Pending returns the pods for which something may have to be bought, those that wait the longest first, and how many there are: of many, only
// the first are returned. It tells what the last loops found and simulates nothing, so it is cheap.
func (e *Explainer) Pending() (pods []status.PendingPod, total int, err error) {
	waiting, err := e.waiting()
	if err != nil {
		return nil, 0, err
	}
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

// waiting returns the pods for which something may have to be bought.
func (e *Explainer) waiting() ([]*apiv1.Pod, error) {
	all, err := e.config.Pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(all), func(pod *apiv1.Pod) bool { return pod.Spec.NodeName != "" || e.needless(pod) != nil }), nil
}

// PendingGPUPods returns how many pods that request GPUs wait, by the code of the reason that Pending tells. It is as cheap.
func (e *Explainer) PendingGPUPods() (map[reasons.Code]int, error) {
	waiting, err := e.waiting()
	if err != nil {
		return nil, err
	}
	counts := map[reasons.Code]int{}
	for _, pod := range waiting {
		if processors.RequestsGPU(pod) {
			code, _, _ := e.lastCode(pod)
			counts[code]++
		}
	}
	return counts, nil
}

// lastReason returns what the last loops found, in the words of the pod's Event, with the code of lastCode.
func (e *Explainer) lastReason(pod *apiv1.Pod) *reasons.Reason {
	code, only, judged := e.lastCode(pod)
	if only != nil {
		return only
	}
	return reasons.New(code, "", "%s", inALine(judged.found))
}

// lastCode returns the code of what the last loops found, and the reason if it is only one. If each offering has its own, the code is that of the
// reason that is the easiest to mend, and judged has them all.
func (e *Explainer) lastCode(pod *apiv1.Pod) (code reasons.Code, only *reasons.Reason, judged judgement) {
	judged, known := e.config.Judgements.of(pod.UID)
	skipped := e.config.Skipped.Of(pod.UID)
	switch {
	case skipped != nil:
		only = skipped
	case !known:
		only = reasons.New(reasons.NotJudged, "", "no loop has looked at it within the last %v", judgementAge)
	case len(judged.bought) > 0:
		only = reasons.New(reasons.Bought, "", "an instance was bought for it: %v", judged.bought)
	default:
		only = judged.found[""]
	}
	if only != nil {
		return only.Code, only, judged
	}
	code = reasons.NoPools
	var easiest *reasons.Reason
	for _, reason := range judged.found {
		if easiest == nil || reasons.Easier(reason, easiest) < 0 {
			easiest, code = reason, reason.Code
		}
	}
	return code, nil, judged
}
