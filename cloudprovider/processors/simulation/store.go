package simulation

import (
	"context"
	"fmt"
	"slices"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	drasnapshot "k8s.io/autoscaler/cluster-autoscaler/simulator/dynamicresources/snapshot"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"
)

// Store is the nodes of the cluster with their pods. Forks are layers: one copies the list of the layer below when it first changes
// something, and a node when it first changes that. The nodes of a loop are kept for the next one, which computes only those anew whose
// Node or pods the informers have replaced.
//
// It is not safe for concurrent use.
type Store struct {
	parallelism int
	// kept are the nodes of the last SetClusterState, by name. They are not changed.
	kept map[string]*schedulerframework.NodeInfo
	top  *layer
	dra  *drasnapshot.Snapshot
}

var _ clustersnapshot.ClusterSnapshotStore = (*Store)(nil)

// NewStore returns an empty store. It computes the requests of pods on so many goroutines.
func NewStore(parallelism int) *Store {
	return &Store{parallelism: max(1, parallelism), top: newLayer(nil), dra: drasnapshot.NewEmptySnapshot()}
}

// SetClusterState replaces all nodes and pods, and ends all forks. Pods of other nodes are ignored. The error names a node that is
// there twice.
func (s *Store) SetClusterState(nodes []*apiv1.Node, scheduled []*apiv1.Pod, dra *drasnapshot.Snapshot) error {
	s.top, s.dra = newLayer(nil), dra
	if dra == nil {
		s.dra = drasnapshot.NewEmptySnapshot()
	}
	position := make(map[string]int, len(nodes))
	for i, node := range nodes {
		if _, twice := position[node.Name]; twice {
			return fmt.Errorf("node %s already in snapshot", node.Name)
		}
		position[node.Name] = i
	}
	pods := make([][]*apiv1.Pod, len(nodes))
	for _, pod := range scheduled {
		if i, known := position[pod.Spec.NodeName]; known {
			pods[i] = append(pods[i], pod)
		}
	}
	infos := make([]*schedulerframework.NodeInfo, len(nodes))
	workqueue.ParallelizeUntil(context.Background(), s.parallelism, len(nodes), func(i int) {
		infos[i] = renew(s.kept[nodes[i].Name], nodes[i], pods[i])
	})
	s.kept = make(map[string]*schedulerframework.NodeInfo, len(nodes))
	for i, node := range nodes {
		s.kept[node.Name] = infos[i]
	}
	s.top.nodes, s.top.position = infos, position
	return nil
}

// renew returns the node with the pods: what was kept of it if that is still right.
func renew(kept *schedulerframework.NodeInfo, node *apiv1.Node, pods []*apiv1.Pod) *schedulerframework.NodeInfo {
	switch {
	case kept == nil || !holds(kept, pods):
		info := schedulerframework.NewNodeInfo()
		info.SetNode(node)
		for _, pod := range pods {
			info.AddPod(pod)
		}
		return info
	case kept.Node() != node:
		info := kept.Snapshot()
		info.SetNode(node)
		return info
	}
	return kept
}

// holds returns whether the pods of the node are exactly these. Informers replace a pod that has changed, and list pods in no order.
func holds(info *schedulerframework.NodeInfo, pods []*apiv1.Pod) bool {
	if len(info.Pods) != len(pods) {
		return false
	}
	for i, pod := range pods {
		isSame := func(other *schedulerframework.PodInfo) bool { return other.Pod == pod }
		if !isSame(info.Pods[i]) && !slices.ContainsFunc(info.Pods, isSame) {
			return false
		}
	}
	return true
}

// ForceAddPod adds the pod to the node, whether it fits or not.
func (s *Store) ForceAddPod(pod *apiv1.Pod, nodeName string) error {
	info, err := s.top.change(nodeName)
	if err != nil {
		return err
	}
	info.AddPod(pod)
	return nil
}

// ForceRemovePod removes the pod from the node.
func (s *Store) ForceRemovePod(namespace, podName, nodeName string) error {
	info, err := s.top.change(nodeName)
	if err != nil {
		return err
	}
	for _, pod := range info.Pods {
		if pod.Pod.Namespace != namespace || pod.Pod.Name != podName {
			continue
		}
		if err := info.RemovePod(klog.Background(), pod.Pod); err != nil {
			return fmt.Errorf("remove pod %s/%s from node %s of the snapshot: %w", namespace, podName, nodeName, err)
		}
		return nil
	}
	return fmt.Errorf("pod %s/%s not in snapshot", namespace, podName)
}

// AddSchedulerNodeInfo adds a copy of the node with its pods.
func (s *Store) AddSchedulerNodeInfo(info *schedulerframework.NodeInfo) error {
	return s.top.add(info.Snapshot())
}

// RemoveSchedulerNodeInfo removes the node with its pods.
func (s *Store) RemoveSchedulerNodeInfo(nodeName string) error { return s.top.remove(nodeName) }

// Fork begins changes that Revert undoes and Commit keeps.
func (s *Store) Fork() {
	s.top = newLayer(s.top)
	s.dra.Fork()
}

// Revert undoes all changes since the last fork. It does nothing without one.
func (s *Store) Revert() {
	if s.top.below != nil {
		s.top = s.top.below
	}
	s.dra.Revert()
}

// Commit makes all changes since the last fork a part of the state before. It does nothing without a fork.
func (s *Store) Commit() error {
	if s.top.below != nil {
		s.top = s.top.merge()
	}
	s.dra.Commit()
	return nil
}

// DraSnapshot returns the objects of dynamic resource allocation.
func (s *Store) DraSnapshot() *drasnapshot.Snapshot { return s.dra }

// NodeInfos returns the lister of nodes for the scheduler's plugins.
func (s *Store) NodeInfos() schedulerframework.NodeInfoLister { return lister{s} }

// StorageInfos returns the lister of volume claims for the scheduler's plugins.
func (s *Store) StorageInfos() schedulerframework.StorageInfoLister { return lister{s} }

// ResourceClaims returns the tracker of resource claims for the scheduler's plugins.
func (s *Store) ResourceClaims() schedulerframework.ResourceClaimTracker {
	return s.dra.ResourceClaims()
}

// ResourceSlices returns the lister of resource slices for the scheduler's plugins.
func (s *Store) ResourceSlices() schedulerframework.ResourceSliceLister {
	return s.dra.ResourceSlices()
}

// DeviceClasses returns the lister of device classes for the scheduler's plugins.
func (s *Store) DeviceClasses() schedulerframework.DeviceClassLister { return s.dra.DeviceClasses() }

// lister is a Store for the scheduler's plugins.
type lister struct{ store *Store }

// List returns all nodes.
func (l lister) List() ([]*schedulerframework.NodeInfo, error) { return l.store.top.list(), nil }

// HavePodsWithAffinityList returns the nodes with pods that have affinities.
func (l lister) HavePodsWithAffinityList() ([]*schedulerframework.NodeInfo, error) {
	return l.store.top.withAffinity(), nil
}

// HavePodsWithRequiredAntiAffinityList returns the nodes with pods that have required anti-affinities.
func (l lister) HavePodsWithRequiredAntiAffinityList() ([]*schedulerframework.NodeInfo, error) {
	return l.store.top.withAntiAffinity(), nil
}

// Get returns the node. The error is clustersnapshot.ErrNodeNotFound.
func (l lister) Get(nodeName string) (*schedulerframework.NodeInfo, error) {
	info, _ := l.store.top.get(nodeName)
	if info == nil {
		return nil, clustersnapshot.ErrNodeNotFound
	}
	return info, nil
}

// IsPVCUsedByPods returns whether a pod uses the volume claim, "<namespace>/<name>".
func (l lister) IsPVCUsedByPods(key string) bool {
	return slices.ContainsFunc(l.store.top.list(), func(info *schedulerframework.NodeInfo) bool { return info.PVCRefCounts[key] > 0 })
}
