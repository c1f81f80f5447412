// Package cluster has the Nodes and pods that a reclaim is about: indexes over the informers that the rest of the process uses,
// and what can be said of a Node or pod from the object alone.
//
// Everything here is read from the informers' caches. Nothing is remembered and nothing is written.
package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	policyinformers "k8s.io/client-go/informers/policy/v1"
	"k8s.io/client-go/tools/cache"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
)

// Names of the indexes, distinct from those that others may add to the same informers.
const (
	byInstance = "gpu-spot/reclaim/instance"
	byState    = "gpu-spot/reclaim/state"
)

// Keys of the index byState. A Node may have several.
const (
	stateSpot      = "spot"
	stateMarked    = "marked"
	stateRemoved   = "removed"
	stateCancelled = "cancelled"
)

// Cluster is safe for concurrent use.
type Cluster struct {
	region      string
	jobs        podindex.Jobs
	index       *podindex.Index
	nodes, pods cache.SharedIndexInformer
	pdbs        policyinformers.PodDisruptionBudgetInformer
}

// New adds the indexes of Nodes to their informer, which must not have been started. The index of pods is of the same factory. Nodes of
// other regions than the given one are left out; an empty region stands for all. The error says that the indexes could not be added.
func New(factory informers.SharedInformerFactory, index *podindex.Index, region string, jobs podindex.Jobs) (*Cluster, error) {
	core := factory.Core().V1()
	c := &Cluster{region: region, jobs: jobs, index: index, nodes: core.Nodes().Informer(), pods: core.Pods().Informer(),
		pdbs: factory.Policy().V1().PodDisruptionBudgets()}
	c.pdbs.Informer() // has the factory start it
	if err := c.nodes.AddIndexers(cache.Indexers{
		byInstance: func(obj any) ([]string, error) {
			if id := c.InstanceID(obj.(*corev1.Node)); id != "" {
				return []string{id}, nil
			}
			return nil, nil
		},
		byState: func(obj any) ([]string, error) { return c.statesOf(obj.(*corev1.Node)), nil },
	}); err != nil {
		return nil, fmt.Errorf("index nodes: %w", err)
	}
	return c, nil
}

func (c *Cluster) statesOf(node *corev1.Node) (states []string) {
	if c.InstanceID(node) == "" {
		return nil
	}
	if !IsOnDemand(node) {
		states = append(states, stateSpot)
	}
	if IsMarked(node) {
		states = append(states, stateMarked)
	}
	if _, noted := node.Annotations[api.AnnotationRemoved]; noted {
		states = append(states, stateRemoved)
	}
	if _, noted := node.Annotations[api.AnnotationReclaimCancelled]; noted {
		states = append(states, stateCancelled)
	}
	return states
}

// InstanceID returns the id of the Node's instance. It is empty for a Node of another cloud or region and for one without a
// providerID.
func (c *Cluster) InstanceID(node *corev1.Node) string {
	region, id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil || c.region != "" && region != c.region {
		return ""
	}
	return id
}

// Node returns the Node of that name, nil if there is none.
func (c *Cluster) Node(name string) *corev1.Node {
	obj, exists, err := c.nodes.GetIndexer().GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// Nodes returns all Nodes of the cluster, those of other clouds too.
func (c *Cluster) Nodes() []*corev1.Node { return nodesOf(c.nodes.GetStore().List()) }

// NodesOf returns the Nodes of the instance: one, none, or for a while two, if it joined again under another name.
func (c *Cluster) NodesOf(instanceID string) []*corev1.Node {
	return c.nodesBy(byInstance, instanceID)
}

// SpotNodes returns the Nodes of spot instances, and of instances that may be.
func (c *Cluster) SpotNodes() []*corev1.Node {
	return c.nodesBy(byState, stateSpot)
}

// MarkedNodes returns the Nodes that carry marks.
func (c *Cluster) MarkedNodes() []*corev1.Node {
	return c.nodesBy(byState, stateMarked)
}

// RemovedNodes returns the Nodes on which it is noted that their instance is being given back.
func (c *Cluster) RemovedNodes() []*corev1.Node {
	return c.nodesBy(byState, stateRemoved)
}

// CancelledNodes returns the Nodes on which a notice was withdrawn once.
func (c *Cluster) CancelledNodes() []*corev1.Node {
	return c.nodesBy(byState, stateCancelled)
}

// PodsOn returns the pods on the Node of that name.
func (c *Cluster) PodsOn(node string) []*corev1.Pod { return c.index.OnNode(node) }

// PodsOf returns the pods of the party.
func (c *Cluster) PodsOf(p Party) []*corev1.Pod {
	if p.Unit == "" {
		return c.index.OfJob(p.Ref)
	}
	return c.index.OfUnit(p.Ref, p.Unit)
}

// Occupied returns whether a pod is on the Node that a drain would evict.
func (c *Cluster) Occupied(node *corev1.Node) bool { return len(Drainable(c.PodsOn(node.Name))) > 0 }

// nodesBy panics if the index does not exist, but New has added both.
func (c *Cluster) nodesBy(index, key string) []*corev1.Node {
	objects, err := c.nodes.GetIndexer().ByIndex(index, key)
	if err != nil {
		panic(err)
	}
	return nodesOf(objects)
}

func nodesOf(objects []any) []*corev1.Node {
	nodes := make([]*corev1.Node, 0, len(objects))
	for _, object := range objects {
		nodes = append(nodes, object.(*corev1.Node))
	}
	return nodes
}
