package spotfirst

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/share"
	"gpu-spot-autoscaler/pricing"
)

// Floors have so many pods of a job on on-demand nodes as its on-demand floor says. Of the pods of a job that state one, those count that core
// simulates on on-demand nodes: they run there, or such a node is on its way for them. So nothing is remembered from loop to loop. Of those for which
// there is no place, as many are to be on demand as are missing, the oldest first.
//
// It is a processor of pods, which has to come before those that place pods on existing and upcoming nodes: pods of a floor take on-demand nodes
// first. Otherwise pods that have to wait for spot would take the nodes that are on their way for the floor, and others would be bought in each loop.
// Stand-ins take only those that are on their way, since they must not have a place that a pod needs that exists.
//
// Has is safe for concurrent use.
type Floors struct {
	jobs      Jobs
	isStandIn func(*apiv1.Pod) bool
	// chosen are the pods that are to be on demand.
	chosen chosenPods
}

var _ pods.PodListProcessor = (*Floors)(nil)

// NewFloors returns Floors for the pods of the jobs.
func NewFloors(jobs Jobs, isStandIn func(*apiv1.Pod) bool) *Floors {
	return &Floors{jobs: jobs, isStandIn: isStandIn}
}

// Has returns whether the pod is one of those that the last loop found missing to the on-demand floor of their job. It may be called for nil.
func (f *Floors) Has(pod *apiv1.Pod) bool { return f != nil && f.chosen.has(pod) }

// Process places as many pods on existing and upcoming on-demand nodes as the floors of their jobs lack, and returns all others.
func (f *Floors) Process(ctx *cacontext.AutoscalingContext, unschedulable []*apiv1.Pod) ([]*apiv1.Pod, error) {
	jobs, err := f.jobsOf(ctx, unschedulable)
	if err != nil {
		return nil, err
	}
	placed := sets.New[types.UID]()
	for _, key := range slices.Sorted(maps.Keys(jobs)) {
		missing := jobs[key].missing()
		standIns := slices.DeleteFunc(slices.Clone(missing), func(pod *apiv1.Pod) bool { return !f.isStandIn(pod) })
		others := slices.DeleteFunc(slices.Clone(missing), f.isStandIn)
		if err := errors.Join(place(ctx, others, isOnDemand, placed), place(ctx, standIns, isUpcomingOnDemand, placed)); err != nil {
			return nil, fmt.Errorf("place pods of the on-demand floor of %s: %w", key, err)
		}
	}
	if placed.Len() == 0 {
		return unschedulable, nil
	}
	return slices.DeleteFunc(slices.Clone(unschedulable), func(pod *apiv1.Pod) bool { return placed.Has(pod.UID) }), nil
}

// place places pods on such nodes, and enters which of them have a place.
func place(ctx *cacontext.AutoscalingContext, pods []*apiv1.Pod, on func(*framework.NodeInfo) bool, placed sets.Set[types.UID]) error {
	found, _, err := scheduling.NewHintingSimulator().TrySchedulePods(ctx.ClusterSnapshot, pods, on, false)
	for _, at := range found {
		placed.Insert(at.Pod.UID)
	}
	return err
}

// CleanUp does nothing.
func (f *Floors) CleanUp() {}

// After returns a processor that calls inner, which calls Process before it places pods, and chooses of the pods that are left those that are to be
// on demand.
func (f *Floors) After(inner pods.PodListProcessor) pods.PodListProcessor {
	return f.chosen.after(inner, f.missing)
}

// missing returns which of the pods are to be on demand.
func (f *Floors) missing(ctx *cacontext.AutoscalingContext, left []*apiv1.Pod) (sets.Set[types.UID], error) {
	jobs, err := f.jobsOf(ctx, left)
	if err != nil {
		return nil, err
	}
	missing := sets.New[types.UID]()
	for _, job := range jobs {
		for _, pod := range job.missing() {
			missing.Insert(pod.UID)
		}
	}
	return missing, nil
}

// floorJob is the pods of a job that state an on-demand floor.
type floorJob struct {
	// left have no place; all are they and those that have one.
	left []*apiv1.Pod
	all  []floorPod
}

// floorPod is a pod that states a floor.
type floorPod struct {
	floor       share.Share
	requestsGPU bool
	// onDemand is whether it has a place on an on-demand node.
	onDemand bool
}

func newFloorPod(pod *apiv1.Pod, onDemand bool) floorPod {
	s, _ := settingsOf(pod)
	return floorPod{floor: *s.floor, requestsGPU: processors.RequestsGPU(pod), onDemand: onDemand}
}

// missing returns the pods that are to be on demand, of those without a place. If the pods state several floors, the highest counts. If any of them
// request GPUs only those count: a launcher goes wherever there is room, and is bought nothing.
func (j *floorJob) missing() []*apiv1.Pod {
	left := slices.Clone(j.left)
	counting := j.all
	if slices.ContainsFunc(j.all, func(p floorPod) bool { return p.requestsGPU }) {
		counting = slices.DeleteFunc(slices.Clone(j.all), func(p floorPod) bool { return !p.requestsGPU })
		left = slices.DeleteFunc(left, func(pod *apiv1.Pod) bool { return !processors.RequestsGPU(pod) })
	}
	floor, onDemand := 0, 0
	for _, pod := range counting {
		floor = max(floor, pod.floor.Of(len(counting)))
		if pod.onDemand {
			onDemand++
		}
	}
	slices.SortStableFunc(left, func(a, b *apiv1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return left[:min(max(0, floor-onDemand), len(left))]
}

// jobsOf returns the jobs of those of the pods that state an on-demand floor.
func (f *Floors) jobsOf(ctx *cacontext.AutoscalingContext, left []*apiv1.Pod) (map[string]*floorJob, error) {
	jobs, namespaces := map[string]*floorJob{}, sets.New[string]()
	for _, pod := range left {
		if !hasFloor(pod) {
			continue
		}
		key := f.jobs.keyOf(pod)
		if jobs[key] == nil {
			jobs[key] = &floorJob{}
		}
		jobs[key].left = append(jobs[key].left, pod)
		jobs[key].all = append(jobs[key].all, newFloorPod(pod, false))
		namespaces.Insert(pod.Namespace)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	return jobs, eachPlaced(ctx, namespaces, func(pod *apiv1.Pod, node *framework.NodeInfo) {
		if !hasFloor(pod) {
			return
		}
		if job := jobs[f.jobs.keyOf(pod)]; job != nil {
			job.all = append(job.all, newFloorPod(pod, isOnDemand(node)))
		}
	})
}

func hasFloor(pod *apiv1.Pod) bool {
	if _, stated := pod.Annotations[api.AnnotationOnDemandFloor]; !stated { // there may be 150,000 pods
		return false
	}
	s, _ := settingsOf(pod)
	return s.floor != nil
}

func isOnDemand(node *framework.NodeInfo) bool { return !pricing.OfferingOf(node.Node()).Spot }

// isUpcomingOnDemand returns whether the node is on its way: core adds such nodes to the snapshot, with an annotation.
func isUpcomingOnDemand(node *framework.NodeInfo) bool {
	return isOnDemand(node) && node.Node().Annotations[core.NodeUpcomingAnnotation] == "true"
}
