package podlist

import (
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// reasons returns why pods that were listed as pending are not bought for in this loop: those that were abandoned, that wait for their
// gang or for a settle window, and those that are not left because they have a place.
func (d *Deferral) reasons(listed []*apiv1.Pod, counts gangCounts, left []*apiv1.Pod) map[types.UID]*reasons.Reason {
	unplaced := sets.New[types.UID]()
	for _, pod := range left {
		unplaced.Insert(pod.UID)
	}
	skipped := map[types.UID]*reasons.Reason{}
	for _, pod := range listed {
		gang := d.gangs.of(counts, pod)
		switch {
		case processors.IsProvisioningRequest(pod):
		case d.suspended != nil && d.suspended.supervision.Abandoned(pod):
			skipped[pod.UID] = reasons.New(reasons.MaximumWaitOver, "Submit the job again, or with a longer "+api.AnnotationMaxWait+".",
				"maximum wait over: nothing is bought any more for the job of this pod (%s)", api.AnnotationMaxWait)
		case gang != nil && !gang.complete():
			skipped[pod.UID] = gang.incompleteReason()
		case !unplaced.Has(pod.UID):
			skipped[pod.UID] = reasons.New(reasons.HasPlace, "Wait until the scheduler binds it; if it does not, see the Events of the scheduler.",
				"it has a place on a node that there is, or that is on its way")
		}
	}
	for _, b := range d.settling.open {
		until := reasons.New(reasons.Settling, "Wait for that moment.", "settling until %s, in case more pods of the same kind arrive", d.settling.due(b).UTC().Format(time.TimeOnly+" MST"))
		for _, pod := range b.pods {
			skipped[pod.UID] = until
		}
	}
	return skipped
}

// incompleteReason returns why nothing is bought for the pods of a gang of which not all exist.
func (c gangCount) incompleteReason() *reasons.Reason {
	if c.size == UnknownSize {
		return reasons.New(reasons.GangIncomplete, "Wait; if this does not change, the log says why it cannot be read.",
			"how many pods its gang has is yet to be read")
	}
	return reasons.New(reasons.GangIncomplete, "Find out why its other pods were not created, such as a ResourceQuota or an admission webhook (see the Events of the job), or correct the declared size.",
		"gang %d of %d: only so many of its pods exist", c.running+c.pending, c.size)
}
