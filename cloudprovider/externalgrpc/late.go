package externalgrpc

import (
	"context"
	"slices"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// untaintTimeout bounds the requests by which a node is opened, and untaintRetry is how often they are repeated.
	untaintTimeout, untaintRetry = 10 * time.Second, 5 * time.Second
	// lastUntaints is how long that may take when the process ends, which is less than Kubernetes gives a pod, and lastWords how long a request
	// may take to notice that it is over.
	lastUntaints, lastWords = 10 * time.Second, time.Second
)

// lateRemovals are removals that the client takes for done, and that were not when it was told so. It is safe for concurrent use.
type lateRemovals struct {
	provider Provider
	client   kubernetes.Interface
	// over ends what is done for them.
	over   context.Context
	giveUp context.CancelFunc

	mu sync.Mutex
	// ended is true once finish waits for those that are awaited, to which no others may be added then.
	ended   bool
	awaited sync.WaitGroup
}

func newLateRemovals(provider Provider, client kubernetes.Interface) *lateRemovals {
	over, giveUp := context.WithCancel(context.Background())
	return &lateRemovals{provider: provider, client: client, over: over, giveUp: giveUp}
}

// begin awaits a removal beside the call whose context that is.
func (l *lateRemovals) begin(ctx context.Context, nodes []*apiv1.Node, removed <-chan error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	run := func() {
		defer cancel()
		defer context.AfterFunc(l.over, cancel)()
		l.await(ctx, nodes, removed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		go run()
		return
	}
	l.awaited.Go(run)
}

// finish waits until all is done, but not for longer than lastUntaints.
func (l *lateRemovals) finish() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	defer time.AfterFunc(lastUntaints, l.giveUp).Stop()
	done := make(chan struct{})
	go func() { l.awaited.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lastUntaints + lastWords):
	}
}

// await waits for the end of a removal that the client takes for done, and takes the client's taint off the nodes that are not given back
// and that serve again. As long as a node has that taint, the client counts its instance in the target but not the node: it would take it for a node
// that is to come, and buy nothing for the pods that fit it. A cordon (--cordon-node-before-terminating) stays: nobody knows whose it is.
//
// The client does not take the taint off: it does so when it starts, and otherwise considers the node for deletion again after minutes, but not
// if its node group is at its minimum.
// Source: hasCloudProviderInstance and GetUpcomingNodes in clusterstate/clusterstate.go, cleanUpIfRequired in core/static_autoscaler.go.
func (l *lateRemovals) await(ctx context.Context, nodes []*apiv1.Node, removed <-chan error) {
	select {
	case err := <-removed:
		if err == nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Nodes were not given back after the client was told so")
	case <-ctx.Done():
		return
	}
	closed := slices.Clone(nodes)
	err := wait.PollUntilContextCancel(ctx, untaintRetry, true, func(ctx context.Context) (bool, error) {
		closed = slices.DeleteFunc(closed, func(node *apiv1.Node) bool { return !l.provider.Serves(node) || l.untaint(ctx, node.Name) })
		return len(closed) == 0, nil
	})
	for _, node := range closed {
		klog.FromContext(ctx).Error(err, "A node that was not given back keeps the client's taint, by which no pod is placed on it; take that off", "node", node.Name)
	}
}

// untaint takes the taint off by which the client keeps pods off a node that it deletes, and returns whether it is off.
func (l *lateRemovals) untaint(ctx context.Context, name string) bool {
	bounded, cancel := context.WithTimeout(ctx, untaintTimeout)
	defer cancel()
	node, err := l.client.CoreV1().Nodes().Get(bounded, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true
	}
	if err == nil {
		_, err = taints.CleanToBeDeleted(node, l.client, false)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot take the taint off a node that was not given back yet, will try again", "node", name, "after", untaintRetry)
	}
	return err == nil
}
