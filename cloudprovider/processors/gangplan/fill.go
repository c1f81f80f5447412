package gangplan

import (
	"fmt"
	"math"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/equivalence"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
	resourcehelper "k8s.io/component-helpers/resource"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
)

// filling is a plan in the making.
type filling struct {
	order []string
	parts map[string]*Part
	// planned counts the nodes by node group, groups are the node groups by planned node.
	planned map[string]int
	groups  map[string]string
	placed  int
}

func (f *filling) list() (parts []Part) {
	for _, id := range f.order {
		parts = append(parts, *f.parts[id])
	}
	return parts
}

// cost returns the price of all parts per hour. It is infinite while a price is not known.
func (f *filling) cost(offerings Offerings, valueOfTime *float64) (sum float64) {
	for id, nodes := range f.planned {
		price, known := offerings.NodePrice(id, valueOfTime)
		if !known {
			return math.Inf(1)
		}
		sum += price * float64(nodes)
	}
	return sum
}

// gpusOf returns how many GPUs the pods request together.
func gpusOf(pods []*apiv1.Pod) (gpus int64) {
	for _, pod := range pods {
		requested := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[api.ResourceGPU]
		gpus += requested.Value()
	}
	return gpus
}

// gpusLeft returns how many GPUs could be bought of the groups, if they shared no room. It takes little time, and tells that most gangs
// that fit nowhere do.
func (p *Planner) gpusLeft(groups []cloudprovider.NodeGroup, templates map[string]*framework.NodeInfo) (gpus int64) {
	for _, group := range groups {
		has := templates[group.Id()].Node().Status.Allocatable[api.ResourceGPU]
		gpus += has.Value() * int64(p.offerings.RoomBeside(group.Id(), nil))
	}
	return gpus
}

// fill places as many of the pods as it can on nodes of the groups that may be bought for them: of those that are apart first those that request
// GPUs, then the others, which fill what those leave. The snapshot is as before when it returns.
func (p *Planner) fill(groups []cloudprovider.NodeGroup, request Request) (*filling, error) {
	snapshot := p.autoscaling.ClusterSnapshot
	snapshot.Fork()
	defer snapshot.Revert()
	f := &filling{parts: map[string]*Part{}, planned: map[string]int{}, groups: map[string]string{}}
	for _, pods := range request.Apart {
		allowed := slices.DeleteFunc(slices.Clone(groups), func(group cloudprovider.NodeGroup) bool { return !p.allows(group.Id(), pods) })
		for _, alike := range gpuFirst(pods) {
			if all, err := p.fillWith(f, alike, allowed, request); err != nil || !all {
				return f, err
			}
		}
	}
	return f, nil
}

// gpuFirst returns the pods that request GPUs, and the others.
func gpuFirst(pods []*apiv1.Pod) [2][]*apiv1.Pod {
	var gpu, cpu []*apiv1.Pod
	for _, pod := range pods {
		if processors.RequestsGPU(pod) {
			gpu = append(gpu, pod)
		} else {
			cpu = append(cpu, pod)
		}
	}
	return [...][]*apiv1.Pod{gpu, cpu}
}

// fillWith places the pods, and returns whether all of them have a place.
func (p *Planner) fillWith(f *filling, pods []*apiv1.Pod, groups []cloudprovider.NodeGroup, request Request) (all bool, err error) {
	left, err := p.place(f, pods)
	for err == nil && len(left) > 0 {
		best := p.bestOption(f, groups, left, request)
		if best == nil {
			return false, nil
		}
		if err := p.add(f, best, request.Templates[best.group.Id()]); err != nil {
			return false, err
		}
		before := len(left)
		if left, err = p.place(f, left); err == nil && len(left) == before {
			return false, nil // the estimate was wrong about the pods
		}
	}
	return err == nil, err
}

// option is nodes of one group for some of the pods.
type option struct {
	group cloudprovider.NodeGroup
	nodes int
	pods  int
	price float64
}

// bestOption returns the option that places the most pods, of those the cheapest; nil if none places any.
func (p *Planner) bestOption(f *filling, groups []cloudprovider.NodeGroup, pods []*apiv1.Pod, request Request) (best *option) {
	gpus := slices.ContainsFunc(pods, processors.RequestsGPU)
	equivalent := equivalence.BuildPodGroups(pods)
	for _, group := range groups {
		room := p.offerings.RoomBeside(group.Id(), f.planned)
		if room <= 0 || !gpus && !p.offerings.BuysForCPUPods(group.Id()) {
			continue
		}
		found := p.estimate(limited{group, room}, equivalent, f, request)
		if found.pods == 0 {
			continue
		}
		if best == nil || found.pods > best.pods || found.pods == best.pods && found.price < best.price {
			found.group = group
			best = &found
		}
	}
	return best
}

// estimate returns how many nodes of the group the pods need, as far as there is room, and how many of the pods those hold.
func (p *Planner) estimate(group cloudprovider.NodeGroup, pods []*equivalence.PodGroup, f *filling, request Request) option {
	template := request.Templates[group.Id()]
	suitable := p.suitable(pods, template)
	if len(suitable) == 0 {
		return option{}
	}
	planned := len(f.groups)
	estimation := estimator.NewEstimationContext(p.autoscaling.MaxNodesTotal, nil, request.Nodes+planned)
	nodes, placed := p.estimators(p.autoscaling.ClusterSnapshot, estimation).Estimate(suitable, template, group)
	price, known := p.offerings.NodePrice(group.Id(), request.valueOfTime)
	if !known {
		price = math.Inf(1)
	}
	return option{nodes: nodes, pods: len(placed), price: price * float64(nodes)}
}

// suitable returns the pods that may be placed on a node like the template, which an estimator takes for granted.
func (p *Planner) suitable(pods []*equivalence.PodGroup, template *framework.NodeInfo) (found []estimator.PodEquivalenceGroup) {
	snapshot := p.autoscaling.ClusterSnapshot
	snapshot.Fork()
	defer snapshot.Revert()
	if err := snapshot.AddNodeInfo(template); err != nil {
		return nil
	}
	for _, group := range pods {
		if err := snapshot.CheckPredicates(group.Pods[0], template.Node().Name); err == nil {
			found = append(found, estimator.PodEquivalenceGroup{Pods: group.Pods})
		}
	}
	return found
}

// add plans the option, whose pods are placed next.
func (p *Planner) add(f *filling, chosen *option, template *framework.NodeInfo) error {
	id := chosen.group.Id()
	for range chosen.nodes {
		node, err := simulator.SanitizedNodeInfo(template, fmt.Sprintf("planned-%d", len(f.groups)))
		if err != nil {
			return fmt.Errorf("make a node of node group %s: %w", id, err)
		}
		if err := p.autoscaling.ClusterSnapshot.AddNodeInfo(node); err != nil {
			return fmt.Errorf("add a node of node group %s to the snapshot: %w", id, err)
		}
		f.groups[node.Node().Name] = id
	}
	if f.parts[id] == nil {
		f.parts[id] = &Part{Group: chosen.group}
		f.order = append(f.order, id)
	}
	f.parts[id].Nodes += chosen.nodes
	f.planned[id] += chosen.nodes
	return nil
}

// place places pods on the planned nodes, and returns those that do not fit.
func (p *Planner) place(f *filling, pods []*apiv1.Pod) (left []*apiv1.Pod, err error) {
	isPlanned := func(node *framework.NodeInfo) bool { return f.groups[node.Node().Name] != "" }
	placed, _, err := scheduling.NewHintingSimulator().TrySchedulePods(p.autoscaling.ClusterSnapshot, pods, isPlanned, false)
	if err != nil {
		return nil, fmt.Errorf("place pods on planned nodes: %w", err)
	}
	known := sets.New[types.UID]()
	for _, at := range placed {
		part := f.parts[f.groups[at.NodeName]]
		part.Pods = append(part.Pods, at.Pod)
		known.Insert(at.Pod.UID)
		f.placed++
	}
	for _, pod := range pods {
		if !known.Has(pod.UID) {
			left = append(left, pod)
		}
	}
	return left, nil
}

// limited is a node group with less room than core would see, because some is planned already.
type limited struct {
	cloudprovider.NodeGroup
	room int
}

// MaxSize leaves the room above the target size.
func (l limited) MaxSize() int {
	target, err := l.TargetSize()
	if err != nil {
		return 0
	}
	return target + l.room
}
