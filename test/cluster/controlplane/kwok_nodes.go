package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
)

// A Node whose annotation nodeAnnotation is nodeFake is played by kwok.
const (
	nodeAnnotation = "kwok.x-k8s.io/node"
	nodeFake       = "fake"
)

func fake(node *corev1.Node) bool { return node.Annotations[nodeAnnotation] == nodeFake }

// selection answers which Nodes are ours at this moment.
type selection struct{ corev1listers.NodeLister }

// alive fails for a Node that is gone or no longer ours. Stages call it before they change a pod, because kwok carries
// out what it has scheduled for a pod even if the pod's Node died in the meantime. It adds nothing to the template.
func (s selection) alive(name string) (string, error) {
	node, err := s.Get(name)
	if err != nil {
		return "", err
	}
	if !fake(node) {
		return "", fmt.Errorf("node %s is silent", name)
	}
	return "", nil
}

// fakeNodesOnly is a client that sees only the Nodes that are ours. kwok can select by annotation too, but never lets
// go of a Node whose annotation is removed. Here such a Node is deleted as far as kwok can see, as it would be with a
// label selector, which the API server evaluates in the same way.
type fakeNodesOnly struct{ kubernetes.Interface }

func (c fakeNodesOnly) CoreV1() corev1client.CoreV1Interface {
	return fakeNodesOnlyCore{c.Interface.CoreV1()}
}

type fakeNodesOnlyCore struct{ corev1client.CoreV1Interface }

func (c fakeNodesOnlyCore) Nodes() corev1client.NodeInterface {
	return fakeNodes{c.CoreV1Interface.Nodes()}
}

type fakeNodes struct{ corev1client.NodeInterface }

func (c fakeNodes) List(ctx context.Context, options metav1.ListOptions) (*corev1.NodeList, error) {
	list, err := c.NodeInterface.List(ctx, options)
	if err != nil {
		return nil, err
	}
	ours := list.Items[:0]
	for i := range list.Items {
		if fake(&list.Items[i]) {
			ours = append(ours, list.Items[i])
		}
	}
	list.Items = ours
	return list, nil
}

func (c fakeNodes) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := c.NodeInterface.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, selectEvent), nil
}

// selectEvent passes on events of our Nodes, and turns a change after which a Node is not ours into its deletion.
func selectEvent(event watch.Event) (watch.Event, bool) {
	node, ok := event.Object.(*corev1.Node)
	if !ok || event.Type == watch.Bookmark || fake(node) {
		return event, true
	}
	if event.Type != watch.Modified {
		return event, false
	}
	last := node.DeepCopy() // kwok selects once more, also among deletions: show it the Node as it was
	metav1.SetMetaDataAnnotation(&last.ObjectMeta, nodeAnnotation, nodeFake)
	return watch.Event{Type: watch.Deleted, Object: last}, true
}
