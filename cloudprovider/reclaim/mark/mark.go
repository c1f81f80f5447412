// Package mark brings Nodes in line with the notices: it puts the marks on, takes them off when a notice is withdrawn, and
// deletes the Nodes of instances that are gone.
//
// The marks are a taint, a cordon, a label and annotations, all in one patch. They are what the next leader starts from.
package mark

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/nodepatch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// Config is what a Marker is made of. Everything is required.
type Config struct {
	Cluster  *cluster.Cluster
	Notices  *notice.Store
	Removals *notice.Removals
	Drills   Drills
	Moves    Moves
	Backlog  *Backlog
	// Client patches Nodes. It should have a rate limit of its own, so that the marks of a mass reclaim do not wait behind evictions.
	Client kubernetes.Interface
	// Deleter deletes Nodes, and what is left of their pods: so many at once as Deletions allows.
	Deleter   kubernetes.Interface
	Deletions *work.Requests
	Events    *events.Recorder
	Clock     clock.PassiveClock
}

// Marker has no state of its own, and is safe for concurrent use.
type Marker struct{ config Config }

// New returns a Marker.
func New(config Config) *Marker { return &Marker{config: config} }

// Sync brings the Node in line with what is known of its instance. It returns true if the Node is to be drained and had all its
// marks: then no informer event will start the drain.
func (m *Marker) Sync(ctx context.Context, name string) (drain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, nodepatch.Timeout)
	defer cancel()
	node := m.config.Cluster.Node(name)
	if node == nil {
		m.config.Backlog.Done(name)
		return false, nil
	}
	n, reclaiming := m.config.Notices.Of(node)
	if !reclaiming && cluster.IsOnDemand(node) && cluster.IsMarked(node) {
		return false, m.unmarkOnDemand(ctx, node)
	}
	if !reclaiming {
		m.config.Backlog.Done(name)
		return false, m.syncOther(ctx, node)
	}
	switch m.config.Notices.Verdicts.On(n.InstanceID) {
	case notice.Released:
		m.config.Backlog.Done(name)
		return false, m.deleteReleased(ctx, node, n)
	case notice.Withdrawn:
		return false, m.unmark(ctx, node, n)
	}
	if n.IsDrill() {
		if outcome, over := m.config.Drills.Over(node, n); over {
			return false, m.endDrill(ctx, node, n, outcome)
		}
	}
	if n.IsMove() {
		if outcome, over := m.config.Moves.Over(node, n); over {
			return false, m.endMove(ctx, node, n, outcome)
		}
	}
	changed, err := m.mark(ctx, node, n)
	if err != nil {
		return false, err
	}
	m.config.Backlog.Done(name)
	if m.config.Removals.Has(node) { // its instance was given back
		err = m.noteRemoved(ctx, node)
	}
	return !changed, err
}

// syncOther is for a Node without a notice.
func (m *Marker) syncOther(ctx context.Context, node *corev1.Node) error {
	if cluster.IsOnDemand(node) {
		m.config.Notices.Withdraw(m.config.Cluster.InstanceID(node)) // it is from before the Node had its label
	}
	if why := m.config.Drills.Refusal(node); why != nil {
		return m.refuseDrill(ctx, node, why)
	}
	if notice.HasExpiredPush(node, m.config.Clock) {
		if _, err := nodepatch.Apply(ctx, m.config.Client, node, func(node *corev1.Node) {
			delete(node.Annotations, api.AnnotationNoticePush)
			delete(node.Annotations, api.AnnotationNoticePushReceived)
		}); err != nil {
			return err
		}
	}
	return m.syncRemoved(ctx, node)
}

// mark completes the marks. It writes an Event and observes the latency once at most, for the first mark, and not if somebody took
// a mark off.
func (m *Marker) mark(ctx context.Context, node *corev1.Node, n notice.Notice) (changed bool, err error) {
	var first bool
	changed, err = nodepatch.Apply(ctx, m.config.Client, node, func(node *corev1.Node) {
		first = !cluster.IsMarked(node) || hasYielded(node, n)
		apply(node, n)
	})
	if err != nil || !changed || !first {
		return changed, err
	}
	for source, at := range m.config.Notices.Announced(n) {
		if n.IsDrill() {
			break // it began by the clock of the operator
		}
		noticeToMark.WithLabelValues(string(source)).Observe(m.config.Clock.Since(at).Seconds())
	}
	klog.FromContext(ctx).Info("Marked", "node", klog.KObj(node), "instance", n.InstanceID, "deadline", n.Deadline)
	m.config.Backlog.Afterwards(func() { // an Event is a request, and the next mark would wait for it
		what, next := noticeEvent(n)
		m.config.Events.Eventf(node, events.ReasonNotice, what, n.InstanceID, events.FormatTime(n.Deadline), n.Source, next)
	})
	return true, nil
}

// unmark takes the marks off the Node of an instance that lives on.
func (m *Marker) unmark(ctx context.Context, node *corev1.Node, n notice.Notice) error {
	changed, err := nodepatch.Apply(ctx, m.config.Client, node, func(node *corev1.Node) { Remove(node, m.config.Clock.Now()) })
	if err != nil {
		return err
	}
	m.config.Backlog.Done(node.Name)
	if cluster.IsMarked(node) {
		m.config.Notices.Withdraw(n.InstanceID)
	} else { // it was never marked, so that the informer will not show the end of the marks
		m.config.Notices.Forget(n.InstanceID)
	}
	if changed {
		CountOutcome(n.Source, OutcomeCancelled)
		klog.FromContext(ctx).Info("Took the marks off", "node", klog.KObj(node), "instance", n.InstanceID)
		m.config.Events.Eventf(node, events.ReasonCancelled, "The notice for instance %s was withdrawn (%s); the node is restored", n.InstanceID, n.Source)
	}
	return nil
}

// unmarkOnDemand takes the marks off an on-demand Node, whose label came after them, or which somebody marked by hand.
func (m *Marker) unmarkOnDemand(ctx context.Context, node *corev1.Node) error {
	id := m.config.Cluster.InstanceID(node)
	n, ok := notice.FromMarks(node, id)
	if !ok {
		n = notice.Notice{InstanceID: id, Source: notice.SourceUnknown}
	}
	return m.unmark(ctx, node, n)
}

// deleteReleased deletes the Node of an instance that was released.
func (m *Marker) deleteReleased(ctx context.Context, node *corev1.Node, n notice.Notice) error {
	deleted, err := m.delete(ctx, node)
	if deleted {
		klog.FromContext(ctx).Info("Deleted the node of a released instance", "node", klog.KObj(node), "instance", n.InstanceID)
		m.config.Events.Eventf(node, events.ReasonReleased, "Instance %s was released (%s); the node is removed", n.InstanceID, n.Source)
	}
	return err
}

// syncRemoved notes on the Node that its instance is being given back, and deletes the Node once the instance is gone.
func (m *Marker) syncRemoved(ctx context.Context, node *corev1.Node) error {
	if !m.config.Removals.Has(node) {
		return nil
	}
	id := m.config.Cluster.InstanceID(node)
	if m.config.Notices.Verdicts.On(id) != notice.Released {
		return m.noteRemoved(ctx, node)
	}
	deleted, err := m.delete(ctx, node)
	if deleted {
		removedNodes.Inc()
		klog.FromContext(ctx).Info("Deleted the node of an instance that was given back", "node", klog.KObj(node), "instance", id)
		m.config.Events.Eventf(node, events.ReasonRemoved, "Instance %s was given back and is gone; the node is removed", id)
	}
	return err
}

// noteRemoved notes on the Node when ESS last accepted to remove its instance, for the next leader.
func (m *Marker) noteRemoved(ctx context.Context, node *corev1.Node) error {
	at := m.config.Removals.AcceptedAt(node)
	_, err := nodepatch.Apply(ctx, m.config.Client, node, func(node *corev1.Node) {
		if cluster.TimeOf(node, api.AnnotationRemoved).Before(at) {
			node.Annotations[api.AnnotationRemoved] = at.Format(time.RFC3339)
		}
	})
	return err
}

// delete deletes the Node of an instance that is gone, and what is left of its pods. The cloud controller does so too; it does
// not matter which is first. Pods that cannot be deleted do not keep the Node.
func (m *Marker) delete(ctx context.Context, node *corev1.Node) (deleted bool, err error) {
	podsCtx, cancel := context.WithTimeout(ctx, nodepatch.Timeout/2)
	m.deletePods(podsCtx, node)
	cancel()
	err = m.config.Deleter.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &node.UID},
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete node %s: %w", node.Name, err)
	}
	return true, nil
}

// deletePods deletes what is left of the pods of an instance that is gone. Nothing of them runs any more, and whoever creates
// them again, perhaps under the same names, need not wait for the garbage collector.
func (m *Marker) deletePods(ctx context.Context, node *corev1.Node) {
	pods := cluster.Drainable(m.config.Cluster.PodsOn(node.Name))
	err := m.config.Deletions.ForEach(ctx, pods, func(ctx context.Context, pod *corev1.Pod) error {
		options := metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}}
		err := m.config.Deleter.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("delete pod %s: %w", klog.KObj(pod), err)
		}
		return nil
	})
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		klog.FromContext(ctx).Error(err, "Could not delete the pods of a released instance; they are left to the garbage collector", "node", klog.KObj(node))
	}
}
