package ess

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
)

// Offering is a node group: one way to buy in a pool, or the whole of a pool that cannot be targeted. It is a handle by
// id; what it stands for is looked up in the provider's last snapshot, so core may keep it across loops. A handle
// whose pool has gone answers with zero and refuses changes. It is safe for concurrent use.
type Offering struct {
	provider *Provider
	id       string
	poolID   string
	offering offering
}

var _ cloudprovider.NodeGroup = (*Offering)(nil)

// Id is <scaling-group-id>/<instance-type>/<zone>/<purchase>.
func (o *Offering) Id() string { return o.id }

// Debug tells the state of the offering in a line.
func (o *Offering) Debug() string {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	tally := o.provider.tally(o.id)
	return fmt.Sprintf("%s: %d live, %d bought and not yet there, %d failed", o.id, tally.live, tally.outstanding, tally.failed)
}

// MinSize is 0: the minimum belongs to the pool, and is held where nodes to remove are chosen. Only while a pool is bought
// up to its minimum the offering to buy of has one.
func (o *Offering) MinSize() int {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	return o.provider.minimums[o.id]
}

// MaxSize is the target plus what the pool may still grow by. Offerings of a pool share that room.
func (o *Offering) MaxSize() int {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	return o.provider.tally(o.id).target() + o.provider.headroom(o)
}

// TargetSize counts the instances that live, those bought, and those that failed and were not yet acknowledged.
func (o *Offering) TargetSize() (int, error) {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	return o.provider.tally(o.id).target(), nil
}

// IncreaseSize buys delta instances. A refusal by the cloud is not an error here: it shows as failed instances in
// Nodes, as those refusals do that Alibaba reports only later.
func (o *Offering) IncreaseSize(delta int) error {
	return o.provider.buy(o, delta, false)
}

// AtomicIncreaseSize buys delta instances or none: what came of a partial delivery is given back.
func (o *Offering) AtomicIncreaseSize(delta int) error {
	return o.provider.buy(o, delta, true)
}

// DeleteNodes gives back the nodes' instances, or acknowledges failed ones. It returns after the cloud has accepted
// the removal; removals of one pool are coalesced. Every instance that could not be removed is named in the error.
func (o *Offering) DeleteNodes(nodes []*apiv1.Node) error {
	return o.provider.remover.remove(o, nodes, unneeded)
}

// ForceDeleteNodes does the same without regard to the pool's minimum and to what ESS was told to keep.
func (o *Offering) ForceDeleteNodes(nodes []*apiv1.Node) error {
	return o.provider.remover.remove(o, nodes, forced)
}

// DecreaseTargetSize cancels purchases that have not come; delta is negative. More than has not come is not cancelled,
// and is no error: core also counts instances here that exist but have not registered.
func (o *Offering) DecreaseTargetSize(delta int) error {
	if delta >= 0 {
		return fmt.Errorf("node group %s: cannot decrease the target by %d, it must be negative", o.id, delta)
	}
	o.provider.cancelPurchases(o.id, -delta)
	return nil
}

// Nodes returns the instances of the offering, the failed ones among them with the reason.
func (o *Offering) Nodes() ([]cloudprovider.Instance, error) {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	return o.provider.tally(o.id).instances, nil
}

// TemplateNodeInfo returns the node that an instance of this offering would become, without DaemonSets.
func (o *Offering) TemplateNodeInfo() (*framework.NodeInfo, error) {
	o.provider.mu.RLock()
	known := o.provider.knownOffering(o)
	o.provider.mu.RUnlock()
	if known == nil {
		return nil, errUnknownGroup(o.id)
	}
	return framework.NewNodeInfo(known.template.DeepCopy(), nil,
		&framework.PodInfo{Pod: cloudprovider.BuildKubeProxy(o.id)}), nil
}

// Exist says whether the pool is still under management.
func (o *Offering) Exist() bool {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	return o.provider.pools[o.poolID] != nil
}

// Create is not implemented: scaling groups are the operator's.
func (o *Offering) Create() (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

// Delete is not implemented: scaling groups are the operator's.
func (o *Offering) Delete() error { return cloudprovider.ErrNotImplemented }

// Autoprovisioned is false: scaling groups are the operator's.
func (o *Offering) Autoprovisioned() bool { return false }

// GetOptions returns the defaults as the tags of the pool change them.
func (o *Offering) GetOptions(defaults config.NodeGroupAutoscalingOptions) (*config.NodeGroupAutoscalingOptions, error) {
	o.provider.mu.RLock()
	defer o.provider.mu.RUnlock()
	pool := o.provider.pools[o.poolID]
	if pool == nil {
		return &defaults, nil
	}
	return pool.settings.Options(defaults), nil
}
