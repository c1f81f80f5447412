package podlist

import (
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// reasons returns why pods that were listed as pending are not bought for in this loop: those that were abandoned, that claim devices,
// that wait for their gang or for a settle window, and those that are not left because they have a place.
func (d *Deferral) reasons(listed []*apiv1.Pod, counts gangCounts, left []*apiv1.Pod) map[types.UID]*reasons.Reason {
	unplaced := sets.New[types.UID]()
	for _, pod := range left {
		unplaced.Insert(pod.UID)
	}
	skipped, claiming := map[types.UID]*reasons.Reason{}, sets.New[*gangCount]()
	for _, pod := range listed {
		if gang := d.gangs.of(counts, pod); gang != nil && d.claims.skipped.Has(pod.UID) {
			claiming.Insert(gang)
		}
	}
	for _, pod := range listed {
		gang := d.gangs.of(counts, pod)
		switch {
		case processors.IsProvisioningRequest(pod):
		case d.standIns != nil && d.standIns.supervision.Abandoned(pod):
			skipped[pod.UID] = reasons.New(reasons.MaximumWaitOver, "Submit the job again, or with a longer "+api.AnnotationMaxWait+".",
				"maximum wait over: nothing is bought any more for the job of this pod (%s)", api.AnnotationMaxWait)
		case d.claims.skipped.Has(pod.UID), claiming.Has(gang) && !gang.complete(): // its gang is complete but for a pod that is left out
			skipped[pod.UID] = claimsReason
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

// ReasonResourceClaims is the reason of the Event on a pod with resource claims.
const ReasonResourceClaims = "SpotPodHasResourceClaims"

// claimsReason is why nothing is bought for what a pod claims. It holds whether claims are simulated or not: no template has ResourceSlices.
var claimsReason = reasons.New(reasons.ResourceClaims, "Request GPUs by the resource of a device plugin, such as nvidia.com/gpu, in place of the claim.",
	"nothing is bought for what a pod claims (spec.resourceClaims), because it is not known which of it a new node would have")

// claims leaves out pods with resource claims (Dynamic Resource Allocation) for which nothing can be bought, and tells all of them what
// becomes of their claims.
//
// Core 1.33 reads claims as resource.k8s.io/v1beta1, which no API server serves unless it is told to, and only with
// --enable-dynamic-resource-allocation. Without that its simulated scheduler ignores them (simulator/framework/handle.go; the plugin
// DynamicResources needs the feature gate): a pod whose only GPUs are claimed would fit any node with enough CPU, and an instance would be
// bought for it, or kept, that it may never use. One that requests GPUs of its node as well is bought for by those. With the flag such pods are
// placed on nodes that exist, and fit no new one, because templates of offerings have no ResourceSlices.
type claims struct {
	simulated bool
	// skipped are the pods that the current loop leaves out.
	skipped sets.Set[types.UID]
	// told are the pending pods that have their Event.
	told sets.Set[types.UID]
}

func newClaims(simulated bool) *claims {
	return &claims{simulated: simulated, skipped: sets.New[types.UID](), told: sets.New[types.UID]()}
}

// tell records an Event about the claims of each pending pod that has some, once, and begins a loop.
func (c *claims) tell(ctx *cacontext.AutoscalingContext, pending []*apiv1.Pod) {
	told := sets.New[types.UID]()
	for _, pod := range pending {
		if !claimsDevices(pod) {
			continue
		}
		told.Insert(pod.UID)
		switch {
		case c.told.Has(pod.UID):
		case c.simulated:
			ctx.Recorder.Event(pod, apiv1.EventTypeWarning, ReasonResourceClaims, "The pod is placed on nodes that have what it claims, but "+claimsReason.Message+". "+claimsReason.Mend)
		case processors.RequestsGPUOfNode(pod):
			ctx.Recorder.Event(pod, apiv1.EventTypeNormal, ReasonResourceClaims, "Nodes are bought by the other requests of the pod: what it claims (spec.resourceClaims) is not read. "+
				"If the scheduler does not place it on such a node, remove the claim")
		default:
			ctx.Recorder.Event(pod, apiv1.EventTypeWarning, ReasonResourceClaims, "The pod is not bought for: "+claimsReason.Message+". "+claimsReason.Mend)
		}
	}
	c.told, c.skipped = told, sets.New[types.UID]()
}

// readable returns the pods without those whose GPUs are claimed, if claims are not simulated.
func (c *claims) readable(pods []*apiv1.Pod) []*apiv1.Pod {
	if c.simulated {
		return pods
	}
	return c.buyable(pods)
}

// buyable returns the pods without those that no new node would have room for, as far as is known. Pods of reclaiming nodes and stand-ins
// are among them.
func (c *claims) buyable(pods []*apiv1.Pod) []*apiv1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *apiv1.Pod) bool {
		if !claimsDevices(pod) || !c.simulated && processors.RequestsGPUOfNode(pod) {
			return false
		}
		c.skipped.Insert(pod.UID)
		return true
	})
}

// claimsDevices returns whether the pod claims devices, and is bought for as a pod and not by a ProvisioningRequest.
func claimsDevices(pod *apiv1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 && !processors.IsProvisioningRequest(pod)
}
