package moves

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/autoscaler/cluster-autoscaler/utils/drain"
	resourcehelper "k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
)

// candidate is a job that is to move, as far as pods and Nodes tell.
type candidate struct {
	ref jobs.Ref
	// nodes are all on-demand Nodes of pools on which it has pods, by name; pods are those pods, and rest are the others that have a Node.
	nodes      []*corev1.Node
	pods, rest []*corev1.Pod
	plan       spotfirst.Plan
}

func (c candidate) names() (names []string) {
	for _, node := range c.nodes {
		names = append(names, node.Name)
	}
	return names
}

// candidates returns the jobs that are to move: that want to, for which it pays, which are alone on their on-demand Nodes, and to which nothing else
// is happening.
func (m *Moves) candidates() (found []candidate, err error) {
	onDemand, err := m.onDemandNodes()
	if err != nil {
		return nil, err
	}
	free := m.free(onDemand)
	seen := map[jobs.Ref]bool{}
	for name := range onDemand {
		for _, pod := range m.onNode(name) {
			ref := m.config.Jobs.Member(pod).Ref
			if seen[ref] {
				continue
			}
			seen[ref] = true
			if c := m.candidateOf(ref, onDemand); m.isToMove(&c) && !hasRoom(free, c) {
				found = append(found, c)
			}
		}
	}
	return found, nil
}

// onDemandNodes returns the Nodes of on-demand instances of pools, by name.
func (m *Moves) onDemandNodes() (found map[string]*corev1.Node, err error) {
	nodes, err := m.config.Nodes.List(labels.Everything())
	found = map[string]*corev1.Node{}
	for _, node := range nodes {
		if _, ours := m.config.Pools.PoolOf(node); ours && api.IsOnDemand(node.Labels) {
			found[node.Name] = node
		}
	}
	return found, err
}

// onNode returns the pods on the Node that have not ended and do not belong to it.
func (m *Moves) onNode(name string) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(m.config.Pods.OnNode(name)), func(pod *corev1.Pod) bool {
		return kubepod.IsPodTerminal(pod) || podindex.BelongsToNode(pod)
	})
}

func (m *Moves) candidateOf(ref jobs.Ref, onDemand map[string]*corev1.Node) candidate {
	c := candidate{ref: ref}
	nodes := map[string]*corev1.Node{}
	for _, pod := range m.config.Pods.OfJob(ref) {
		switch node := onDemand[pod.Spec.NodeName]; {
		case kubepod.IsPodTerminal(pod):
		case node != nil:
			nodes[node.Name] = node
			c.pods = append(c.pods, pod)
		default:
			c.rest = append(c.rest, pod)
		}
	}
	for _, node := range nodes {
		c.nodes = append(c.nodes, node)
	}
	slices.SortFunc(c.nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(c.pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// isToMove returns whether the job is to move, and plans how.
func (m *Moves) isToMove(c *candidate) bool {
	if len(c.pods) > mostPods || !m.mayLeave(c) || !m.isSettled(c) {
		return false
	}
	wants := func(pod *corev1.Pod) bool {
		node := c.nodes[slices.Index(c.names(), pod.Spec.NodeName)]
		pool, _ := m.config.Pools.PoolOf(node)
		wanted, said := m.config.Market.Wanted(pod)
		return wanted || !said && pool.MoveToSpot && pod.Annotations[drain.PodSafeToEvictKey] != "false"
	}
	for _, pod := range c.pods {
		if !wants(pod) {
			return false
		}
	}
	plan, pays := m.config.Market.Plan(spotfirst.Job{Pods: c.pods, Rest: c.rest, Nodes: c.nodes, Since: startOf(c.pods), Zone: m.zoneOf(c.rest)})
	c.plan = plan
	return pays
}

// mayLeave returns whether the Nodes may be given back: the job is alone there, and their pools would not fall below their minimum.
func (m *Moves) mayLeave(c *candidate) bool {
	left := map[string]int{}
	for _, node := range c.nodes {
		pool, _ := m.config.Pools.PoolOf(node)
		left[pool.ID]++
		isPinned := processors.IsPinned(node) || !m.config.Pools.MayGiveBack(node)
		if isPinned || node.Spec.Unschedulable || api.IsReclaiming(node.Labels) || m.wasRestored(node) || pool.Size-left[pool.ID] < pool.MinSize {
			return false
		}
		for _, pod := range m.onNode(node.Name) {
			if m.config.Jobs.Member(pod).Ref != c.ref {
				return false
			}
		}
	}
	return true
}

// wasRestored returns whether marks were taken off the Node a short time ago: a move has come to nothing, perhaps under another leader.
func (m *Moves) wasRestored(node *corev1.Node) bool {
	at, err := time.Parse(time.RFC3339, node.Annotations[api.AnnotationReclaimCancelled])
	return err == nil && m.config.Clock.Since(at) < pause
}

// isSettled returns whether all pods of the job run and stay, and one of them says that it will acknowledge when its work is saved.
func (m *Moves) isSettled(c *candidate) bool {
	acknowledges := false
	for _, pod := range slices.Concat(c.pods, c.rest) {
		node, err := m.config.Nodes.Get(pod.Spec.NodeName)
		isLeaving := pod.DeletionTimestamp != nil || err != nil || api.IsReclaiming(node.Labels) || pod.Annotations[api.AnnotationCheckpointRequest] != ""
		if _, ready := kubepod.GetPodCondition(&pod.Status, corev1.PodReady); isLeaving || pod.Status.Phase != corev1.PodRunning || ready != nil && ready.Status != corev1.ConditionTrue {
			return false
		}
		value := pod.Annotations[api.AnnotationAwaitCheckpoint]
		acknowledges = acknowledges || value != "" && value != "false"
	}
	return acknowledges
}

// zoneOf returns the zone of the pods that do not move, empty if there are none, or they are in several: those that move stay with them.
func (m *Moves) zoneOf(rest []*corev1.Pod) (zone string) {
	for _, pod := range rest {
		node, err := m.config.Nodes.Get(pod.Spec.NodeName)
		if err != nil || pod.Annotations[api.AnnotationGangZones] == api.GangZonesAny {
			return ""
		}
		in := node.Labels[corev1.LabelTopologyZone]
		if zone != "" && in != zone {
			return ""
		}
		zone = in
	}
	return zone
}

// startOf returns when the last of the pods was started.
func startOf(pods []*corev1.Pod) (last time.Time) {
	for _, pod := range pods {
		started := pod.CreationTimestamp.Time
		if pod.Status.StartTime != nil {
			started = pod.Status.StartTime.Time
		}
		if started.After(last) {
			last = started
		}
	}
	return last
}

// room is what is free on a Node.
type room struct {
	*corev1.Node
	free corev1.ResourceList
}

// free returns the on-demand Nodes that take pods, with what is free there.
func (m *Moves) free(onDemand map[string]*corev1.Node) (rooms []room) {
	for _, node := range onDemand {
		if node.Spec.Unschedulable {
			continue
		}
		free := node.Status.Allocatable
		for _, pod := range m.config.Pods.OnNode(node.Name) {
			if !kubepod.IsPodTerminal(pod) {
				free = quota.SubtractWithNonNegativeResult(free, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
			}
		}
		rooms = append(rooms, room{node, free})
	}
	return rooms
}

// hasRoom returns whether one of the job's pods that request GPUs would fit another on-demand Node. The scheduler might place it there, which would
// be a move for nothing. A Node that stays empty is given back soon.
func hasRoom(rooms []room, c candidate) bool {
	for _, r := range rooms {
		if slices.Contains(c.names(), r.Name) {
			continue
		}
		if slices.ContainsFunc(c.pods, func(pod *corev1.Pod) bool { return processors.RequestsGPU(pod) && r.takes(pod) }) {
			return true
		}
	}
	return false
}

func (r room) takes(pod *corev1.Pod) bool {
	fits, _ := quota.LessThanOrEqual(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), r.free)
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(r.Node)
	_, isTainted := corev1helpers.FindMatchingUntoleratedTaint(r.Spec.Taints, pod.Spec.Tolerations, func(taint *corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
	return fits && matches && err == nil && !isTainted
}

// standIns returns pods like those that move, which take spot instances of the plan only.
func (c candidate) standIns() (pods []*corev1.Pod) {
	for i, pod := range c.pods {
		standIn := pod.DeepCopy()
		standIn.Spec.NodeName = ""
		processors.RequireSpot(&standIn.Spec, c.plan.Offerings[i])
		if _, stated := pod.Annotations[api.AnnotationWork]; stated {
			standIn.Annotations[api.AnnotationWorkSaved] = c.plan.Saved.String() // it will be, before the job leaves
		}
		pods = append(pods, standIn)
	}
	return pods
}
