package processors

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	drasnapshot "k8s.io/autoscaler/cluster-autoscaler/simulator/dynamicresources/snapshot"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// SnapshotStore is the cluster that core simulates on: nodes with their pods, in layers that can be undone. It does what
// core's own store does, but for two things that take most of a loop over thousands of nodes there:
//
//   - The scheduler lists all nodes before it places a pod. Core's store makes that list anew after each pod placed, with
//     two look-ups for each node; this one keeps the list, and copies and mends it.
//   - What a pod requests is summed up anew in each loop. Here that stays as long as the pod does not change.
//
// A list once handed out does not change, but the NodeInfos in it may. It is not safe for concurrent use.
type SnapshotStore struct {
	dra         *drasnapshot.Snapshot
	parallelism int
	// layers are never empty. All but the last are frozen.
	layers []*layer
	// affine and repelling are the nodes that have had pods with affinity, and with required anti-affinity, in any layer
	// since the state was set. Few do, so looking at these is quicker than keeping account of layers.
	affine, repelling sets.Set[string]
}

// layer is what has changed since the layer below.
type layer struct {
	// nodes are those added or changed, nil where a node was removed.
	nodes map[string]*framework.NodeInfo
	// list is of all nodes, those of the layers below included; nil where it has to be made. The nodes in stale have
	// changed since it was made.
	list  *nodeInfoList
	stale []string
}

// nodeInfoList is a list of nodes and where in it each is.
type nodeInfoList struct {
	infos []*framework.NodeInfo
	// at is shared with lists derived from this one, so it also names nodes that only those have, or had.
	at map[string]int
}

var _ clustersnapshot.ClusterSnapshotStore = (*SnapshotStore)(nil)

// NewSnapshotStore makes an empty store that uses so many goroutines to set its state.
func NewSnapshotStore(parallelism int) *SnapshotStore {
	s := &SnapshotStore{parallelism: max(1, parallelism)}
	s.reset(drasnapshot.NewEmptySnapshot())
	return s
}

func (s *SnapshotStore) reset(dra *drasnapshot.Snapshot) {
	s.dra = dra
	s.layers = []*layer{{nodes: map[string]*framework.NodeInfo{}}}
	s.affine, s.repelling = sets.New[string](), sets.New[string]()
}

// SetClusterState forgets all layers and begins with these nodes and the pods bound to them.
func (s *SnapshotStore) SetClusterState(nodes []*apiv1.Node, scheduled []*apiv1.Pod, dra *drasnapshot.Snapshot) error {
	if dra == nil {
		dra = drasnapshot.NewEmptySnapshot()
	}
	before := s.layers[0].nodes
	s.reset(dra)
	infos, pods := make([]*framework.NodeInfo, len(nodes)), make([][]*apiv1.Pod, len(nodes))
	index := make(map[string]int, len(nodes))
	for i, node := range nodes {
		if _, twice := index[node.Name]; twice {
			return fmt.Errorf("node %s already in snapshot", node.Name)
		}
		index[node.Name] = i
	}
	for _, pod := range scheduled {
		if i, known := index[pod.Spec.NodeName]; known {
			pods[i] = append(pods[i], pod)
		}
	}
	workqueue.ParallelizeUntil(context.Background(), s.parallelism, len(nodes), func(i int) {
		infos[i] = newNodeInfo(nodes[i], pods[i], before[nodes[i].Name])
	})
	for _, info := range infos {
		s.top().nodes[info.Node().Name] = info
		s.noteAffinity(info)
	}
	s.top().list = &nodeInfoList{infos: infos, at: index}
	return nil
}

// newNodeInfo takes over what was summed up for pods that were on the node before and are the same objects.
func newNodeInfo(node *apiv1.Node, pods []*apiv1.Pod, before *framework.NodeInfo) *framework.NodeInfo {
	known := map[*apiv1.Pod]*framework.PodInfo{}
	if before != nil {
		for _, pod := range before.Pods {
			known[pod.Pod] = pod
		}
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	for _, pod := range pods {
		if podInfo := known[pod]; podInfo != nil {
			info.AddPodInfo(podInfo)
		} else {
			info.AddPod(pod)
		}
	}
	return info
}

func (s *SnapshotStore) noteAffinity(info *framework.NodeInfo) {
	if len(info.PodsWithAffinity) > 0 {
		s.affine.Insert(info.Node().Name)
	}
	if len(info.PodsWithRequiredAntiAffinity) > 0 {
		s.repelling.Insert(info.Node().Name)
	}
}

func (s *SnapshotStore) top() *layer { return s.layers[len(s.layers)-1] }

// get returns the node as the topmost layers have it, nil if there is none.
func (s *SnapshotStore) get(name string) *framework.NodeInfo {
	for _, layer := range slices.Backward(s.layers) {
		if info, here := layer.nodes[name]; here {
			return info
		}
	}
	return nil
}

// modify returns the node as one that the top layer may change, nil if there is none.
func (s *SnapshotStore) modify(name string) *framework.NodeInfo {
	top := s.top()
	if info, here := top.nodes[name]; here {
		return info
	}
	info := s.get(name)
	if info == nil {
		return nil
	}
	info = info.Snapshot()
	top.nodes[name] = info
	top.stale = append(top.stale, name)
	return info
}

// ForceAddPod puts a pod on a node without asking whether it fits.
func (s *SnapshotStore) ForceAddPod(pod *apiv1.Pod, nodeName string) error {
	info := s.modify(nodeName)
	if info == nil {
		return clustersnapshot.ErrNodeNotFound
	}
	info.AddPod(pod)
	s.noteAffinity(info)
	return nil
}

// ForceRemovePod takes a pod off a node.
func (s *SnapshotStore) ForceRemovePod(namespace, podName, nodeName string) error {
	info := s.modify(nodeName)
	if info == nil {
		return clustersnapshot.ErrNodeNotFound
	}
	for _, pod := range info.Pods {
		if pod.Pod.Namespace == namespace && pod.Pod.Name == podName {
			return info.RemovePod(klog.Background(), pod.Pod)
		}
	}
	return fmt.Errorf("pod %s/%s not in snapshot", namespace, podName)
}

// AddSchedulerNodeInfo adds a node with its pods. The NodeInfo given is only read.
func (s *SnapshotStore) AddSchedulerNodeInfo(added *framework.NodeInfo) error {
	name := added.Node().Name
	if s.get(name) != nil {
		return fmt.Errorf("node %s already in snapshot", name)
	}
	info := framework.NewNodeInfo()
	info.SetNode(added.Node())
	for _, pod := range added.Pods {
		info.AddPodInfo(pod)
	}
	top := s.top()
	top.nodes[name] = info
	if top.list != nil {
		top.list = top.list.with(info)
	}
	s.noteAffinity(info)
	return nil
}

// RemoveSchedulerNodeInfo removes a node with its pods.
func (s *SnapshotStore) RemoveSchedulerNodeInfo(nodeName string) error {
	if s.get(nodeName) == nil {
		return clustersnapshot.ErrNodeNotFound
	}
	top := s.top()
	top.nodes[nodeName] = nil
	top.list, top.stale = nil, nil
	return nil
}

// Fork begins a layer.
func (s *SnapshotStore) Fork() {
	below := s.top()
	s.layers = append(s.layers, &layer{nodes: map[string]*framework.NodeInfo{}, list: below.list, stale: slices.Clone(below.stale)})
	s.dra.Fork()
}

// Revert undoes the last layer.
func (s *SnapshotStore) Revert() {
	if len(s.layers) > 1 {
		s.layers = s.layers[:len(s.layers)-1]
	}
	s.dra.Revert()
}

// Commit makes the last layer part of the one below.
func (s *SnapshotStore) Commit() error {
	if len(s.layers) > 1 {
		top := s.top()
		s.layers = s.layers[:len(s.layers)-1]
		below := s.top()
		maps.Copy(below.nodes, top.nodes)
		below.list, below.stale = top.list, top.stale
	}
	s.dra.Commit()
	return nil
}

// list returns all nodes.
func (s *SnapshotStore) list() []*framework.NodeInfo {
	top := s.top()
	switch {
	case top.list == nil:
		top.list = s.newList()
	case len(top.stale) > 0:
		top.list = top.list.mended(top.stale, s.get)
	}
	top.stale = nil
	return top.list.infos
}

// newList goes by the list of the nearest layer below that has one, so that nodes keep their order.
func (s *SnapshotStore) newList() *nodeInfoList {
	list := &nodeInfoList{at: map[string]int{}}
	add := func(name string) {
		if _, here := list.at[name]; here {
			return
		}
		if info := s.get(name); info != nil {
			list.at[name] = len(list.infos)
			list.infos = append(list.infos, info)
		}
	}
	for _, layer := range slices.Backward(s.layers) {
		if layer.list != nil {
			for _, info := range layer.list.infos {
				add(info.Node().Name)
			}
			break
		}
	}
	for _, layer := range s.layers {
		for _, name := range slices.Sorted(maps.Keys(layer.nodes)) {
			add(name)
		}
	}
	return list
}

// with is the list and one node more.
func (l *nodeInfoList) with(info *framework.NodeInfo) *nodeInfoList {
	l.at[info.Node().Name] = len(l.infos)
	return &nodeInfoList{infos: append(slices.Clip(l.infos), info), at: l.at}
}

// mended is the list with some nodes as they are now.
func (l *nodeInfoList) mended(names []string, get func(string) *framework.NodeInfo) *nodeInfoList {
	infos := slices.Clone(l.infos)
	for _, name := range names {
		infos[l.at[name]] = get(name)
	}
	return &nodeInfoList{infos: infos, at: l.at}
}
