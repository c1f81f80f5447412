package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
	"gpu-spot-autoscaler/test/rig"
)

// peer is an autoscaler that is measured.
type peer struct {
	name  string
	start func(ctx context.Context, r *rig.Rig, flags ...string) (*rig.Autoscaler, error)
}

// ours is this autoscaler as it is shipped, but for the leader election.
var ours = peer{"ours", func(ctx context.Context, r *rig.Rig, flags ...string) (*rig.Autoscaler, error) {
	return r.StartAutoscaler(ctx, nil, flags...)
}}

// stock is Cluster Autoscaler with its in-tree alicloud provider, which is told the scaling groups by flags.
func stock(binary string) peer {
	return peer{"stock", func(ctx context.Context, r *rig.Rig, flags ...string) (*rig.Autoscaler, error) {
		for _, pool := range r.World.Pools {
			flags = append(flags, fmt.Sprintf("--nodes=0:%d:%s", pool.MaxSize, pool.ID))
		}
		return r.StartInTree(ctx, binary, flags...)
	}}
}

// scanInterval is the default of both.
const scanInterval = 10 * time.Second

// commonFlags are given to both: the defaults, but for shorter delays before a scale-down, which nobody would wait for here, and no
// limit to how many nodes go at once. The expander is one that both have.
var commonFlags = []string{
	"--scan-interval=" + scanInterval.String(), "--expander=least-waste", "--max-scale-down-parallelism=1000",
	"--scale-down-delay-after-add=30s", "--scale-down-unneeded-time=30s", "--scale-down-unready-time=20m", "--v=1",
}

const (
	region, zone = "ap-southeast-1", "ap-southeast-1a"
	// small and big have one GPU each. A pod fills more of the small one, which least-waste therefore takes.
	small, big = "ecs.gn6i-c4g1.xlarge", "ecs.gn7i-c8g1.2xlarge"
)

// group is a scaling group of one instance type in one zone.
type group struct {
	id, instanceType string
	instances, max   int
}

// newWorld has the scaling groups and sells what they buy.
func newWorld(groups ...group) alisim.World {
	w := alisim.NewWorld(region, zone)
	w.Temper = temper.Lenient()
	for i := range w.VSwitches {
		w.VSwitches[i].AvailableIPs = 1 << 20 // none of the worlds is short of them
	}
	w.Sell(small, zone, .5, 2)
	w.Sell(big, zone, .6, 2.4)
	for _, g := range groups {
		pool := rig.SpotPool(g.id, g.max, []string{g.instanceType}, w.VSwitchIDs())
		pool.Instances = g.instances
		w.Pools = append(w.Pools, pool)
	}
	return w
}

// trial is one peer in one world.
type trial struct {
	*session
	*rig.Rig
	autoscaler *rig.Autoscaler
}

// newTrial starts a control plane and a cloud.
func newTrial(ctx context.Context, s *session, name string, options rig.Options) (*trial, error) {
	options.Dir, options.NodeGracePeriod, options.Output = filepath.Join(s.dir, name), 24*time.Hour, s.progress
	r, err := rig.New(ctx, options)
	if err != nil {
		return nil, err
	}
	return &trial{session: s, Rig: r}, nil
}

// start starts the peer, and returns after its first loop.
func (t *trial) start(ctx context.Context, p peer, flags ...string) (err error) {
	if t.autoscaler, err = p.start(ctx, t.Rig, slices.Concat(commonFlags, flags)...); err != nil {
		return err
	}
	return t.autoscaler.AwaitLoops(ctx, 1, 10*time.Minute)
}

// stop ends everything. Stock takes longer to end than rig.Autoscaler waits for.
func (t *trial) stop() {
	if t.autoscaler != nil {
		t.autoscaler.Kill()
	}
	t.Stop()
}

// submit creates pods of one GPU each, and returns when the first was created. They come at some moment between two loops.
func (t *trial) submit(ctx context.Context, n int) (began time.Time, err error) {
	if err := sleep(ctx, time.Duration(t.random.Int64N(int64(scanInterval)))); err != nil {
		return began, err
	}
	var pods []*corev1.Pod
	for i := range n {
		pod := rig.GPUPod(fmt.Sprintf("train-%d", i), 1)
		pod.Labels["app"] = "train"
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("3"), corev1.ResourceMemory: resource.MustParse("10Gi"),
		}
		pods = append(pods, pod)
	}
	began = time.Now()
	return began, t.Cluster.CreatePods(ctx, pods)
}

// until returns how many seconds after began the condition held, or that it did not for so long.
func (t *trial) until(ctx context.Context, began time.Time, timeout time.Duration, condition wait.ConditionWithContextFunc) (figure, error) {
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout-time.Since(began), true, func(ctx context.Context) (bool, error) {
		select {
		case <-t.autoscaler.Done():
			return false, fmt.Errorf("the autoscaler has ended\n%s", t.autoscaler.Log(20))
		default:
			return condition(ctx)
		}
	})
	switch {
	case err == nil:
		return number(time.Since(began).Seconds()), nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return moreThan(timeout.Seconds()), nil
	}
	return figure{}, err
}

// requested holds when purchases of n instances were accepted, of all groups or of those named.
func (t *trial) requested(n int, groups ...string) wait.ConditionWithContextFunc {
	return func(context.Context) (bool, error) {
		sum := 0
		for _, pool := range t.World.Pools {
			if len(groups) > 0 && !slices.Contains(groups, pool.ID) {
				continue
			}
			view, _ := t.Cloud.Group(pool.ID)
			for _, activity := range view.Activities {
				sum += activity.Asked
			}
		}
		return sum >= n, nil
	}
}

// running holds when n pods run.
func (t *trial) running(n int) wait.ConditionWithContextFunc {
	return func(ctx context.Context) (bool, error) {
		pods, err := t.Client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running", ResourceVersion: "0"})
		return err == nil && len(pods.Items) >= n, err
	}
}

// callsWithin is how many calls the cloud got in that time.
func (t *trial) callsWithin(from time.Time, d time.Duration) (calls int) {
	for _, request := range t.Cloud.Requests() {
		if !request.Time.Before(from) && request.Time.Before(from.Add(d)) {
			calls++
		}
	}
	return calls
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
