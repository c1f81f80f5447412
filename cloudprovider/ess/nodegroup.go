package ess

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"

	"gpu-spot-autoscaler/cloudprovider/ess/buyer"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/remover"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// Errors of removals, for errors.Is.
var (
	// ErrBelowMinimum is returned for a node whose removal would take its pool below its minimum.
	ErrBelowMinimum = ledger.ErrBelowMinimum
	// ErrKept is returned for a node whose instance somebody has told ESS to keep: it is protected from scale-in, on standby or
	// stopped.
	ErrKept = ledger.ErrKept
	// ErrDisputed is returned for a node if another Node claims to be the same instance.
	ErrDisputed = errors.New("several Nodes say that they are its instance")
	// ErrNoPool is returned for a node of no pool, or of one that is not under management any more.
	ErrNoPool = errors.New("it is of no pool under management")
)

// IsRefused returns whether the error of a removal says that the node stays, and will as long as nobody changes the pool or the
// Nodes. Any other is of an attempt that may succeed the next time.
func IsRefused(err error) bool {
	return errors.Is(err, ErrBelowMinimum) || errors.Is(err, ErrKept) || errors.Is(err, ErrDisputed) || errors.Is(err, ErrNoPool)
}

// NodeGroup is one offering of a pool, or the whole of a pool that cannot be targeted. It is a handle by id, so core may keep
// it across loops: what it stands for is looked up in the last snapshot. If the pool is gone, it answers with zero values and
// refuses changes. It is safe for concurrent use.
type NodeGroup struct {
	*manager
	id string
}

var (
	_ cloudprovider.NodeGroup = (*NodeGroup)(nil)
	_ reasons.Obstructed      = (*NodeGroup)(nil)
)

// manager is what all node groups share.
type manager struct {
	// ctx ends with Provider.Cleanup: the interfaces of Cluster Autoscaler carry no context.
	ctx context.Context
	// firstRead is closed by the first refresh that succeeds.
	firstRead chan struct{}

	store   *snapshot.Store
	prices  Prices
	ledger  *ledger.Ledger
	buyer   *buyer.Buyer
	remover *remover.Remover
}

// nodeGroups holds one NodeGroup for each id that the ledger knows. It is safe for concurrent use.
type nodeGroups struct {
	manager *manager

	mu   sync.Mutex
	byID groupsByID
	list []cloudprovider.NodeGroup
}

// groupsByID makes a NodeGroup for an id that it is asked for the first time. The lock of nodeGroups guards it.
type groupsByID map[string]*NodeGroup

func (g groupsByID) get(id string, shared *manager) *NodeGroup {
	if g[id] == nil {
		g[id] = &NodeGroup{manager: shared, id: id}
	}
	return g[id]
}

func (g *nodeGroups) get(id string) *NodeGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.byID.get(id, g.manager)
}

// update sets the list to the node groups of the snapshot.
func (g *nodeGroups) update(s *snapshot.Snapshot) {
	ids := sets.New[string]()
	for _, pool := range s.Pools {
		ids.Insert(slices.Collect(maps.Keys(pool.NodeGroups))...)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.byID, func(id string, _ *NodeGroup) bool { _, known := s.Groups[id]; return !known })
	g.list = make([]cloudprovider.NodeGroup, 0, ids.Len())
	for _, id := range sets.List(ids) {
		g.list = append(g.list, g.byID.get(id, g.manager))
	}
}

// listed returns the node groups of the last update, by id. The caller must not change the slice.
func (g *nodeGroups) listed() []cloudprovider.NodeGroup {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

func (g *NodeGroup) snapshot() *snapshot.Snapshot { return g.store.Last() }

// Id returns <scaling-group-id>/<instance-type>/<zone>/<purchase option>.
func (g *NodeGroup) Id() string { return g.id }

// Debug describes the size of the node group in a line.
func (g *NodeGroup) Debug() string {
	size := g.snapshot().GroupSize(g.id)
	return fmt.Sprintf("%s: %d live, %d purchased, %d failed", g.id, size.Live, size.Purchased, size.Failed)
}

// MinSize is 0: the minimum is that of the pool, and is enforced where nodes to remove are chosen. Shortfalls has what a pool lacks of it.
func (g *NodeGroup) MinSize() int { return 0 }

// MaxSize is the target plus what the pool may still grow by. The node groups of a pool share that room.
func (g *NodeGroup) MaxSize() int {
	last := g.snapshot()
	return last.GroupSize(g.id).Target() + last.Room(g.id, g.prices)
}

// Obstacle returns why no more instances can be bought, nil if some can: MaxSize does not tell a pool that is full from a price above
// its cap.
func (g *NodeGroup) Obstacle() *reasons.Reason { return g.snapshot().Obstacle(g.id, g.prices) }

// TargetSize counts live instances, those bought, and failed ones that core has not deleted.
func (g *NodeGroup) TargetSize() (int, error) {
	return g.snapshot().GroupSize(g.id).Target(), nil
}

// IncreaseSize buys delta instances. A refusal by the cloud is not an error here: it shows as failed instances in Nodes, as do
// the failures that Alibaba Cloud reports only later.
func (g *NodeGroup) IncreaseSize(delta int) error {
	return g.buy(delta, false)
}

// AtomicIncreaseSize buys delta instances or none: after a partial delivery, the instances that were delivered are given back. What
// several calls ask for in one loop, or while the scaling group is busy, is bought together, and nothing of that is given back: it serves
// some of them.
func (g *NodeGroup) AtomicIncreaseSize(delta int) error {
	return g.buy(delta, true)
}

func (g *NodeGroup) buy(delta int, atomic bool) error {
	if delta <= 0 {
		return fmt.Errorf("node group %s: cannot grow by %d, it must be positive", g.id, delta)
	}
	return g.buyer.Buy(g.ctx, g.id, delta, atomic)
}

// DeleteNodes gives back the nodes' instances, and acknowledges failed ones. It returns after the cloud has accepted the
// removal; removals of one pool are collected. The error names every instance that could not be removed.
func (g *NodeGroup) DeleteNodes(nodes []*apiv1.Node) error {
	return g.remove(nodes, ledger.Unneeded)
}

// ForceDeleteNodes does the same without regard to the pool's minimum and to what ESS was told to keep.
func (g *NodeGroup) ForceDeleteNodes(nodes []*apiv1.Node) error {
	return g.remove(nodes, ledger.Forced)
}

func (g *NodeGroup) remove(nodes []*apiv1.Node, reason ledger.RemovalReason) error {
	instances, placeholders, errs := g.sortNodes(nodes)
	if placeholders.Len() > 0 {
		g.ledger.Purchases.Acknowledge(placeholders)
	}
	if len(instances) == 0 {
		return errors.Join(errs...)
	}
	removal, err := g.remover.Remove(g.poolID(), instances, reason)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if neverRegistered(nodes) {
		// Core waits for these in its main loop. Failures are logged, and core orders the removal again in the next loop.
		return errors.Join(errs...)
	}
	failed := removal.Wait()
	for _, id := range instances {
		if failed[id] != nil {
			errs = append(errs, fmt.Errorf("node group %s: remove instance %s: %w", g.id, id, failed[id]))
		}
	}
	return errors.Join(errs...)
}

// sortNodes separates instances from placeholders of failed ones, and both from nodes that are not of this node group.
func (g *NodeGroup) sortNodes(nodes []*apiv1.Node) (instances []string, placeholders sets.Set[string], errs []error) {
	last := g.snapshot()
	placeholders = sets.New[string]()
	for _, node := range nodes {
		groupID, _ := last.GroupOf(node)
		instanceID := last.InstanceID(node)
		switch _, failed := snapshot.PlaceholderToken(node.Spec.ProviderID); {
		case failed:
			placeholders.Insert(node.Spec.ProviderID)
		case groupID != g.id:
			errs = append(errs, fmt.Errorf("node group %s: node %s (%s) does not belong to it", g.id, node.Name, node.Spec.ProviderID))
		case last.Loop.Disputed.Has(instanceID):
			errs = append(errs, fmt.Errorf("node group %s: remove node %s (%s): %w", g.id, node.Name, node.Spec.ProviderID, ErrDisputed))
		default:
			instances = append(instances, instanceID)
		}
	}
	return instances, placeholders, errs
}

// neverRegistered returns whether core made the nodes up, for instances that never became Nodes.
func neverRegistered(nodes []*apiv1.Node) bool {
	return !slices.ContainsFunc(nodes, func(node *apiv1.Node) bool {
		return node.Annotations[cloudprovider.FakeNodeReasonAnnotation] != cloudprovider.FakeNodeUnregistered
	})
}

// DecreaseTargetSize cancels purchases that are not delivered yet; delta is negative. It does not cancel more than is not delivered,
// and that is no error: core also counts instances here that exist but have not registered.
func (g *NodeGroup) DecreaseTargetSize(delta int) error {
	if delta >= 0 {
		return fmt.Errorf("node group %s: cannot decrease the target by %d, it must be negative", g.id, delta)
	}
	g.ledger.Purchases.Cancel(g.id, -delta)
	return nil
}

// Nodes returns the instances of the node group. Failed ones are among them, with the reason.
func (g *NodeGroup) Nodes() ([]cloudprovider.Instance, error) {
	return g.snapshot().GroupSize(g.id).Instances, nil
}

// TemplateNodeInfo returns the node that an instance of this offering would become, without DaemonSets.
func (g *NodeGroup) TemplateNodeInfo() (*framework.NodeInfo, error) {
	offered := g.snapshot().Offering(g.id)
	if offered == nil {
		return nil, ledger.UnknownGroup(g.id)
	}
	return framework.NewNodeInfo(offered.Template.DeepCopy(), nil,
		&framework.PodInfo{Pod: cloudprovider.BuildKubeProxy(g.id)}), nil
}

// Exist returns whether the pool is still under management.
func (g *NodeGroup) Exist() bool { return g.snapshot().PoolOf(g.id) != nil }

// Create is not implemented: the operator makes scaling groups.
func (g *NodeGroup) Create() (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

// Delete is not implemented: the operator deletes scaling groups.
func (g *NodeGroup) Delete() error { return cloudprovider.ErrNotImplemented }

// Autoprovisioned is false: the operator makes scaling groups.
func (g *NodeGroup) Autoprovisioned() bool { return false }

// GetOptions returns the defaults, overridden by the tags of the pool.
func (g *NodeGroup) GetOptions(defaults config.NodeGroupAutoscalingOptions) (*config.NodeGroupAutoscalingOptions, error) {
	known := g.snapshot().PoolOf(g.id)
	if known == nil {
		return &defaults, nil
	}
	return known.Settings.Options(defaults), nil
}

// poolID returns the scaling group of the node group, also where it is not under management any more.
func (g *NodeGroup) poolID() string { return g.snapshot().Groups[g.id].PoolID }
