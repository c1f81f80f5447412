package moves

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	quota "k8s.io/apiserver/pkg/quota/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
)

// group is on-demand Nodes that are left together, because jobs have pods on several of them.
type group struct {
	// key is the names of the Nodes, sorted.
	key   string
	nodes []*corev1.Node
	// pods are those on the Nodes that would move, by job.
	pods  map[jobs.Ref][]*corev1.Pod
	costs spotfirst.Costs
}

func (g group) saves() float64 { return g.costs.OnDemand - g.costs.Spot }

func (g group) names() []string { return strings.Split(g.key, ",") }

// first returns a pod of each job.
func (g group) first() (pods []*corev1.Pod) {
	for _, ofJob := range g.pods {
		pods = append(pods, ofJob[0])
	}
	return pods
}

// groups returns the groups that are to move: where all jobs want that, it pays, and nothing else is happening to them.
func (m *Moves) groups() (groups []group, err error) {
	nodes, err := m.onDemandNodes()
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, node := range nodes {
		if seen[node.Name] {
			continue
		}
		g := m.around(node, nodes)
		for _, each := range g.nodes {
			seen[each.Name] = true
		}
		if m.isToMove(&g) && !m.hasRoomElsewhere(g, nodes) {
			groups = append(groups, g)
		}
	}
	return groups, nil
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

// around returns the group of the node: with all on-demand Nodes on which the jobs of the group have pods.
func (m *Moves) around(node *corev1.Node, onDemand map[string]*corev1.Node) group {
	g := group{nodes: []*corev1.Node{node}, pods: map[jobs.Ref][]*corev1.Pod{}}
	known := map[string]bool{node.Name: true}
	for i := 0; i < len(g.nodes); i++ {
		for _, pod := range m.config.Pods.OnNode(g.nodes[i].Name) {
			if kubepod.IsPodTerminal(pod) || podindex.BelongsToNode(pod) {
				continue
			}
			ref := m.config.Member(pod).Ref
			_, isKnown := g.pods[ref]
			g.pods[ref] = append(g.pods[ref], pod)
			if isKnown {
				continue
			}
			for _, other := range m.config.Pods.OfJob(ref) {
				if name := other.Spec.NodeName; onDemand[name] != nil && !known[name] && !kubepod.IsPodTerminal(other) {
					known[name] = true
					g.nodes = append(g.nodes, onDemand[name])
				}
			}
		}
	}
	var names []string
	for _, each := range g.nodes {
		names = append(names, each.Name)
	}
	slices.Sort(names)
	g.key = strings.Join(names, ",")
	return g
}

// isToMove returns whether the group is to move, and computes its costs.
func (m *Moves) isToMove(g *group) bool {
	count := 0
	for _, node := range g.nodes {
		if node.Spec.Unschedulable || api.IsReclaiming(node.Labels) || !m.config.Pools.MayGiveBack(node) || m.wasRestored(node) {
			return false
		}
	}
	for ref, pods := range g.pods {
		if count += len(pods); count > mostPods || !m.isSettled(ref) || !m.allWant(pods) {
			return false
		}
		costs, pays := m.config.Market.Pays(pods, startOf(pods))
		if !pays {
			return false
		}
		g.costs.Spot += costs.Spot
		g.costs.OnDemand += costs.OnDemand
	}
	return count > 0
}

// wasRestored returns whether marks were taken off the Node a short time ago: a move has come to nothing, perhaps under another leader.
func (m *Moves) wasRestored(node *corev1.Node) bool {
	at, err := time.Parse(time.RFC3339, node.Annotations[api.AnnotationReclaimCancelled])
	return err == nil && m.config.Clock.Since(at) < pause
}

// isSettled returns whether all pods of the job run and stay, and one of them says that it will acknowledge when its work is saved.
func (m *Moves) isSettled(ref jobs.Ref) (is bool) {
	acknowledges := false
	for _, pod := range m.config.Pods.OfJob(ref) {
		if kubepod.IsPodTerminal(pod) {
			continue
		}
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

// allWant returns whether all the pods are to move where that pays.
func (m *Moves) allWant(pods []*corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		node, err := m.config.Nodes.Get(pod.Spec.NodeName)
		if err != nil {
			return true
		}
		pool, _ := m.config.Pools.PoolOf(node)
		return !m.config.Market.Wanted(pod, pool.MoveToSpot)
	})
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

// hasRoomElsewhere returns whether one of the pods would fit another on-demand Node. The scheduler might place it there, which would be a move for
// nothing. A Node that stays empty is given back soon.
func (m *Moves) hasRoomElsewhere(g group, onDemand map[string]*corev1.Node) bool {
	for _, node := range onDemand {
		if node.Spec.Unschedulable || slices.Contains(g.nodes, node) {
			continue
		}
		free := node.Status.Allocatable
		for _, pod := range m.config.Pods.OnNode(node.Name) {
			if !kubepod.IsPodTerminal(pod) {
				free = quota.SubtractWithNonNegativeResult(free, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
			}
		}
		for _, pod := range g.first() {
			fits, _ := quota.LessThanOrEqual(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), free)
			matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
			if fits && matches && err == nil {
				return true
			}
		}
	}
	return false
}

// standIns returns pods like those of the group that take spot instances only.
func (g group) standIns() (pods []*corev1.Pod) {
	for _, ref := range sortedRefs(g.pods) {
		for _, pod := range g.pods[ref] {
			standIn := pod.DeepCopy()
			standIn.Spec.NodeName = ""
			requireSpot(&standIn.Spec)
			pods = append(pods, standIn)
		}
	}
	return pods
}

func sortedRefs(pods map[jobs.Ref][]*corev1.Pod) (refs []jobs.Ref) {
	for ref := range pods {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b jobs.Ref) int { return strings.Compare(a.String(), b.String()) })
	return refs
}

// requireSpot adds to each alternative of the pod's node affinity that the node's instance is a spot one, by ACK's label.
func requireSpot(spec *corev1.PodSpec) {
	spot := corev1.NodeSelectorRequirement{
		Key: api.LabelSpotStrategy, Operator: corev1.NodeSelectorOpIn, Values: []string{alicloud.SpotAsPriceGo, alicloud.SpotWithPriceLimit},
	}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	required := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if required == nil || len(required.NodeSelectorTerms) == 0 {
		required = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{}}}
		spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		term.MatchExpressions = append(term.MatchExpressions, spot)
	}
}
