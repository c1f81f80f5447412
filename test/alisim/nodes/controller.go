package nodes

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Controller deletes Nodes as ACK's cloud-controller-manager does: it looks at all of them at once, and deletes a Node
// only if its instance is absent and its Ready is Unknown.
// Source: kubernetes/cloud-provider-alibaba-cloud, node_controller.go.
type Controller struct {
	// Period is from look to look. Alibaba's is five minutes.
	Period time.Duration
	// Grace is from the silence of a machine until its Node's Ready is Unknown.
	Grace time.Duration
}

// silence ends the heartbeat and sees to what follows from it.
func (r *Registrar) silence(ctx context.Context, node *corev1.Node) error {
	err := r.patch(ctx, node.Name, map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{KwokAnnotation: nil}},
	})
	if err != nil {
		return err
	}
	if r.Controller != nil {
		r.after(ctx, r.Controller.Grace, "node was not found silent", node.Name, func() error { return r.notice(ctx, node.Name) })
		r.await(ctx, node)
		return nil
	}
	if err := r.notice(ctx, node.Name); err != nil {
		return err
	}
	r.after(ctx, r.DeleteDelay, "node was not deleted", node.Name, func() error { return r.delete(ctx, node) })
	return nil
}

// await has the controller look at the node of an absent instance until it is gone.
func (r *Registrar) await(ctx context.Context, node *corev1.Node) {
	period := r.Controller.Period
	wait := period - r.clock.Since(r.began)%period
	r.after(ctx, wait, "node was not deleted", node.Name, func() error {
		found, err := r.client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && found.UID != node.UID:
			return nil
		case err != nil || !readyIsUnknown(found):
			r.await(ctx, node)
			return err
		}
		return r.delete(ctx, node)
	})
}

func readyIsUnknown(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// notice leaves the node as the node lifecycle controller marks one whose kubelet fell silent; that controller adds the
// taints.
func (r *Registrar) notice(ctx context.Context, name string) error {
	return r.patch(ctx, name, map[string]any{
		"status": map[string]any{"conditions": []corev1.NodeCondition{{
			Type:               corev1.NodeReady,
			Status:             corev1.ConditionUnknown,
			Reason:             "NodeStatusUnknown",
			Message:            "Kubelet stopped posting node status.",
			LastTransitionTime: metav1.NewTime(r.clock.Now()),
		}}},
	}, "status")
}
