package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// vacateEvery is how often a node is looked at that is not empty yet, vacateTime for how long.
	vacateEvery, vacateTime = time.Second, 5 * time.Minute
)

// boughtFor returns the nodes that came since the job waits and hold nothing of anybody else.
func (s *Supervisor) boughtFor(ref jobs.Ref, counted census) (bought []*corev1.Node) {
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return nil
	}
	reclaimed := s.reclaimedNodes()
	s.mu.Lock()
	defer s.mu.Unlock()
	alone := s.alone(ref, reclaimed)
	for _, node := range nodes {
		switch own, others := s.crews.on(node.Name, ref.String()); {
		case node.CreationTimestamp.Time.Before(counted.since()) || !s.mayGo(node, ref):
		case others > 0:
		case own > 0 || alone && suits(node, counted.first):
			bought = append(bought, node)
		}
	}
	return bought
}

// mayGo is false for nodes that somebody else has plans with.
func (s *Supervisor) mayGo(node *corev1.Node, ref jobs.Ref) bool {
	job, _ := markOf(node)
	return s.releasable(node) && (!node.Spec.Unschedulable || job == ref.String())
}

// releasable goes by the mark too, which may be there before the pools know of the reclaim.
func (s *Supervisor) releasable(node *corev1.Node) bool {
	return node.Labels[api.LabelReclaiming] != "true" && s.Pools.Releasable(node)
}

// alone says whether no other job waits, is to come back, or loses nodes: an empty node may have been bought for that one.
// Needs s.mu.
func (s *Supervisor) alone(ref jobs.Ref, reclaimed []string) bool {
	for _, node := range reclaimed {
		if _, others := s.crews.on(node, ref.String()); others > 0 {
			return false
		}
	}
	for _, p := range s.probes {
		if p.reason() != string(jobs.ReasonMaxWait) {
			return false
		}
	}
	for other, known := range s.waits {
		if other != ref && known.expired.IsZero() && s.crews.census(other).first != nil {
			return false
		}
	}
	return true
}

// suits says whether the node is of the kind that the pod waits for. Only nodes with GPUs are given back empty.
func suits(node *corev1.Node, pod *corev1.Pod) bool {
	special := false
	for name, wanted := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		offered := node.Status.Allocatable[name]
		if offered.Cmp(wanted) < 0 {
			return false
		}
		special = special || strings.Contains(string(name), "/") && !wanted.IsZero()
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return special && matches && err == nil
}

// markOf is the job for which the node is to be given back, and since when; empty for other nodes.
func markOf(node *corev1.Node) (job string, since time.Time) {
	mark := node.Annotations[api.AnnotationGiveBack]
	at := strings.LastIndex(mark, "@")
	if at < 0 {
		return mark, time.Time{}
	}
	since, _ = time.Parse(time.RFC3339, mark[at+1:])
	return mark[:at], since
}

// markAll cordons the nodes, so that nobody comes who would have to leave again. The error is of those that have changed
// meanwhile, for which it is to be called again. What cannot be marked for another reason is left to scale-down.
func (s *Supervisor) markAll(ctx context.Context, ref jobs.Ref, nodes []*corev1.Node) (marked []string, changed error) {
	for _, node := range nodes {
		if _, since := markOf(node); since.IsZero() {
			mark := ref.String() + "@" + s.Clock.Now().UTC().Format(time.RFC3339)
			switch err := s.patch(ctx, node, mark, true); {
			case apierrors.IsConflict(err):
				changed = errors.Join(changed, err)
				continue
			case err != nil:
				klog.FromContext(ctx).Error(err, "The node does not go back at once", "node", node.Name)
				continue
			}
		}
		marked = append(marked, node.Name)
	}
	return marked, changed
}

func (s *Supervisor) unmarkAll(ctx context.Context, names []string) (err error) {
	for _, name := range names {
		node, getErr := s.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}) // the informer may not have the mark yet
		if getErr == nil {
			getErr = s.unmark(ctx, node, "its job cannot be suspended")
		}
		err = errors.Join(err, ignoreNotFound(getErr))
	}
	return err
}

// unmark keeps the node. A node that is being reclaimed stays cordoned.
func (s *Supervisor) unmark(ctx context.Context, node *corev1.Node, why string) error {
	if _, marked := node.Annotations[api.AnnotationGiveBack]; !marked {
		return nil
	}
	klog.FromContext(ctx).Info("The node stays", "node", node.Name, "why", why)
	return s.patch(ctx, node, nil, node.Labels[api.LabelReclaiming] == "true")
}

// patch is refused where the Node has changed since it was read: somebody else may have cordoned it.
func (s *Supervisor) patch(ctx context.Context, node *corev1.Node, mark any, cordon bool) error {
	var unschedulable any
	if cordon {
		unschedulable = true
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": map[string]any{api.AnnotationGiveBack: mark}},
		"spec":     map[string]any{"unschedulable": unschedulable},
	})
	if err != nil {
		return err
	}
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("marking node %s to be given back: %w", node.Name, err)
	}
	return nil
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// takeUpNodes goes on with what the last leader did not finish.
func (s *Supervisor) takeUpNodes() error {
	nodes, err := s.nodes.List(labels.Everything())
	for _, node := range nodes {
		if _, marked := node.Annotations[api.AnnotationGiveBack]; marked {
			s.queue.Add(task{kind: taskGiveBack, node: node.Name})
		}
	}
	return err
}

// giveBack releases a marked node once it is empty. It stays when somebody else has come, when its pods do not leave, and
// when its pool needs it.
func (s *Supervisor) giveBack(ctx context.Context, name string) (again time.Duration, err error) {
	node, err := s.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	job, since := markOf(node)
	if job == "" { // unless the informer does not have it yet
		node, err = s.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if job, since = markOf(node); job == "" || err != nil {
			return 0, ignoreNotFound(err)
		}
	}
	s.mu.Lock()
	own, others := s.crews.on(name, job)
	s.mu.Unlock()
	switch {
	case !s.releasable(node):
		return 0, nil // it is going, in one way or the other
	case others > 0:
		return 0, s.unmark(ctx, node, "others have come")
	case own > 0 && s.Clock.Since(since) > vacateTime:
		return 0, s.unmark(ctx, node, "its pods do not leave")
	case own > 0:
		return vacateEvery, nil
	}
	switch err := s.Pools.Release(node); {
	case errors.Is(err, ess.ErrBelowMinimum):
		return 0, s.unmark(ctx, node, err.Error())
	case err != nil:
		return 0, err
	}
	s.Recorder.Eventf(node, corev1.EventTypeNormal, "SpotNodeGivenBack", "Bought for %s, whose maximum wait is over", job)
	return 0, nil
}
