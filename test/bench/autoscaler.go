package main

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

// newRig starts a control plane and a cloud every call to which is as slow as callLatency. Nodes never fall silent:
// nobody looks after them.
func newRig(ctx context.Context, s *session, name string, world alisim.World) (*rig.Rig, error) {
	r, err := rig.New(ctx, rig.Options{
		World: s.tempered(world), Dir: filepath.Join(s.dir, name), WithoutNodes: true, NodeGracePeriod: 24 * time.Hour, Output: s.progress,
	})
	if err != nil {
		return nil, err
	}
	return r, slowDown(r)
}

func slowDown(r *rig.Rig) error {
	return r.Cloud.Fault(alisim.Fault{Kind: alisim.FaultLatency, Latency: callLatency})
}

// stopControllers ends, for good, what neither the scheduler nor the autoscaler needs once Nodes are up.
func stopControllers(ctx context.Context, r *rig.Rig) error {
	for _, component := range []string{cluster.ControllerManager, cluster.Kwok} {
		if err := r.Cluster.Kill(ctx, component); err != nil {
			return err
		}
	}
	return nil
}

// startAutoscaler starts the binary as it is shipped, but for the leader election, and returns when it has refreshed,
// knows the prices and has gone through its first loops.
func startAutoscaler(ctx context.Context, r *rig.Rig, flags ...string) (*rig.Autoscaler, error) {
	const scanInterval = 10 * time.Second // the default
	a, err := r.StartAutoscaler(ctx, nil, append([]string{
		"--scan-interval=" + scanInterval.String(), "--scale-down-unneeded-time=10m", "--scale-down-unready-time=20m", "--v=1",
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	if err := a.AwaitLoops(ctx, 1, 5*time.Minute); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

// deletePods removes all pods of the namespace default at once and waits until they are gone.
func deletePods(ctx context.Context, r *rig.Rig) error {
	pods := r.Client.CoreV1().Pods(metav1.NamespaceDefault)
	now := int64(0)
	err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		left, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		return err == nil && len(left.Items) == 0, err
	})
}
