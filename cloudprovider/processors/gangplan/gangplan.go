package gangplan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
)

// maxTime limits the time that one plan takes. The domains that are left then are not looked at.
const maxTime = 2 * time.Second

// Offerings knows the offerings, by the ids of their node groups.
type Offerings interface {
	// NodePrice returns the price of a node per instance-hour for pods whose time is worth that much, nil if they do not say. It returns false
	// while the price is not known.
	NodePrice(groupID string, valueOfTime *float64) (float64, bool)
	// BuysForCPUPods returns whether nodes of the offering may be bought for pods that request no GPU.
	BuysForCPUPods(groupID string) bool
	// RoomBeside returns how many instances of the offering may be bought beside those that are planned, by node group.
	RoomBeside(groupID string, planned map[string]int) int
}

// Part is what a plan buys of one offering.
type Part struct {
	Group cloudprovider.NodeGroup
	Nodes int
	// Pods are those that the nodes are for.
	Pods []*apiv1.Pod
}

// Request is what a plan is asked for.
type Request struct {
	// Pods all have to have a place, or nothing is bought.
	Pods []*apiv1.Pod
	// Apart are the same pods, those apart for which different node groups may be bought. The first of them are placed first.
	Apart [][]*apiv1.Pod
	// AnyZone allows several zones.
	AnyZone bool
	// Nodes is how many nodes the cluster has.
	Nodes int
	// Templates are the nodes that each node group would bring.
	Templates map[string]*framework.NodeInfo
	// valueOfTime is what the pods say that their time is worth; nil if they do not.
	valueOfTime *float64
}

// ImpossibleError says why there is no plan.
type ImpossibleError struct {
	// Have of Want is the most that there is of What, which is pods that have a place, or GPUs. Where is that.
	Have, Want int64
	What       string
	Where      string
	// OneZone: only one zone was allowed, and there are several.
	OneZone bool
}

func (e *ImpossibleError) Error() string {
	text := fmt.Sprintf("what can be bought now has room for %d of its %d %s", e.Have, e.Want, e.What)
	if e.Where != "" {
		text += " " + e.Where
	}
	if e.OneZone {
		text += fmt.Sprintf(". With the annotation %s=%s they may be placed in several zones", api.AnnotationGangZones, api.GangZonesAny)
	}
	return text
}

// compare remembers this if it comes closer to a plan than what is known.
func (e *ImpossibleError) compare(have, want int64, what string, where domain) {
	if have*e.Want > e.Have*want {
		e.Have, e.Want, e.What, e.Where = have, want, what, where.String()
	}
}

// Planner plans with core's own simulation of the scheduler. It belongs to core's loop, and is not safe for concurrent use.
type Planner struct {
	offerings   Offerings
	allows      func(groupID string, pods []*apiv1.Pod) bool
	clock       clock.PassiveClock
	autoscaling *cacontext.AutoscalingContext
	registry    *clusterstate.ClusterStateRegistry
	estimators  estimator.EstimatorBuilder
}

// New returns a planner, to be initialized. Allows returns whether a node group may be bought for the pods of a gang yet.
func New(offerings Offerings, allows func(groupID string, pods []*apiv1.Pod) bool, clk clock.PassiveClock) *Planner {
	return &Planner{offerings: offerings, allows: allows, clock: clk}
}

// Initialize sets what core hands to its orchestrator.
func (p *Planner) Initialize(autoscaling *cacontext.AutoscalingContext, registry *clusterstate.ClusterStateRegistry, estimators estimator.EstimatorBuilder) {
	p.autoscaling, p.registry, p.estimators = autoscaling, registry, estimators
}

// domain is where a gang may be placed: in one zone, or in any if zone is empty, on nodes with one model of GPU and on nodes without GPUs.
// Without a model the gang requests no GPU.
type domain struct{ zone, model string }

func (d domain) String() string {
	var parts []string
	if d.zone != "" {
		parts = append(parts, "in zone "+d.zone)
	}
	if d.model != "" {
		parts = append(parts, "with GPUs of model "+d.model)
	}
	return strings.Join(parts, " ")
}

// has returns whether each node like the template is in the domain. A template lacks a label if its pool may deliver nodes that differ in it.
func (d domain) has(template *apiv1.Node) bool {
	inZone := d.zone == "" || template.Labels[apiv1.LabelTopologyZone] == d.zone
	return inZone && (template.Labels[api.LabelGPUModel] == d.model || !processors.OffersGPU(template))
}

// Plan returns the cheapest plan that has a place for all pods. The error is an *ImpossibleError if there is none.
func (p *Planner) Plan(request Request) ([]Part, error) {
	request.valueOfTime = pricing.ValueOfTime(request.Pods...)
	began, candidates := p.clock.Now(), p.candidates(request)
	upcoming, _ := p.registry.GetUpcomingNodes()
	for _, count := range upcoming {
		request.Nodes += count
	}
	wanted, pods := gpusOf(request.Pods), int64(len(request.Pods))
	impossible := &ImpossibleError{Want: pods, What: "pods", OneZone: !request.AnyZone && inSeveralZones(candidates, request.Templates)}
	var best []Part
	least := math.Inf(1)
	for _, d := range domains(candidates, request) {
		if spent := p.clock.Since(began); spent > maxTime {
			klog.InfoS("Ending the plan for a gang, the other zones and GPU models are not looked at", "spent", spent)
			break
		}
		in := candidates[:0:0]
		for _, group := range candidates {
			if d.has(request.Templates[group.Id()].Node()) {
				in = append(in, group)
			}
		}
		if has := p.gpusLeft(in, request.Templates); has < wanted {
			impossible.compare(has, wanted, "GPUs", d)
			continue
		}
		found, err := p.fill(in, request)
		if err != nil {
			return nil, err
		}
		switch cost := found.cost(p.offerings, request.valueOfTime); {
		case found.placed < len(request.Pods):
			impossible.compare(int64(found.placed), pods, "pods", d)
		case best == nil || cost < least:
			best, least = found.list(), cost
		}
	}
	if best == nil {
		return nil, impossible
	}
	return best, nil
}

// candidates returns the node groups that may be bought of now for some of the pods.
func (p *Planner) candidates(request Request) (found []cloudprovider.NodeGroup) {
	now := p.clock.Now()
	for _, group := range p.autoscaling.CloudProvider.NodeGroups() {
		if request.Templates[group.Id()] != nil && p.allowsAny(group.Id(), request.Apart) && group.Exist() && p.offerings.RoomBeside(group.Id(), nil) > 0 &&
			p.registry.NodeGroupScaleUpSafety(group, now).SafeToScale {
			found = append(found, group)
		}
	}
	return found
}

func (p *Planner) allowsAny(groupID string, apart [][]*apiv1.Pod) bool {
	return slices.ContainsFunc(apart, func(pods []*apiv1.Pod) bool { return p.allows(groupID, pods) })
}

// domains returns where the gang may be placed, each once, in the order of the node groups.
func domains(candidates []cloudprovider.NodeGroup, request Request) (found []domain) {
	known := map[domain]bool{}
	gpus := slices.ContainsFunc(request.Pods, processors.RequestsGPU)
	for _, group := range candidates {
		labels := request.Templates[group.Id()].Node().Labels
		d := domain{zone: labels[apiv1.LabelTopologyZone], model: labels[api.LabelGPUModel]}
		if d.zone == "" && !request.AnyZone || d.model == "" && gpus {
			continue // its nodes may differ in that
		}
		if request.AnyZone {
			d.zone = ""
		}
		if known[d] {
			continue
		}
		known[d] = true
		found = append(found, d)
	}
	return found
}

// inSeveralZones returns whether not all nodes of the candidates are in one zone for sure.
func inSeveralZones(candidates []cloudprovider.NodeGroup, templates map[string]*framework.NodeInfo) bool {
	found := sets.New[string]()
	for _, group := range candidates {
		found.Insert(templates[group.Id()].Node().Labels[apiv1.LabelTopologyZone])
	}
	return len(found) > 1 || found.Has("")
}
