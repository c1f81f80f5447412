package rig

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"gpu-spot-autoscaler/test/cluster"
)

// restoreTimeout is how long a cluster may take to be as it was. It is for clusters that cannot be: none takes seconds.
const restoreTimeout = 30 * time.Second

// lent is a control plane with the shipped RBAC and the policies for one region in force, as the next end-to-end test finds
// it.
type lent struct {
	cluster    *cluster.Cluster
	region     string
	kubeconfig string
	baseline   *cluster.Baseline
}

// lender keeps the control planes that an end-to-end test has done with for the next one: to start another takes most of
// the processor time of a test. They end with the process.
var lender struct {
	mu   sync.Mutex
	idle []*lent
}

// borrow returns a control plane for the region that is as it was when it started, nil where none is idle.
func borrow(region string) *lent {
	lender.mu.Lock()
	defer lender.mu.Unlock()
	for last := len(lender.idle) - 1; last >= 0; last-- {
		next := lender.idle[last]
		if next.region != region {
			continue
		}
		lender.idle = slices.Delete(lender.idle, last, last+1)
		if next.cluster.Err() == nil {
			return next
		}
		next.cluster.Stop()
	}
	return nil
}

// giveBack ends the rig and leaves its control plane to another, unless the test failed or has changed what it found.
func (r *Rig) giveBack(t *testing.T) {
	if err := r.endCloud(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		r.Cluster.Stop()
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), restoreTimeout)
	defer cancel()
	if err := r.Cluster.Restore(ctx, r.lent.baseline); err != nil {
		t.Logf("its control plane is used by no other test: %v", err)
		r.Cluster.Stop()
		return
	}
	lender.mu.Lock()
	defer lender.mu.Unlock()
	lender.idle = append(lender.idle, r.lent)
}
