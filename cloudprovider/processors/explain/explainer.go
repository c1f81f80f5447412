package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/predicate"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	podutil "k8s.io/autoscaler/cluster-autoscaler/utils/pod"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/simulation"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// Provider knows the offerings. *ess.Provider implements it.
type Provider interface {
	NodeGroups() []cloudprovider.NodeGroup
	// MarketPrice returns the price per instance-hour of the node group, and false while it is not known.
	MarketPrice(groupID string) (float64, bool)
	BuysForCPUPods(groupID string) bool
	OnDemandAfter(groupID string) (wait time.Duration, onDemand bool)
}

// Config is what an Explainer needs. Everything is required.
type Config struct {
	Provider   Provider
	Policy     *spotfirst.Policy
	Skipped    *reasons.Skipped
	Judgements *Judgements
	// Problems returns the problems of pools, and of there being none.
	Problems func() []*reasons.Reason
	// Currency returns that of prices, "" while it is not known.
	Currency func() string

	Pods       corelisters.PodLister
	Nodes      corelisters.NodeLister
	DaemonSets appslisters.DaemonSetLister
	// Handle simulates the scheduler. It must not be that of core's loop, which simulates at the same time.
	Handle      *framework.Handle
	Taints      taints.TaintConfig
	Parallelism int
	// LeastPriority is the least that a pod must have for Cluster Autoscaler to buy for it.
	LeastPriority int
	Clock         clock.PassiveClock
}

// Explainer explains pods. It is safe for concurrent use; one explanation is made at a time.
type Explainer struct {
	config Config
	mu     sync.Mutex
}

// New returns an explainer.
func New(config Config) *Explainer { return &Explainer{config: config} }

// Explain explains the pod as of now. An error means that the simulation failed; a pod that does not exist has an explanation.
func (e *Explainer) Explain(namespace, name string) (*Explanation, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	result := &Explanation{
		APIVersion: APIVersion, Kind: Kind, Time: e.config.Clock.Now().UTC().Truncate(time.Second), Namespace: namespace, Name: name,
		Reasons: []*reasons.Reason{}, Offerings: []Offering{}, Problems: []*reasons.Reason{}, Currency: e.config.Currency(),
	}
	pod, err := e.config.Pods.Pods(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err):
		result.Summary = "There is no such pod."
		result.Reasons = append(result.Reasons, reasons.New(reasons.NotFound, "", "there is no pod %s in namespace %s", name, namespace))
		return result, nil
	case err != nil:
		return nil, fmt.Errorf("get the pod: %w", err)
	}
	if needless := e.needless(pod); needless != nil {
		result.Reasons = append(result.Reasons, needless)
		result.Summary, result.Step = sentence(needless.Message), needless.Mend
		return result, nil
	}
	judged, isJudged := e.config.Judgements.of(pod.UID)
	if skipped := e.config.Skipped.Of(pod.UID); skipped != nil {
		result.Reasons = append(result.Reasons, skipped)
	} else if isJudged && len(judged.bought) > 0 {
		result.Reasons = append(result.Reasons, reasons.New(reasons.Bought, "Wait until the instance has joined the cluster.", "an instance was bought for it: %v", judged.bought))
	}
	result.Problems = append(result.Problems, e.config.Problems()...)
	if result.Offerings, err = e.offerings(pod, judged.found); err != nil {
		return nil, err
	}
	if all := judged.found[""]; all != nil {
		result.Reasons = append(result.Reasons, all)
	}
	if !isJudged && len(result.Reasons) == 0 {
		result.Reasons = append(result.Reasons, reasons.New(reasons.NotJudged, "Wait for the next loop.", "no loop has looked at it within the last %v", judgementAge))
	}
	result.conclude()
	return result, nil
}

// needless returns why nothing is ever bought for the pod as it is, nil if something may be.
func (e *Explainer) needless(pod *apiv1.Pod) *reasons.Reason {
	switch {
	case pod.DeletionTimestamp != nil || kubepod.IsPodTerminal(pod):
		return reasons.New(reasons.Ended, "", "the pod has ended or is being deleted")
	case pod.Spec.NodeName != "":
		return reasons.New(reasons.HasNode, "", "the pod is on node %s and needs none", pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return reasons.New(reasons.Gated, "See to what is to remove the gate, such as the queue of the job.", "the pod is held by its scheduling gate %s", pod.Spec.SchedulingGates[0].Name)
	case int(corev1helpers.PodPriority(pod)) < e.config.LeastPriority:
		return reasons.New(reasons.LowPriority, "Give the pod a PriorityClass of at least that, or lower --expendable-pods-priority-cutoff.",
			"the pod has priority %d, and nothing is bought below %d", corev1helpers.PodPriority(pod), e.config.LeastPriority)
	}
	if podutil.IsDaemonSetPod(pod) {
		return reasons.New(reasons.DaemonSetPod, "", "nothing is bought for pods of DaemonSets")
	}
	return nil
}

// offerings returns what stands in the way of each offering, easiest first. What core found counts more than what is simulated here,
// except that core does not look whether a pod fits where nothing can be bought.
func (e *Explainer) offerings(pod *apiv1.Pod, found map[string]*reasons.Reason) ([]Offering, error) {
	snapshot, err := e.snapshot()
	if err != nil {
		return nil, err
	}
	daemonSets, err := e.config.DaemonSets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list DaemonSets: %w", err)
	}
	all := []Offering{}
	for _, group := range e.config.Provider.NodeGroups() {
		offering := Offering{ID: group.Id(), Fits: true, Reasons: e.rules(pod, group)}
		if price, known := e.config.Provider.MarketPrice(group.Id()); known {
			offering.Price = &price
		}
		why := found[group.Id()]
		if why == nil || why.Code != reasons.DoesNotFit {
			template, aErr := simulator.SanitizedTemplateNodeInfoFromNodeGroup(group, daemonSets, e.config.Taints)
			if aErr != nil && !group.Exist() {
				continue // it has gone since
			}
			if aErr != nil {
				return nil, fmt.Errorf("build the template of %s: %w", group.Id(), aErr)
			}
			unfit, err := check(snapshot, template, pod)
			if err != nil {
				return nil, fmt.Errorf("offering %s: %w", group.Id(), err)
			}
			if unfit != nil {
				offering.Reasons, offering.Fits = append(offering.Reasons, unfit), false
			}
		} else {
			offering.Fits = false
		}
		if why != nil && !slices.ContainsFunc(offering.Reasons, func(r *reasons.Reason) bool { return r.Code == why.Code }) && lasts(why) {
			offering.Reasons = append(offering.Reasons, why)
		}
		all = append(all, offering)
	}
	slices.SortStableFunc(all, func(a, b Offering) int {
		return cmp.Or(reasons.Easier(a.hardest(), b.hardest()), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// lasts returns whether a reason of the last loop is not one that the provider would give again as of now.
func lasts(why *reasons.Reason) bool {
	switch why.Code {
	case reasons.DoesNotFit, reasons.Backoff, reasons.ClusterLimit, reasons.NotAtOnce:
		return true
	case reasons.Other:
		return why.Mend != ""
	}
	return false
}

// rules returns why the group is not bought, or not for this pod.
func (e *Explainer) rules(pod *apiv1.Pod, group cloudprovider.NodeGroup) []*reasons.Reason {
	rules := []*reasons.Reason{}
	if obstacle := obstacleOf(group); obstacle != nil {
		rules = append(rules, obstacle)
	}
	if !e.config.Provider.BuysForCPUPods(group.Id()) && !processors.RequestsGPU(pod) {
		rules = append(rules, processors.GPUPodsOnly)
	}
	if wait := e.config.Policy.Wait(group.Id(), pod); wait > 0 {
		_, onDemand := e.config.Provider.OnDemandAfter(group.Id())
		switch {
		case wait == spotfirst.UntilLearnt:
			rules = append(rules, reasons.New(reasons.Settling, "Wait for the next loop.", "what costs least until the deadline of the pod is not known yet"))
		case !onDemand && e.config.Policy.OnDemandOnly(pod):
			rules = append(rules, reasons.New(reasons.OnDemandOnly, "Change "+api.AnnotationCapacity+" or "+api.AnnotationOnDemandFloor+" of the pod.",
				"the pod is to have on-demand instances only (%s), or the on-demand floor of its job is not reached (%s)", api.AnnotationCapacity, api.AnnotationOnDemandFloor))
		case !onDemand && wait != spotfirst.Never:
			rules = append(rules, reasons.New(reasons.WaitsToLast, "Wait, or say in "+api.AnnotationValueOfTime+" of the pods what an hour is worth.",
				"spot has just come back, and the job has time to wait until it has lasted"))
		case !onDemand:
			rules = append(rules, reasons.New(reasons.DeadlineClose, deadlineStep(pod),
				"the deadline of the pod is too close for a spot instance, or spot would cost more until then, counting what its time is worth"))
		case wait == spotfirst.Never:
			rules = append(rules, reasons.New(reasons.SpotOnly, "Change "+api.AnnotationOnDemandAfter+" or "+api.AnnotationCapacity+" of the pod.",
				"the pod is never to have on-demand instances (%s or %s)", api.AnnotationOnDemandAfter, api.AnnotationCapacity))
		default:
			at := e.config.Clock.Now().Add(wait).UTC().Format("15:04:05 MST")
			rules = append(rules, reasons.New(reasons.WaitsForSpot, "Wait until "+at+", or shorten "+api.TagOnDemandAfter+" of the pool or the pod.", "on-demand, for which the pod waits until %s", at))
		}
	}
	return rules
}

// deadlineStep returns what to do about a deadline that allows no spot instances.
func deadlineStep(pod *apiv1.Pod) string {
	if _, ok := pod.Annotations[api.AnnotationValueOfTime]; ok {
		return "Move the deadline of the pod, remove its annotation " + api.AnnotationValueOfTime + ", or add on-demand instances."
	}
	return "Move the deadline of the pod, or add on-demand instances."
}

// snapshot returns the cluster as the informers have it.
func (e *Explainer) snapshot() (clustersnapshot.ClusterSnapshot, error) {
	nodes, err := e.config.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := e.config.Pods.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	scheduled := slices.DeleteFunc(slices.Clone(pods), func(pod *apiv1.Pod) bool { return pod.Spec.NodeName == "" || kubepod.IsPodTerminal(pod) })
	snapshot := predicate.NewPredicateSnapshot(simulation.NewStore(e.config.Parallelism), e.config.Handle, false)
	if err := snapshot.SetClusterState(nodes, scheduled, nil); err != nil {
		return nil, fmt.Errorf("simulate the cluster: %w", err)
	}
	return snapshot, nil
}
