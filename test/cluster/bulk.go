package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
)

const (
	bulkClients = 4  // connections, since requests on one share its flow control
	bulkWorkers = 64 // requests under way
)

// CreateNodes creates many Nodes quickly, their status included. It stops at the first error.
func (c *Cluster) CreateNodes(ctx context.Context, nodes []*corev1.Node) error {
	return forAll(ctx, c, nodes, func(ctx context.Context, client kubernetes.Interface, node *corev1.Node) error {
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
}

// CreatePods creates many pods quickly, in their namespaces, default if they name none. Pods that name their Node pass by
// the scheduler. It stops at the first error.
func (c *Cluster) CreatePods(ctx context.Context, pods []*corev1.Pod) error {
	return forAll(ctx, c, pods, func(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod) error {
		namespace := pod.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		_, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

func forAll[T any](ctx context.Context, c *Cluster, objects []T, do func(context.Context, kubernetes.Interface, T) error) error {
	clients, err := newBulkClients(c)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(bulkWorkers)
	for i, object := range objects {
		if groupCtx.Err() != nil {
			break
		}
		group.Go(func() error { return do(groupCtx, clients[i%len(clients)], object) })
	}
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return fmt.Errorf("cluster: bulk requests: %w", err)
	}
	return nil
}

// newBulkClients returns clients that do not share a connection.
func newBulkClients(c *Cluster) ([]kubernetes.Interface, error) {
	clients := make([]kubernetes.Interface, bulkClients)
	for i := range clients {
		config := c.AdminConfig()
		config.ContentType = runtime.ContentTypeProtobuf
		config.AcceptContentTypes = runtime.ContentTypeProtobuf
		config.Dial = new(net.Dialer).DialContext // a dialer of its own keeps client-go from sharing the connection
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		clients[i] = client
	}
	return clients, nil
}
