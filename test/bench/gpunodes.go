package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"gpu-spot-autoscaler/test/alisim"
	simulated "gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/bench/population"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/rig"
)

const (
	// gpuNodes is how many pods come at once, each of which fills a node.
	gpuNodes = 2
	// gpuNodesTimeout is how long the cloud may take, on the clock.
	gpuNodesTimeout = 10 * time.Minute
	// ownShare is what may at most be ours, in seconds: the settle window, which is one, and two more.
	ownShare = 3
)

// gpuNodesRow is about pods that fill a node each, created at once. The seconds are those of Alibaba Cloud: where the
// simulated cloud runs faster than the clock, what it took is multiplied accordingly.
type gpuNodesRow struct {
	Nodes int `json:"nodes"`
	// PendingToReady is from the moment before the first pod is created until the last node is ready with all its GPUs.
	PendingToReady float64 `json:"pending_to_ready_s"`
	// OfWhichCloud is from the acceptance of the purchase that brought that node. From then on only the cloud has anything
	// to do.
	OfWhichCloud float64 `json:"of_which_cloud_s"`
	Temper       string  `json:"temper"`
}

// gpuNodesDetail is where the time went until the last node was ready, in seconds likewise.
type gpuNodesDetail struct {
	Nodes int `json:"nodes"`
	// Speed is how many seconds of the cloud passed in one of the clock.
	Speed float64 `json:"speed"`
	// Bought is until the purchase was accepted, Launched from then until its activity had ended, Booted until the Node was
	// registered, Equipped until its GPUs were allocatable.
	Bought   float64 `json:"bought_s"`
	Launched float64 `json:"launched_s"`
	Booted   float64 `json:"booted_s"`
	Equipped float64 `json:"equipped_s"`
}

// measureGPUNodes says how much is ours of the time that it takes until pods that are pending have their GPU nodes. What
// the cloud takes of it is a table, simulated.Real: of what it is made stands there.
func measureGPUNodes(ctx context.Context, s *session) (r report.Report, err error) {
	speed := 1.
	if s.quick {
		speed = 10
	}
	bench, err := rig.New(ctx, rig.Options{
		World: gpuNodesWorld(s, speed), Dir: filepath.Join(s.dir, "gpunodes"), Output: s.progress,
	})
	if err != nil {
		return r, err
	}
	defer bench.Stop()
	if err := slowDown(bench); err != nil {
		return r, err
	}
	a, err := startAutoscaler(ctx, bench, s.flags()...)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, a.Stop()) }()
	s.logf("gpunodes: %d nodes, in a cloud that is %g times as fast as Alibaba's", gpuNodes, speed)
	began, last, err := awaitGPUNodes(ctx, bench)
	if err != nil {
		return r, fmt.Errorf("%w\n%s", err, a.Log(20))
	}
	row, detail := last.figures(began, speed)
	row.Temper = temperOf(bench.Cloud.Temper())
	return report.Report{
		Rows: []gpuNodesRow{row}, Details: []gpuNodesDetail{detail},
		Aims: []report.Aim{report.AtMost(ownShare, row.PendingToReady-row.OfWhichCloud, "pending_to_ready_s less of_which_cloud_s at %d nodes", gpuNodes)},
	}, nil
}

// gpuNodesWorld has one pool of types with eight GPUs. What things take is real in every temper.
func gpuNodesWorld(s *session, speed float64) alisim.World {
	sold := slices.DeleteFunc(soldTypes(), func(t market.Type) bool { return t.GPUs != gpusPerNode })
	world := s.tempered(newWorldOf(sold, 1, 2, 2, 2*gpuNodes))
	world.Speed = speed
	takes := simulated.Real.At(speed)
	world.BootDelay, world.DriverDelay = metav1.Duration{Duration: takes.Boot}, metav1.Duration{Duration: takes.Driver}
	if !world.Temper.OrDefault().IsStrict() { // which has the span itself
		world.ActivityDelay = metav1.Duration{Duration: (takes.Activity.Least + takes.Activity.Most) / 2}
	}
	return world
}

// birth is when a node came to be.
type birth struct {
	instance string
	// accepted and ended are of the scaling activity that brought it.
	accepted, ended, registered, ready time.Time
}

// figures are in seconds of Alibaba Cloud.
func (b birth) figures(began time.Time, speed float64) (gpuNodesRow, gpuNodesDetail) {
	ofCloud := func(from, to time.Time) float64 { return speed * to.Sub(from).Seconds() }
	detail := gpuNodesDetail{
		Nodes: gpuNodes, Speed: speed,
		Bought:   b.accepted.Sub(began).Seconds(),
		Launched: ofCloud(b.accepted, b.ended), Booted: ofCloud(b.ended, b.registered), Equipped: ofCloud(b.registered, b.ready),
	}
	cloud := ofCloud(b.accepted, b.ready)
	return gpuNodesRow{Nodes: gpuNodes, PendingToReady: detail.Bought + cloud, OfWhichCloud: cloud}, detail
}

// awaitGPUNodes creates the pods, and returns when it began to and how the last of their nodes came up.
func awaitGPUNodes(ctx context.Context, bench *rig.Rig) (began time.Time, last birth, err error) {
	ctx, cancel := context.WithTimeout(ctx, gpuNodesTimeout)
	defer cancel()
	seen, err := bench.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return began, last, err
	}
	defer seen.Stop()
	began = time.Now()
	for i := range gpuNodes {
		pod := rig.GPUPod(fmt.Sprintf("train-%d", i), gpusPerNode)
		if _, err := bench.Client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return began, last, err
		}
	}
	if last, err = lastReady(seen, gpuNodes); err != nil {
		return began, last, err
	}
	return began, last, last.readActivity(bench.Cloud)
}

// lastReady waits until so many nodes have been ready with all their GPUs, and returns the last.
func lastReady(seen watch.Interface, count int) (birth, error) {
	births, ready := map[string]birth{}, 0
	for event := range seen.ResultChan() {
		node, ok := event.Object.(*corev1.Node)
		if !ok {
			continue
		}
		b, known := births[node.Name]
		if !known {
			b = birth{instance: node.Labels[nodes.LabelInstanceID], registered: time.Now()}
		}
		gpus := node.Status.Allocatable["nvidia.com/gpu"]
		if b.ready.IsZero() && gpus.Value() == gpusPerNode && !population.IsUnready(*node) {
			b.ready = time.Now()
			ready++
		}
		births[node.Name] = b
		if ready == count {
			return b, nil
		}
	}
	return birth{}, fmt.Errorf("of %d nodes %d came up with their GPUs: the watch has ended", count, ready)
}

// readActivity fills in the purchase that brought the node.
func (b *birth) readActivity(cloud *alisim.Server) error {
	instance, known := cloud.Instance(b.instance)
	if !known {
		return fmt.Errorf("the cloud knows no instance %q", b.instance)
	}
	group, _ := cloud.Group(instance.ScalingGroupID)
	for _, activity := range group.Activities {
		if activity.ID == instance.ActivityID {
			b.accepted, b.ended = activity.Started, activity.Ended
			return nil
		}
	}
	return fmt.Errorf("no scaling activity brought instance %s", b.instance)
}
