package drill

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

const (
	// lookEvery is how often it is looked at what has happened, if no Node or Event says so earlier.
	lookEvery = 500 * time.Millisecond
	// beginsWithin is how long the leader may take to begin. Leaders change within half a minute.
	beginsWithin = 45 * time.Second
	// endsWithin is how long it may take to give the Nodes back after the end.
	endsWithin = time.Minute
	// lastEvents is how long Events may take to come that say how the drill has ended.
	lastEvents = 3 * time.Second
)

// driller starts the drill, watches it, and ends it if it is interrupted.
type driller struct {
	client   kubernetes.Interface
	clock    clock.WithTicker
	plan     notice.Drill
	nodes    []string
	timeline *timeline
	observer *observer
	// started is true once a Node says that there is a drill.
	started bool
}

// run returns an error if the drill could not begin, or did not end as drills end.
func (d *driller) run(ctx context.Context) error {
	if err := d.checkNodes(ctx); err != nil {
		return err
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	d.observer = newObserver(d.client, d.clock, d.plan, d.nodes, d.timeline)
	if err := d.observer.begin(watching); err != nil {
		return err
	}
	d.timeline.introduce(d.nodes)
	for _, name := range d.nodes {
		if err := d.start(ctx, name); err != nil {
			return errors.Join(err, d.end(watching))
		}
		d.timeline.add(stepNotice, name, "", "the leader is told that the instance will be released")
	}
	if err := d.await(ctx, watching); err != nil {
		return errors.Join(err, d.end(watching))
	}
	return nil
}

// await returns nil once the Nodes are given back, or something has taken the place of the drill.
func (d *driller) await(ctx, watching context.Context) error {
	ticker := d.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		d.observer.look(watching)
		now := d.clock.Now()
		switch {
		case d.observer.isOver():
			return d.settle(watching)
		case !d.observer.hasBegun() && now.Sub(d.timeline.began) > beginsWithin:
			return fmt.Errorf("no autoscaler has begun within %v: does one lead, is it of this version, and is it no dry run?", beginsWithin)
		case now.Sub(d.plan.End) > endsWithin:
			return fmt.Errorf("the nodes are not given back %v after the end of the drill: does an autoscaler lead?", endsWithin)
		}
		select {
		case <-ctx.Done():
			return errors.New("the drill was interrupted")
		case <-ticker.C():
		case <-d.observer.changed:
		}
	}
}

// settle waits for the Events that say how the drill has ended.
func (d *driller) settle(ctx context.Context) error {
	for until := d.clock.Now().Add(lastEvents); d.clock.Now().Before(until) && !d.observer.isExplained(); {
		d.clock.Sleep(lookEvery)
		d.observer.look(ctx)
	}
	return d.observer.refused()
}

// checkNodes refuses what no leader would begin with, and what would be of no use.
func (d *driller) checkNodes(ctx context.Context) error {
	for _, name := range d.nodes {
		node, err := d.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read node %s: %w", name, err)
		}
		if err := whyNot(node); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

func whyNot(node *corev1.Node) error {
	_, drilled := node.Annotations[api.AnnotationDrill]
	_, removed := node.Annotations[api.AnnotationRemoved]
	_, _, err := providerid.Parse(node.Spec.ProviderID)
	switch {
	case err != nil:
		return fmt.Errorf("it is no instance of Alibaba Cloud: %w", err)
	case cluster.IsOnDemand(node):
		return errors.New("its instance is on-demand, and is never reclaimed")
	case drilled:
		return fmt.Errorf("there is a drill already (annotation %s)", api.AnnotationDrill)
	case cluster.IsMarked(node):
		return fmt.Errorf("it is reclaiming (annotation %s)", api.AnnotationReclaimDeadline)
	case removed:
		return errors.New("its instance is being given back")
	}
	return nil
}

// start writes the drill on the Node, if that is still as it was checked.
func (d *driller) start(ctx context.Context, name string) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := d.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := whyNot(node); err != nil {
			return err
		}
		return d.annotate(ctx, node, d.plan.String())
	})
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return fmt.Errorf("start a drill on node %s: %w. It takes the right to patch Nodes, and the verb start for drills of gpu-spot.autoscaling in all namespaces", name, err)
	}
	if err != nil {
		return fmt.Errorf("start a drill on node %s: %w", name, err)
	}
	d.started = true
	return nil
}

// end takes the drill off the Nodes that still say it, and waits until they are given back.
func (d *driller) end(ctx context.Context) error {
	if !d.started {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	var errs []error
	for _, name := range d.nodes {
		errs = append(errs, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			node, err := d.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) || err == nil && node.Annotations[api.AnnotationDrill] != d.plan.String() {
				return nil
			}
			if err != nil {
				return err
			}
			return d.annotate(ctx, node, nil)
		}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end the drill; it ends by itself at %s: %w", d.plan.End.Format(time.RFC3339), err)
	}
	for until := d.clock.Now().Add(endsWithin); !d.observer.isOver(); {
		if !d.clock.Now().Before(until) {
			return fmt.Errorf("the nodes are not given back after %v; whichever autoscaler leads next does it", endsWithin)
		}
		d.clock.Sleep(lookEvery)
		d.observer.look(ctx)
	}
	return nil
}

// annotate writes the drill, or takes it off if value is nil. It returns a conflict if the Node was changed since.
func (d *driller) annotate(ctx context.Context, node *corev1.Node, value any) error {
	_, err := patch.Send(ctx, d.client.CoreV1().Nodes(), node, types.MergePatchType, map[string]any{"metadata": map[string]any{
		"resourceVersion": node.ResourceVersion, "annotations": map[string]any{api.AnnotationDrill: value},
	}}, metav1.PatchOptions{FieldManager: "gpu-spot-autoscaler-drill"})
	return err
}
