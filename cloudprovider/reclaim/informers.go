package reclaim

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
)

// Names of the indexes, distinct from those that others may add to the same informers.
const (
	byInstance = "gpu-spot/reclaim/instance"
	byMark     = "gpu-spot/reclaim/marked"
	byNode     = "gpu-spot/reclaim/node"
	byJob      = "gpu-spot/reclaim/job"

	marked = "true"
	// givenBack are the Nodes of instances that were given back.
	givenBack = "given back"
	// cancelled are the Nodes on which a notice was withdrawn once.
	cancelled = "cancelled"
)

func (c *Controller) addIndexes() error {
	core := c.Informers.Core().V1()
	c.nodeInformer, c.podInformer = core.Nodes().Informer(), core.Pods().Informer()
	if err := c.nodeInformer.AddIndexers(cache.Indexers{
		byInstance: func(obj any) ([]string, error) {
			if id := c.instanceID(obj.(*corev1.Node)); id != "" {
				return []string{id}, nil
			}
			return nil, nil
		},
		byMark: func(obj any) ([]string, error) {
			node := obj.(*corev1.Node)
			if c.instanceID(node) == "" {
				return nil, nil
			}
			var marks []string
			if isMarked(node) {
				marks = append(marks, marked)
			}
			if _, noted := node.Annotations[api.AnnotationRemoved]; noted {
				marks = append(marks, givenBack)
			}
			if _, noted := node.Annotations[api.AnnotationReclaimCancelled]; noted {
				marks = append(marks, cancelled)
			}
			return marks, nil
		},
	}); err != nil {
		return fmt.Errorf("indexing nodes: %w", err)
	}
	if err := c.podInformer.AddIndexers(cache.Indexers{
		byNode: func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Spec.NodeName}, nil },
		byJob:  func(obj any) ([]string, error) { return c.jobKey(obj.(*corev1.Pod)), nil },
	}); err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	return nil
}

// watch adds the handlers and waits until they have seen everything there is. They are added here, not in New, so that
// only the leader has them.
func (c *Controller) watch(ctx context.Context) (unwatch func(), err error) {
	nodes, nodesErr := c.nodeInformer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, _ bool) { c.nodeAppeared(ctx, obj.(*corev1.Node)) },
		UpdateFunc: func(old, obj any) { c.nodeChanged(ctx, old.(*corev1.Node), obj.(*corev1.Node)) },
		DeleteFunc: func(obj any) { c.nodeVanished(last[*corev1.Node](obj)) },
	})
	pods, podsErr := c.podInformer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { c.podChanged(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { c.podChanged(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) { c.podChanged(last[*corev1.Pod](obj)) },
	})
	if err := errors.Join(nodesErr, podsErr); err != nil {
		return nil, err
	}
	unwatch = func() {
		if err := errors.Join(c.nodeInformer.RemoveEventHandler(nodes), c.podInformer.RemoveEventHandler(pods)); err != nil {
			klog.FromContext(ctx).Error(err, "Removing the handlers")
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), nodes.HasSynced, pods.HasSynced) {
		unwatch()
		return nil, fmt.Errorf("the caches did not fill: %w", context.Cause(ctx))
	}
	return unwatch, nil
}

// last is the last known state of an object that was deleted.
func last[T any](obj any) T {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	object, _ := obj.(T)
	return object
}

// nodeAppeared takes up what stands on the Node, and what was heard of its instance before.
func (c *Controller) nodeAppeared(ctx context.Context, node *corev1.Node) {
	c.followAwaited(node)
	if news, _ := c.hear(ctx, c.wordsOn(node)...); news {
		return
	}
	if _, doomed := c.noticeOf(node); !doomed {
		if c.isRemoved(node) || isMarked(node) {
			c.marks.Add(node.Name)
		}
		return
	}
	if !isMarked(node) {
		c.news.Store(true)
	}
	c.markSoon(node)
}

// nodeChanged puts back a mark that somebody took off, and starts the drain once the marks have come back to the cache:
// a drain looks at nothing else. Heartbeats are none of its business.
func (c *Controller) nodeChanged(ctx context.Context, old, node *corev1.Node) {
	c.followNode(old, node)
	_, queued := c.hear(ctx, c.wordsOn(node)...)
	notice, doomed := c.noticeOf(node)
	if !doomed {
		if isMarked(node) {
			c.marks.Add(node.Name)
		}
		return
	}
	if len(markPatch(node, notice)) > 0 {
		if !queued {
			c.markSoon(node)
		}
	} else if len(markPatch(old, notice)) > 0 {
		c.drains.Add(node.Name)
	}
}

func (c *Controller) nodeVanished(node *corev1.Node) {
	if node == nil || !isMarked(node) || c.instanceID(node) == "" {
		return
	}
	notice, _ := c.noticeOf(node)
	reclaims.WithLabelValues(string(notice.Source), c.outcomeOf(node)).Inc()
	c.followNode(node, nil)
	if c.verdictOf(notice.InstanceID) == released && len(c.nodesOf(notice.InstanceID)) == 0 {
		c.forget(notice.InstanceID)
	}
}

func (c *Controller) podChanged(pod *corev1.Pod) {
	if pod == nil || pod.Spec.NodeName == "" {
		return
	}
	if node := c.node(pod.Spec.NodeName); node != nil {
		if isMarked(node) {
			c.drains.Add(node.Name)
		}
		c.followAwaited(node)
	}
	c.followPod(pod)
}

// node is nil where there is none of that name.
func (c *Controller) node(name string) *corev1.Node {
	obj, exists, err := c.nodeInformer.GetIndexer().GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// nodesOf are those of the instance in this cluster: one, none, or for a while two, where it joined under another name.
func (c *Controller) nodesOf(instanceID string) []*corev1.Node {
	return indexed[*corev1.Node](c.nodeInformer, byInstance, instanceID)
}

func (c *Controller) markedNodes() []*corev1.Node {
	return indexed[*corev1.Node](c.nodeInformer, byMark, marked)
}

func (c *Controller) podsOn(node string) []*corev1.Pod {
	return indexed[*corev1.Pod](c.podInformer, byNode, node)
}

// Occupied says whether a pod is on the Node that has not ended and is neither a DaemonSet's nor the kubelet's.
func (c *Controller) Occupied(node *corev1.Node) bool { return len(drainable(c.podsOn(node.Name))) > 0 }

func (c *Controller) podsOf(job party) []*corev1.Pod {
	return indexed[*corev1.Pod](c.podInformer, byJob, job.String())
}

// indexed cannot fail: the index exists since New.
func indexed[T any](informer cache.SharedIndexInformer, index, key string) []T {
	objects, err := informer.GetIndexer().ByIndex(index, key)
	if err != nil {
		panic(err)
	}
	found := make([]T, 0, len(objects))
	for _, object := range objects {
		found = append(found, object.(T))
	}
	return found
}

// instanceID is empty for a Node of another cloud or region and for one without a providerID.
func (c *Controller) instanceID(node *corev1.Node) string {
	region, id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil || c.Region != "" && region != c.Region {
		return ""
	}
	return id
}
