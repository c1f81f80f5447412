package ess

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/pricing"
)

// BeginLoop reads the nodes of the cluster at the start of a loop of core. Until the next call it stays the same which
// instances are being reclaimed or out of service, because core asks about nodes before Refresh and about instances after it,
// and the two answers have to fit together. Offerings of which the market takes instances away become dearer before
// anything is bought.
// BeginLoop also remembers in which form each Node has its providerID, because core compares those as strings, and has the next Refresh look
// after what was not finished before.
func (p *Provider) BeginLoop(nodes []*apiv1.Node) {
	loop := ledger.Loop{
		Reclaiming: sets.New[string](), Removed: sets.New[string](), ProviderIDs: make(map[string]string, len(nodes)),
	}
	if p.config.Reclaiming != nil {
		loop.Reclaiming = p.config.Reclaiming().Clone()
	}
	last := p.store.Last()
	unrecognized := sets.New[string]()
	for _, node := range nodes {
		id, err := last.InstanceOf(node)
		if err != nil {
			unrecognized.Insert(fmt.Sprintf("Node %s is left alone: %v", node.Name, err))
			continue
		}
		loop.ProviderIDs[id] = node.Spec.ProviderID
		if api.IsReclaiming(node.Labels) {
			loop.Reclaiming.Insert(id)
		}
		if node.Annotations[api.AnnotationRemoved] != "" {
			loop.Removed.Insert(id)
		}
	}
	for _, message := range p.reporter.Appeared("unrecognized", unrecognized) {
		unrecognizedNodes.Inc()
		p.config.Events.Eventf(apiv1.EventTypeWarning, "SpotNodeUnrecognized", "%s", message)
	}
	loop.Lost = loop.Reclaiming
	if p.config.Lost != nil {
		loop.Lost = p.config.Lost()
	}
	loop.Disputed = p.disputed(nodes)
	p.manager.ledger.BeginLoop(loop)
	p.nodes.list.Store(&nodes)
	p.unfinished.Store(true)
	p.penalty.Observe(lostOfferings(p.store.Last()))
}

// lostOfferings returns the offerings of the spot instances that the market takes away, by instance.
func lostOfferings(last *snapshot.Snapshot) map[string]pricing.Offering {
	found := map[string]pricing.Offering{}
	for id := range last.Loop.Lost {
		if instance, listed := last.Instances[id]; listed {
			if offered := snapshot.OfferingOf(instance); offered.Spot {
				found[id] = offered
			}
		}
	}
	return found
}

// disputed returns the instances that several Nodes claim to be, and reports each once while that is so. One of those Nodes is idle, and core
// would remove the instance under the pods of the other.
func (p *Provider) disputed(nodes []*apiv1.Node) sets.Set[string] {
	last := p.store.Last()
	claims := map[string][]string{}
	for _, node := range nodes {
		if id := last.InstanceID(node); id != "" {
			claims[id] = append(claims[id], node.Name)
		}
	}
	disputed, messages := sets.New[string](), sets.New[string]()
	for id, names := range claims {
		if len(names) < 2 {
			continue
		}
		disputed.Insert(id)
		slices.Sort(names)
		messages.Insert(fmt.Sprintf("Nodes %s all say that they are instance %s, which is not given back until only one does",
			strings.Join(names, ", "), id))
	}
	for _, message := range p.reporter.Appeared("disputed", messages) {
		p.config.Events.Eventf(apiv1.EventTypeWarning, "SpotNodeDisputed", "%s", message)
	}
	return disputed
}

// finish looks after what was not finished before, by the nodes of the loop: once for each loop.
func (p *Provider) finish(ctx context.Context) {
	if p.unfinished.Swap(false) {
		p.inspectSuspects()
		p.retryRemovals(ctx, *p.nodes.list.Load())
	}
}

// inspectSuspects looks at the instances that are to be given back because a purchase for a gang came short. It keeps those with pods on their
// Nodes.
func (p *Provider) inspectSuspects() {
	if suspects := p.manager.ledger.Suspects(); suspects.Len() > 0 {
		p.manager.ledger.Inspected(suspects, p.nodes.occupied(suspects))
	}
}

// loopNodes are the nodes of core's last loop. It is safe for concurrent use.
type loopNodes struct {
	// list is nil before the first loop.
	list  atomic.Pointer[[]*apiv1.Node]
	store *snapshot.Store
	// isOccupied is Config.Occupied.
	isOccupied func(*apiv1.Node) bool
}

// occupied returns those of the instances on whose nodes pods run. Nodes that joined since the loop began are not looked at.
func (n *loopNodes) occupied(instances sets.Set[string]) sets.Set[string] {
	occupied := sets.New[string]()
	nodes := n.list.Load()
	if len(instances) == 0 || nodes == nil {
		return occupied
	}
	last := n.store.Last()
	for _, node := range *nodes {
		if id := last.InstanceID(node); instances.Has(id) && n.isOccupied(node) {
			occupied.Insert(id)
		}
	}
	return occupied
}

// retryRemovals orders removals again that the cloud accepted and did not carry out, while nobody uses the instance: its Node
// takes no pods, because whoever gave it back left it so, and has none. Core itself would come back to such a Node only after
// five minutes (MaxCloudProviderNodeDeletionTime in core/scaledown/actuation), and the instance costs money until then.
func (p *Provider) retryRemovals(ctx context.Context, nodes []*apiv1.Node) {
	due := p.manager.ledger.Removals.Due()
	if len(due) == 0 {
		return
	}
	last := p.store.Last()
	for _, node := range nodes {
		id := last.InstanceID(node)
		failed, isDue := due[id]
		if !isDue || last.Loop.Disputed.Has(id) {
			continue
		}
		if closed := node.Spec.Unschedulable || taints.HasToBeDeletedTaint(node); !closed {
			p.manager.ledger.Removals.DropRetry(id) // it is to be used, so a cordon that comes later has another reason
			continue
		}
		if p.config.Occupied(node) {
			continue
		}
		p.manager.ledger.Removals.AskedAgain(id)
		if _, err := p.manager.remover.Remove(failed.PoolID, []string{id}, failed.Reason); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot give back an instance again", "instance", id)
		}
	}
}

// GiveBack gives back the node's instance at once, though core has not found it unneeded for long enough. What is given back of one
// pool is collected. It returns after the cloud has accepted the removal, and does nothing to an instance that is being removed
// already. IsRefused tells an error that says that the instance has to stay from one of an attempt that failed. Before FirstRead, every
// node is of no pool.
func (p *Provider) GiveBack(node *apiv1.Node) error {
	id, ours := p.store.Last().GroupOf(node)
	if !ours {
		return fmt.Errorf("give back node %s (%s): %w", node.Name, node.Spec.ProviderID, ErrNoPool)
	}
	return p.groups.get(id).DeleteNodes([]*apiv1.Node{node})
}
