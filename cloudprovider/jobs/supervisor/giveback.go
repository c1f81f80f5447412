package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// vacateEvery is how often a node is looked at that is not empty yet, vacateTime for how long.
	vacateEvery, vacateTime = time.Second, 5 * time.Minute
	// goneTime is how long after the decision a node stays cordoned that is of no pool. Its instance may be gone, because somebody has deleted
	// it, or a former leader has given it back: the Node of such an instance may be Ready for a minute, and there for some more.
	goneTime = 2 * vacateTime
)

// giveBack gives back nodes that were bought for a job that does not run. It keeps no state of its own: which nodes go back is
// written on the Nodes.
type giveBack struct {
	pods     podCounter
	nodes    corelisters.NodeLister
	pools    Pools
	client   kubernetes.Interface
	recorder record.EventRecorder
	clock    clock.PassiveClock
	queue    work.Queue[string]
}

// reclaimingNodes returns the names of the Nodes that are being reclaimed.
func reclaimingNodes(nodes corelisters.NodeLister) []string {
	var names []string
	list, _ := nodes.List(labels.Everything())
	for _, node := range list {
		if api.IsReclaiming(node.Labels) {
			names = append(names, node.Name)
		}
	}
	return names
}

// hasReclaimingNodeOfOthers returns whether pods of others than the job are on nodes that are being reclaimed.
func (g *giveBack) hasReclaimingNodeOfOthers(ref jobs.Ref) bool {
	for _, node := range reclaimingNodes(g.nodes) {
		if _, others := g.pods.onNode(node, ref.String()); others > 0 {
			return true
		}
	}
	return false
}

// boughtFor returns the nodes that came since the pod waits and hold pods of its job and of nobody else; and, where withEmpty is
// set, empty ones that suit the pod.
func (g *giveBack) boughtFor(ref jobs.Ref, pod *corev1.Pod, withEmpty bool) (bought []*corev1.Node) {
	nodes, err := g.nodes.List(labels.Everything())
	if err != nil {
		return nil
	}
	for _, node := range nodes {
		switch own, others := g.pods.onNode(node.Name, ref.String()); {
		case node.CreationTimestamp.Time.Before(pod.CreationTimestamp.Time) || !g.mayGo(node, ref):
		case others > 0:
		case own > 0 || withEmpty && suits(node, pod):
			bought = append(bought, node)
		}
	}
	return bought
}

// mayGo is false for nodes that somebody else has cordoned, and those that are going already.
func (g *giveBack) mayGo(node *corev1.Node, ref jobs.Ref) bool {
	job, _ := jobOf(node)
	return g.mayGiveBack(node) && (!node.Spec.Unschedulable || job == ref.String())
}

// mayGiveBack goes by the Node's label too, which may be there before the pools know of the reclaim.
func (g *giveBack) mayGiveBack(node *corev1.Node) bool {
	return !api.IsReclaiming(node.Labels) && g.pools.MayGiveBack(node)
}

// suits returns whether the node is of the kind that the pod waits for. Only nodes with GPUs or the like are given back empty.
func suits(node *corev1.Node, pod *corev1.Pod) bool {
	hasExtendedResource := false
	for name, requested := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		allocatable := node.Status.Allocatable[name]
		if allocatable.Cmp(requested) < 0 {
			return false
		}
		hasExtendedResource = hasExtendedResource || strings.Contains(string(name), "/") && !requested.IsZero()
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return hasExtendedResource && matches && err == nil
}

// jobOf returns the job for which the node is to be given back, and when that was decided; empty for other nodes.
func jobOf(node *corev1.Node) (job string, since time.Time) {
	written := node.Annotations[api.AnnotationGiveBack]
	at := strings.LastIndex(written, "@")
	if at < 0 {
		return written, time.Time{}
	}
	since, _ = time.Parse(time.RFC3339, written[at+1:])
	return written[:at], since
}

// cordon cordons the nodes, so that no pod comes that would have to leave again, and writes on them that they are to be given
// back. It returns the names of those that are. The error is about nodes that have changed meanwhile, for which it is to be called
// again. A node that cannot be cordoned for another reason is left to scale-down.
func (g *giveBack) cordon(ctx context.Context, ref jobs.Ref, nodes []*corev1.Node) (cordoned []string, err error) {
	for _, node := range nodes {
		if _, since := jobOf(node); since.IsZero() {
			value := ref.String() + "@" + g.clock.Now().UTC().Format(time.RFC3339)
			switch patchErr := g.patch(ctx, node, map[string]any{api.AnnotationGiveBack: value}, true); {
			case apierrors.IsConflict(patchErr):
				err = errors.Join(err, patchErr)
				continue
			case patchErr != nil:
				klog.FromContext(ctx).Error(patchErr, "Could not cordon a node that is to be given back", "node", klog.KObj(node))
				continue
			}
		}
		cordoned = append(cordoned, node.Name)
	}
	return cordoned, err
}

// uncordon keeps the named nodes, whose job is not suspended.
func (g *giveBack) uncordon(ctx context.Context, names []string) (err error) {
	for _, name := range names {
		node, getErr := g.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}) // the informer may not have the annotation yet
		if getErr == nil {
			getErr = g.keep(ctx, node, "its job is not suspended")
		}
		err = errors.Join(err, utilerrors.FilterOut(getErr, apierrors.IsNotFound))
	}
	return err
}

// keep keeps a node that was to be given back. One that is being reclaimed stays cordoned, and the cordon becomes one of its marks: it is
// undone if the Node is restored.
func (g *giveBack) keep(ctx context.Context, node *corev1.Node, reason string) error {
	if job, _ := jobOf(node); job == "" {
		return nil
	}
	klog.FromContext(ctx).Info("Keeping a node that was to be given back", "node", klog.KObj(node), "reason", reason)
	annotations, isReclaiming := map[string]any{api.AnnotationGiveBack: nil}, api.IsReclaiming(node.Labels)
	if isReclaiming {
		annotations[api.AnnotationReclaimCordoned] = "true"
	}
	return g.patch(ctx, node, annotations, isReclaiming)
}

// patch writes the annotations, and removes those whose value is nil. It is refused where the Node has changed since it was read:
// somebody else may have cordoned it.
func (g *giveBack) patch(ctx context.Context, node *corev1.Node, annotations map[string]any, isCordoned bool) error {
	var unschedulable any
	if isCordoned {
		unschedulable = true
	}
	_, err := patch.Send(ctx, g.client.CoreV1().Nodes(), node, types.MergePatchType, map[string]any{
		"metadata": map[string]any{"resourceVersion": node.ResourceVersion, "annotations": annotations},
		"spec":     map[string]any{"unschedulable": unschedulable},
	}, metav1.PatchOptions{})
	if utilerrors.FilterOut(err, apierrors.IsNotFound) != nil {
		return fmt.Errorf("patch node %s, which is to be given back or kept: %w", node.Name, err)
	}
	return nil
}

// resume goes on with what a former leader did not finish.
func (g *giveBack) resume() error {
	nodes, err := g.nodes.List(labels.Everything())
	for _, node := range nodes {
		if job, _ := jobOf(node); job != "" {
			g.enqueue([]string{node.Name})
		}
	}
	return err
}

// enqueue has the named nodes given back.
func (g *giveBack) enqueue(names []string) {
	for _, name := range names {
		g.queue.Add(name)
	}
}

// sync gives back a cordoned node once it is empty. It keeps the node when another pod has come, when the job's pods do not leave,
// when its pool needs it or it has to stay, and when it is of no pool any more, unless that is because its instance is gone.
func (g *giveBack) sync(ctx context.Context, name string) (again time.Duration, err error) {
	node, err := g.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	job, since := jobOf(node)
	if job == "" { // unless the informer does not have it yet
		node, err = g.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if job, since = jobOf(node); job == "" || err != nil {
			return 0, utilerrors.FilterOut(err, apierrors.IsNotFound)
		}
	}
	own, others := g.pods.onNode(name, job)
	switch {
	case api.IsReclaiming(node.Labels) || g.pools.IsReclaiming(node):
		return vacateEvery, nil // it goes anyway, unless that is a drill, or the notice is withdrawn
	case others > 0:
		return 0, g.keep(ctx, node, "it has pods of another job")
	case own > 0 && g.clock.Since(since) > vacateTime:
		return 0, g.keep(ctx, node, "its pods do not leave")
	case own > 0:
		return vacateEvery, nil
	}
	isGoing := !g.pools.MayGiveBack(node) // unless GiveBack refuses
	switch err := g.pools.GiveBack(node); {
	case errors.Is(err, ess.ErrNoPool) && isRemoved(node):
		return 0, nil
	case errors.Is(err, ess.ErrNoPool) && g.clock.Since(since) < goneTime:
		return vacateEvery, nil
	case ess.IsRefused(err):
		return 0, g.keep(ctx, node, err.Error())
	case err != nil:
		return 0, err
	case !isGoing:
		g.recorder.Eventf(node, corev1.EventTypeNormal, "SpotNodeGivenBack", "Bought for %s, whose maximum wait is over", job)
	}
	return 0, nil
}

// isRemoved returns whether the node's instance was given back.
func isRemoved(node *corev1.Node) bool {
	_, removed := node.Annotations[api.AnnotationRemoved]
	return removed
}
