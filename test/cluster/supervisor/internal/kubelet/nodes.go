package kubelet

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// A Node whose annotation nodeAnnotation is nodeFake is played by kwok.
const (
	nodeAnnotation = "kwok.x-k8s.io/node"
	nodeFake       = "fake"
)

func fake(node *corev1.Node) bool { return node.Annotations[nodeAnnotation] == nodeFake }

// selection is the set of Nodes that are ours, as kwok last heard of them.
type selection struct {
	mu    sync.Mutex
	names sets.Set[string]
}

func newSelection() *selection { return &selection{names: sets.New[string]()} }

// alive fails for a Node that is gone or no longer ours. Stages call it before they change a pod, because kwok carries
// out what it has scheduled for a pod even if the pod's Node died in the meantime. It adds nothing to the template.
func (s *selection) alive(name string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.names.Has(name) {
		return "", fmt.Errorf("node %s is gone or silent", name)
	}
	return "", nil
}

// replace takes over a list, and narrows the list to the Nodes that are ours.
func (s *selection) replace(list *corev1.NodeList, complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if complete {
		s.names.Delete(s.names.UnsortedList()...)
	}
	list.Items = slices.DeleteFunc(list.Items, func(node corev1.Node) bool { return !fake(&node) })
	for i := range list.Items {
		s.names.Insert(list.Items[i].Name)
	}
}

// follow takes over an event and passes it on if it is about one of our Nodes. A change after which a Node is no longer
// ours becomes its deletion.
func (s *selection) follow(event watch.Event) (watch.Event, bool) {
	node, ok := event.Object.(*corev1.Node)
	if !ok || event.Type == watch.Bookmark {
		return event, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.names.Has(node.Name)
	if fake(node) && event.Type != watch.Deleted {
		s.names.Insert(node.Name)
		return event, true
	}
	s.names.Delete(node.Name)
	last := node.DeepCopy() // kwok selects once more, also among deletions: show it the Node as it was
	metav1.SetMetaDataAnnotation(&last.ObjectMeta, nodeAnnotation, nodeFake)
	return watch.Event{Type: watch.Deleted, Object: last}, known
}

// fakeNodesOnly is a client that sees only the Nodes that are ours. kwok can select by annotation too, but never lets
// go of a Node whose annotation is removed. Here such a Node is deleted as far as kwok can see, as it would be with a
// label selector, which the API server evaluates in the same way.
type fakeNodesOnly struct {
	kubernetes.Interface
	nodes *selection
}

func (c fakeNodesOnly) CoreV1() corev1client.CoreV1Interface {
	return fakeNodesOnlyCore{c.Interface.CoreV1(), c.nodes}
}

type fakeNodesOnlyCore struct {
	corev1client.CoreV1Interface
	nodes *selection
}

func (c fakeNodesOnlyCore) Nodes() corev1client.NodeInterface {
	return fakeNodes{c.CoreV1Interface.Nodes(), c.nodes}
}

type fakeNodes struct {
	corev1client.NodeInterface
	nodes *selection
}

func (c fakeNodes) List(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
	list, err := c.NodeInterface.List(ctx, options)
	if err != nil {
		return nil, err
	}
	c.nodes.replace(list, options.Continue == "" && list.Continue == "")
	return list, nil
}

func (c fakeNodes) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := c.NodeInterface.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, c.nodes.follow), nil
}
