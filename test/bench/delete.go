package main

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/bench/report"
)

// deleteRow is about giving nodes back as core does: one DeleteNodes for each, all at once.
type deleteRow struct {
	Nodes int `json:"nodes"`
	Pools int `json:"pools"`
	// OneAtATime says whether a scaling group has one activity at a time.
	OneAtATime bool `json:"one_at_a_time"`
	// Calls are those that remove, the refused included.
	Calls   int     `json:"calls"`
	Seconds float64 `json:"seconds"`
	Temper  string  `json:"temper"`
}

// deleteDetail is a row and the calls behind it.
type deleteDetail struct {
	deleteRow
	// Rounds is how often nodes were ordered to go: those that the cloud did not accept to remove in time are ordered anew,
	// as core does.
	Rounds      int            `json:"rounds"`
	CallsByName map[string]int `json:"calls_by_name"`
}

// scanInterval is the default of --scan-interval.
const scanInterval = 10 * time.Second

// mostRounds is after how many rounds nodes that are still there are a failure.
const mostRounds = 5

// measureDelete gives back all 100 nodes of one pool: of a scaling group that has one activity at a time, and removes 20 by each, and of
// one with a desired capacity in a cloud that takes the activities of such groups side by side. Beside it, for comparison, 100 nodes of
// five pools. It is over when the cloud has accepted the last removal.
func measureDelete(ctx context.Context, s *session) (r report.Report, err error) {
	const nodes = 100
	var rows []deleteRow
	var details []deleteDetail
	for _, of := range []struct {
		pools     int
		oneAtTime bool
	}{{1, true}, {1, false}, {5, true}} {
		s.logf("delete: %d nodes of %d pools, one activity at a time: %t", nodes, of.pools, of.oneAtTime)
		world := s.tempered(newWorld(of.pools, 3, 2, nodes))
		world.Temper = world.Temper.OrDefault()
		world.Temper.OneAtATime = of.oneAtTime
		for i := range world.Pools {
			world.Pools[i].Instances = nodes / of.pools
			if !of.oneAtTime {
				world.Pools[i].DesiredCapacity = &world.Pools[i].Instances
			}
		}
		found, err := deletion(ctx, world)
		if err != nil {
			return r, err
		}
		rows, details = append(rows, found.deleteRow), append(details, found)
	}
	r.Rows, r.Details = rows, details
	r.Aims = []report.Aim{
		report.AtMost(5, float64(rows[0].Calls), "calls for %d nodes, one activity at a time", nodes),
		report.AtMost(6, rows[1].Seconds, "seconds for %d nodes, activities side by side", nodes),
	}
	return r, nil
}

func deletion(ctx context.Context, world alisim.World) (found deleteDetail, err error) {
	p, err := newProvided(ctx, world)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.Refresh(); err != nil {
		return found, err
	}
	removed, err := p.nodes()
	if err != nil {
		return found, err
	}
	found.Nodes, found.Pools, found.OneAtATime, found.Temper = len(removed), len(world.Pools), world.Temper.OneAtATime, p.cloud.Temper
	found.CallsByName, err = p.cloud.calls(ctx, func() error {
		stop := p.refreshUntil(ctx)
		defer stop()
		began := time.Now()
		defer func() { found.Seconds = time.Since(began).Seconds() }()
		found.Rounds, err = p.deleteAll(removed)
		return err
	})
	found.Calls = found.CallsByName["RemoveInstances"]
	return found, err
}

// refreshUntil refreshes as often as core's main loop does, until stop is called.
func (p *provided) refreshUntil(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		wait.UntilWithContext(ctx, func(context.Context) {
			if err := p.Refresh(); err != nil {
				klog.Error(err) // and the next is tried
			}
		}, scanInterval)
	})
	return func() { cancel(); running.Wait() }
}

// nodes are the Nodes that the provider's instances would have, each with its group.
func (p *provided) nodes() (map[*corev1.Node]cloudprovider.NodeGroup, error) {
	groups := map[*corev1.Node]cloudprovider.NodeGroup{}
	for _, group := range p.NodeGroups() {
		instances, err := group.Nodes()
		if err != nil {
			return nil, err
		}
		for _, instance := range instances {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: instance.Id}, Spec: corev1.NodeSpec{ProviderID: instance.Id}}
			groups[node] = group
		}
	}
	return groups, nil
}

// deleteAll orders the nodes to go until the cloud has accepted that all of them do, and returns how often.
func (p *provided) deleteAll(nodes map[*corev1.Node]cloudprovider.NodeGroup) (rounds int, err error) {
	for rounds = 1; ; rounds++ {
		if nodes, err = deleteOnce(nodes); err == nil || rounds == mostRounds {
			return rounds, err
		}
		if err := p.Refresh(); err != nil {
			return rounds, err
		}
	}
}

// deleteOnce returns the nodes that the cloud did not accept to remove, and why.
func deleteOnce(nodes map[*corev1.Node]cloudprovider.NodeGroup) (left map[*corev1.Node]cloudprovider.NodeGroup, err error) {
	var mu sync.Mutex
	var failures []error
	left = map[*corev1.Node]cloudprovider.NodeGroup{}
	var deletions sync.WaitGroup
	for node, group := range nodes {
		deletions.Go(func() {
			if err := group.DeleteNodes([]*corev1.Node{node}); err != nil {
				mu.Lock()
				defer mu.Unlock()
				left[node], failures = group, append(failures, err)
			}
		})
	}
	deletions.Wait()
	return left, errors.Join(failures...)
}
