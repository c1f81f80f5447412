// Package nodepatch changes labels, annotations, taints and the cordon of Nodes.
package nodepatch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Apply applies change to a copy of the Node, and patches the Node with the difference. It starts from the cached Node, and if
// that was overtaken, from the live one. It returns whether there was a difference. A Node that is gone needs no change.
//
// The copy has only labels, annotations, taints and unschedulable: nothing else may be changed. The patch fails with a conflict,
// and is made again, if the Node was changed since: it replaces the list of taints as a whole, so a taint that somebody else has
// added would be lost.
func Apply(ctx context.Context, client kubernetes.Interface, node *corev1.Node, change func(*corev1.Node)) (changed bool, err error) {
	name, uid := node.Name, node.UID
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		body, err := difference(node, change)
		if body == nil || err != nil {
			return err
		}
		_, err = client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			if node, err = live(ctx, client, name, uid); err == nil {
				err = apierrors.NewConflict(corev1.Resource("nodes"), name, nil)
			}
			return err
		}
		changed = err == nil
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("patch node %s: %w", name, err)
	}
	return changed, nil
}

// Timeout bounds one attempt to patch a Node, so that a connection that hangs does not hold up other Nodes.
const Timeout = 5 * time.Second

// Changes returns whether the change would change anything of the Node.
func Changes(node *corev1.Node, change func(*corev1.Node)) bool {
	before, after := changeable(node), changeable(node)
	change(after)
	return !equality.Semantic.DeepEqual(before, after)
}

// live returns the Node as it is now, and a NotFound error if another Node has the name.
func live(ctx context.Context, client kubernetes.Interface, name string, uid types.UID) (*corev1.Node, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err == nil && node.UID != uid {
		err = apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}
	return node, err
}

// difference returns the patch that makes the change, nil if it changes nothing.
func difference(node *corev1.Node, change func(*corev1.Node)) ([]byte, error) {
	before, after := changeable(node), changeable(node)
	change(after)
	if equality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	after.ResourceVersion = node.ResourceVersion
	from, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("marshal: %w", err)
	}
	return strategicpatch.CreateTwoWayMergePatch(from, to, corev1.Node{})
}

// changeable returns a copy of the part of the Node that Apply may change. The maps are not nil.
func changeable(node *corev1.Node) *corev1.Node {
	copied := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(node.Labels), Annotations: maps.Clone(node.Annotations)},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(node.Spec.Taints), Unschedulable: node.Spec.Unschedulable},
	}
	if copied.Labels == nil {
		copied.Labels = map[string]string{}
	}
	if copied.Annotations == nil {
		copied.Annotations = map[string]string{}
	}
	return copied
}
