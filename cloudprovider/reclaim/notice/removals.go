package notice

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// Removals has the instances that are being given back. Each of their Nodes is deleted once neither ESS nor ECS lists the
// instance, and never before. Left alone it would stay for minutes, even as a Ready one: the cloud controller looks at Nodes
// every five minutes, and deletes one only if its Ready is Unknown by then. Removals is safe for concurrent use.
//
// Source: node_controller.go of kubernetes/cloud-provider-alibaba-cloud.
type Removals struct {
	cluster *cluster.Cluster
	noted   chan struct{}

	mu sync.Mutex
	// ids are those that this process noted, until the instances are known to be gone with their Nodes. pending are those that
	// TakeNoted has not returned.
	ids, pending sets.Set[string]
}

// NewRemovals returns the Removals that are written on the Nodes.
func NewRemovals(c *cluster.Cluster) *Removals {
	return &Removals{cluster: c, noted: make(chan struct{}, 1), ids: sets.New[string](), pending: sets.New[string]()}
}

// Note notes the instances that ESS has accepted to remove. It does not block. Whoever calls TakeNoted writes it on the Nodes,
// for the next leader.
func (r *Removals) Note(instanceIDs []string) {
	r.mu.Lock()
	r.ids.Insert(instanceIDs...)
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

// Has returns whether the Node's instance is being given back, by this leader or a former one.
func (r *Removals) Has(node *corev1.Node) bool {
	if _, noted := node.Annotations[api.AnnotationRemoved]; noted {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ids.Has(r.cluster.InstanceID(node))
}

// All returns the instances that are being given back, of which the instance or its Node may still exist. The set is the caller's.
func (r *Removals) All() sets.Set[string] {
	r.mu.Lock()
	ids := r.ids.Clone()
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
	r.ids.Delete(instanceID)
}
