package spotfirst

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// Sellers are the node groups, and what they sell. *ess.Provider implements it.
type Sellers interface {
	NodeGroups() []cloudprovider.NodeGroup
	// Sold returns what the node group sells, how many GPUs its machines have, for how long a new spot instance of it is protected, and the node
	// that it promises, nil for a node group that is gone.
	Sold(groupID string) (offering pricing.Offering, gpus float64, protected time.Duration, node *apiv1.Node)
}

// Chooser decides what is bought for a job that may run on the offers. *deadline.Desk implements it.
type Chooser interface {
	Choose(offers *deadline.Offers, job deadline.Job) deadline.Choice
	Better(offers *deadline.Offers, job deadline.Job) (better []pricing.Offering, decided bool)
	Spot(offers *deadline.Offers, valueOfTime *float64) []deadline.Priced
	Price(o pricing.Offering) (float64, bool)
}

const (
	// choiceFor is how long a decision stands, so that it is the same for all node groups in a loop, and made once for all of them.
	choiceFor = 5 * time.Second
	// offersFor is how long it is taken to be known which offerings fit a pod: pools change rarely.
	offersFor = time.Minute
)

// Deadlines decides for pods whose jobs have to be over in time. It is safe for concurrent use.
type Deadlines struct {
	sellers Sellers
	chooser Chooser
	clock   clock.PassiveClock

	mu      sync.Mutex
	choices map[podKey]deadline.Choice
	// offers are by what a pod requires.
	offers map[string]*deadline.Offers
	// choicesUntil and offersUntil are until when they are good.
	choicesUntil, offersUntil time.Time
}

type podKey struct {
	types.NamespacedName
	uid  types.UID
	idle bool
}

// NewDeadlines returns Deadlines that ask the chooser.
func NewDeadlines(sellers Sellers, chooser Chooser, clock clock.PassiveClock) *Deadlines {
	return &Deadlines{sellers: sellers, chooser: chooser, clock: clock}
}

// choose returns what may be bought for the pod, whose job is idle or not. It may be called for nil.
func (d *Deadlines) choose(pod *apiv1.Pod, s settings, slack time.Duration, idle bool) deadline.Choice {
	if d == nil {
		return deadline.Undecided
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.clock.Now(); !now.Before(d.choicesUntil) {
		d.choicesUntil, d.choices = now.Add(choiceFor), map[podKey]deadline.Choice{}
	}
	key := podKey{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod.UID, idle}
	choice, known := d.choices[key]
	if !known {
		choice = d.chooser.Choose(d.offersFor(pod), deadline.Job{
			Namespace: pod.Namespace, Work: s.work, Whole: s.whole, Slack: slack, ValueOfTime: pricing.ValueOfTime(pod), Idle: idle,
			Hurries: processors.IsProvisioningRequest(pod),
		})
		d.choices[key] = choice
	}
	return choice
}

// offersOf is offersFor for callers without the lock.
func (d *Deadlines) offersOf(pod *apiv1.Pod) *deadline.Offers {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.offersFor(pod)
}

// offersFor returns what the pod may run on, as far as its requests, its node affinity and its tolerations tell. The lock is held.
func (d *Deadlines) offersFor(pod *apiv1.Pod) *deadline.Offers {
	if now := d.clock.Now(); !now.Before(d.offersUntil) {
		d.offersUntil, d.offers = now.Add(offersFor), map[string]*deadline.Offers{}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	key := requirements(pod, requests)
	if known, ok := d.offers[key]; ok {
		return known
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	var offers []deadline.Offer
	for _, group := range d.sellers.NodeGroups() {
		offering, gpus, protected, node := d.sellers.Sold(group.Id())
		if node == nil || !fits(pod, requests, affinity, node) {
			continue
		}
		offers = append(offers, deadline.Offer{Offering: offering, Share: partOf(requests, node, gpus), Protected: protected})
	}
	d.offers[key] = deadline.NewOffers(offers)
	return d.offers[key]
}

// requirements returns a text that is the same for pods that may run on the same nodes.
func requirements(pod *apiv1.Pod, requests apiv1.ResourceList) string {
	text, err := json.Marshal(struct {
		Requests    apiv1.ResourceList
		Selector    map[string]string
		Affinity    *apiv1.Affinity
		Tolerations []apiv1.Toleration
	}{requests, pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations})
	if err != nil {
		return fmt.Sprint(pod.UID, err) // alike to no other
	}
	return string(text)
}

func fits(pod *apiv1.Pod, requests apiv1.ResourceList, affinity nodeaffinity.RequiredNodeAffinity, node *apiv1.Node) bool {
	for name, requested := range requests {
		if allocatable := node.Status.Allocatable[name]; requested.Cmp(allocatable) > 0 {
			return false
		}
	}
	_, isTainted := schedulinghelpers.FindMatchingUntoleratedTaint(node.Spec.Taints, pod.Spec.Tolerations, func(taint *apiv1.Taint) bool {
		return taint.Effect != apiv1.TaintEffectPreferNoSchedule
	})
	matches, err := affinity.Match(node)
	return !isTainted && err == nil && matches
}

// partOf returns which part of the node's GPUs is requested, or of its CPUs if no GPU is.
func partOf(requests apiv1.ResourceList, node *apiv1.Node, gpus float64) float64 {
	if part := processors.GPUShare(requests, node.Status.Allocatable, gpus); part > 0 {
		return part
	}
	return processors.ResourceShare(apiv1.ResourceCPU, requests, node.Status.Allocatable)
}
