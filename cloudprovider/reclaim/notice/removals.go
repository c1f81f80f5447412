package notice

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// RemovalTime is longer than ESS may take to remove an instance that it has accepted to remove (ledger.RemovalTimeout). One
// that is still there after that was not removed.
const RemovalTime = 20 * time.Minute

// Removals has the instances that are being given back. Each of their Nodes is deleted once neither ESS nor ECS lists the
// instance, and never before. Left alone it would stay for minutes, even as a Ready one: the cloud controller looks at Nodes
// every five minutes, and deletes one only if its Ready is Unknown by then. Removals is safe for concurrent use.
//
// Source: node_controller.go of kubernetes/cloud-provider-alibaba-cloud.
type Removals struct {
	cluster *cluster.Cluster
	clock   clock.PassiveClock
	noted   chan struct{}

	mu sync.Mutex
	// accepted are those that this process noted, by instance, until the instances are known to be gone with their Nodes.
	accepted map[string]time.Time
	// pending are those that TakeNoted has not returned.
	pending sets.Set[string]
}

// NewRemovals returns the Removals that are written on the Nodes.
func NewRemovals(c *cluster.Cluster, clk clock.PassiveClock) *Removals {
	return &Removals{cluster: c, clock: clk, noted: make(chan struct{}, 1), accepted: map[string]time.Time{}, pending: sets.New[string]()}
}

// Note notes the instances that ESS has accepted to remove. It does not block. Whoever calls TakeNoted writes it on the Nodes,
// for the next leader.
func (r *Removals) Note(instanceIDs []string) {
	now := r.clock.Now().UTC().Truncate(time.Second) // as it is written on the Nodes
	r.mu.Lock()
	for _, id := range instanceIDs {
		r.accepted[id] = now
	}
	r.pending.Insert(instanceIDs...)
	r.mu.Unlock()
	select {
	case r.noted <- struct{}{}:
	default: // it is signalled already
	}
}

// Noted signals that Note was called since it was last received from.
func (r *Removals) Noted() <-chan struct{} { return r.noted }

// TakeNoted returns what was noted since it was last called.
func (r *Removals) TakeNoted() sets.Set[string] {
	r.mu.Lock()
	defer r.mu.Unlock()
	noted := r.pending
	r.pending = sets.New[string]()
	return noted
}

// AcceptedAt returns when ESS last accepted to remove the Node's instance, as this leader or a former one has noted. It is zero if that is not
// known.
func (r *Removals) AcceptedAt(node *corev1.Node) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Later(r.accepted[r.cluster.InstanceID(node)], cluster.TimeOf(node, api.AnnotationRemoved))
}

// Unwritten returns the Nodes on which it is not written yet that ESS has accepted to remove their instances, or when it last did.
func (r *Removals) Unwritten() (nodes []*corev1.Node) {
	r.mu.Lock()
	accepted := maps.Clone(r.accepted)
	r.mu.Unlock()
	for id, at := range accepted {
		for _, node := range r.cluster.NodesOf(id) {
			if cluster.TimeOf(node, api.AnnotationRemoved).Before(at) {
				nodes = append(nodes, node)
			}
		}
	}
	return nodes
}

// IsUnderWay returns whether the Node's instance is being given back: ESS has accepted to remove it, and may still do so. An instance that was
// not removed in time counts as one that nobody has given back.
func (r *Removals) IsUnderWay(node *corev1.Node) bool {
	return r.clock.Since(r.AcceptedAt(node)) < RemovalTime
}

// Has returns whether ESS has ever accepted to remove the Node's instance, as this leader or a former one has noted. When the instance is gone,
// its Node goes too.
func (r *Removals) Has(node *corev1.Node) bool {
	if _, noted := node.Annotations[api.AnnotationRemoved]; noted {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, noted := r.accepted[r.cluster.InstanceID(node)]
	return noted
}

// All returns the instances that ESS has ever accepted to remove, of which the instance or its Node may still exist. The set is the caller's.
func (r *Removals) All() sets.Set[string] {
	r.mu.Lock()
	ids := sets.KeySet(r.accepted)
	r.mu.Unlock()
	for _, node := range r.cluster.RemovedNodes() {
		ids.Insert(r.cluster.InstanceID(node))
	}
	return ids
}

// Forget forgets an instance that is gone.
func (r *Removals) Forget(instanceID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.accepted, instanceID)
}
