package processors

import (
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot"
	drasnapshot "k8s.io/autoscaler/cluster-autoscaler/simulator/dynamicresources/snapshot"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// NodeInfos is how the scheduler's plugins see the nodes.
func (s *SnapshotStore) NodeInfos() framework.NodeInfoLister { return nodeInfoLister{s} }

// StorageInfos is how they see volumes.
func (s *SnapshotStore) StorageInfos() framework.StorageInfoLister { return storageInfoLister{s} }

// ResourceClaims is how they see claims on devices.
func (s *SnapshotStore) ResourceClaims() framework.ResourceClaimTracker {
	return s.dra.ResourceClaims()
}

// ResourceSlices is how they see devices.
func (s *SnapshotStore) ResourceSlices() framework.ResourceSliceLister { return s.dra.ResourceSlices() }

// DeviceClasses is how they see classes of devices.
func (s *SnapshotStore) DeviceClasses() framework.DeviceClassLister { return s.dra.DeviceClasses() }

// DraSnapshot is the state of dynamic resource allocation.
func (s *SnapshotStore) DraSnapshot() *drasnapshot.Snapshot { return s.dra }

type nodeInfoLister struct{ store *SnapshotStore }

// List returns all nodes.
func (l nodeInfoLister) List() ([]*framework.NodeInfo, error) { return l.store.list(), nil }

// HavePodsWithAffinityList returns the nodes with pods that have any pod affinity or anti-affinity.
func (l nodeInfoLister) HavePodsWithAffinityList() ([]*framework.NodeInfo, error) {
	return l.which(l.store.affine, func(info *framework.NodeInfo) bool { return len(info.PodsWithAffinity) > 0 }), nil
}

// HavePodsWithRequiredAntiAffinityList returns the nodes with pods that insist on the absence of others.
func (l nodeInfoLister) HavePodsWithRequiredAntiAffinityList() ([]*framework.NodeInfo, error) {
	return l.which(l.store.repelling, func(info *framework.NodeInfo) bool { return len(info.PodsWithRequiredAntiAffinity) > 0 }), nil
}

func (l nodeInfoLister) which(names sets.Set[string], still func(*framework.NodeInfo) bool) []*framework.NodeInfo {
	infos := make([]*framework.NodeInfo, 0, len(names))
	for name := range names {
		if info := l.store.get(name); info != nil && still(info) {
			infos = append(infos, info)
		}
	}
	return infos
}

// Get returns a node, or clustersnapshot.ErrNodeNotFound.
func (l nodeInfoLister) Get(name string) (*framework.NodeInfo, error) {
	if info := l.store.get(name); info != nil {
		return info, nil
	}
	return nil, clustersnapshot.ErrNodeNotFound
}

type storageInfoLister struct{ store *SnapshotStore }

// IsPVCUsedByPods says whether any pod uses the claim, given as namespace/name. It is asked only about claims that one
// pod may use at a time.
func (l storageInfoLister) IsPVCUsedByPods(key string) bool {
	for _, info := range l.store.list() {
		if info.PVCRefCounts[key] > 0 {
			return true
		}
	}
	return false
}
