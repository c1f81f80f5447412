package simulation

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"
)

// layer is the state of the cluster since a fork. The one at the bottom has none below.
type layer struct {
	below *layer
	// nodes is the list of the layer below until this one changes something. A removed node leaves a nil, so that the others keep
	// their positions.
	nodes []*schedulerframework.NodeInfo
	// position has the nodes that were added in this layer, in that at the bottom all. A node that was removed may be among them.
	position map[string]int
	// own are the positions of the nodes that only this layer refers to, so that they may be changed. They are nil until it has copied
	// the list.
	own sets.Set[int]
	// gaps are the positions of the removed nodes, in order. The list is not changed, but replaced.
	gaps []int

	// The following is computed when it is asked for, and dropped with each change.
	compact                []*schedulerframework.NodeInfo
	affinity, antiAffinity []*schedulerframework.NodeInfo
}

func newLayer(below *layer) *layer {
	l := &layer{below: below}
	if below != nil {
		l.nodes, l.gaps = below.nodes, below.gaps
	}
	return l
}

// get returns the node and its position; nil if there is none of that name.
func (l *layer) get(name string) (*schedulerframework.NodeInfo, int) {
	for at := l; at != nil; at = at.below {
		if i, known := at.position[name]; known {
			return l.nodes[i], i
		}
	}
	return nil, 0
}

// change returns the node to be changed.
func (l *layer) change(name string) (*schedulerframework.NodeInfo, error) {
	info, i := l.get(name)
	if info == nil {
		return nil, clustersnapshot.ErrNodeNotFound
	}
	l.begin()
	if !l.own.Has(i) {
		l.nodes[i] = info.Snapshot()
		l.own.Insert(i)
	}
	return l.nodes[i], nil
}

// begin prepares a change.
func (l *layer) begin() {
	if l.own == nil {
		l.own = sets.New[int]()
		l.nodes = slices.Clone(l.nodes)
	}
	l.compact, l.affinity, l.antiAffinity = nil, nil, nil
}

// add adds a node that nobody else refers to.
func (l *layer) add(info *schedulerframework.NodeInfo) error {
	name := info.Node().Name
	if known, _ := l.get(name); known != nil {
		return fmt.Errorf("node %s already in snapshot", name)
	}
	l.begin()
	if l.position == nil {
		l.position = map[string]int{}
	}
	l.position[name] = len(l.nodes)
	l.own.Insert(len(l.nodes))
	l.nodes = append(l.nodes, info)
	return nil
}

func (l *layer) remove(name string) error {
	info, i := l.get(name)
	if info == nil {
		return clustersnapshot.ErrNodeNotFound
	}
	l.begin()
	l.nodes[i] = nil
	at, _ := slices.BinarySearch(l.gaps, i)
	l.gaps = slices.Insert(slices.Clone(l.gaps), at, i)
	return nil
}

// merge returns the layer below, with the changes of this one.
func (l *layer) merge() *layer {
	merged := l.below
	if l.own == nil {
		return merged
	}
	merged.nodes, merged.gaps, merged.own = l.nodes, l.gaps, merged.own.Union(l.own)
	merged.compact, merged.affinity, merged.antiAffinity = l.compact, l.affinity, l.antiAffinity
	if merged.position == nil {
		merged.position = map[string]int{}
	}
	maps.Copy(merged.position, l.position)
	return merged
}

// list returns all nodes, not to be changed.
func (l *layer) list() []*schedulerframework.NodeInfo {
	if len(l.gaps) == 0 {
		return l.nodes
	}
	if l.compact == nil {
		l.compact = make([]*schedulerframework.NodeInfo, 0, len(l.nodes)-len(l.gaps))
		from := 0
		for _, gap := range l.gaps {
			l.compact = append(l.compact, l.nodes[from:gap]...)
			from = gap + 1
		}
		l.compact = append(l.compact, l.nodes[from:]...)
	}
	return l.compact
}

// withAffinity returns the nodes with pods that have affinities.
func (l *layer) withAffinity() []*schedulerframework.NodeInfo {
	if l.affinity == nil {
		l.affinity = l.having((*layer).withAffinity, func(info *schedulerframework.NodeInfo) bool { return len(info.PodsWithAffinity) > 0 })
	}
	return l.affinity
}

// withAntiAffinity returns the nodes with pods that have required anti-affinities.
func (l *layer) withAntiAffinity() []*schedulerframework.NodeInfo {
	if l.antiAffinity == nil {
		l.antiAffinity = l.having((*layer).withAntiAffinity, func(info *schedulerframework.NodeInfo) bool {
			return len(info.PodsWithRequiredAntiAffinity) > 0
		})
	}
	return l.antiAffinity
}

// having returns the nodes for which the condition holds. If it holds for none of the layer below, only the changed ones are looked at.
func (l *layer) having(ofLayer func(*layer) []*schedulerframework.NodeInfo, holds func(*schedulerframework.NodeInfo) bool,
) []*schedulerframework.NodeInfo {
	if l.below == nil || len(ofLayer(l.below)) > 0 {
		return l.where(holds)
	}
	found := []*schedulerframework.NodeInfo{}
	for _, i := range sets.List(l.own) {
		if info := l.nodes[i]; info != nil && holds(info) {
			found = append(found, info)
		}
	}
	return found
}

func (l *layer) where(holds func(*schedulerframework.NodeInfo) bool) []*schedulerframework.NodeInfo {
	found := []*schedulerframework.NodeInfo{}
	for _, info := range l.nodes {
		if info != nil && holds(info) {
			found = append(found, info)
		}
	}
	return found
}
