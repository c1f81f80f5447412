package nodes

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Cluster makes booted instances appear as Nodes, and disappear. *Registrar is one.
type Cluster interface {
	Up(ctx context.Context, m Machine) error
	Down(ctx context.Context, instanceID string) error
	// Wait returns when nothing that Up and Down left for later is under way.
	Wait()
}

// Keeper carries machines to the cluster and back, one goroutine for each that is up. All end with the context.
type Keeper struct {
	ctx     context.Context
	cluster Cluster
	clock   clock.Clock
	group   sync.WaitGroup
	// slots bounds the calls under way at once.
	slots chan struct{}
}

// NewKeeper returns a keeper that works until the context ends.
func NewKeeper(ctx context.Context, cluster Cluster, clk clock.Clock) *Keeper {
	return &Keeper{ctx: ctx, cluster: cluster, clock: clk, slots: make(chan struct{}, 32)}
}

// Boot registers the machine, and takes it off again when gone is closed.
func (k *Keeper) Boot(m Machine, gone <-chan struct{}) {
	k.group.Go(func() {
		if !k.persist(gone, "up", m.InstanceID, func(ctx context.Context) error { return k.cluster.Up(ctx, m) }) {
			return
		}
		select {
		case <-k.ctx.Done():
			return
		case <-gone:
		}
		k.persist(nil, "down", m.InstanceID, func(ctx context.Context) error { return k.cluster.Down(ctx, m.InstanceID) })
	})
}

const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Wait returns when all goroutines have ended, which they do after the context.
func (k *Keeper) Wait() {
	k.group.Wait()
	k.cluster.Wait()
}

// persist repeats a call until it succeeds, enough is closed, or everything ends; false in the last case.
func (k *Keeper) persist(enough <-chan struct{}, what, id string, call func(context.Context) error) bool {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := k.inSlot(call)
		if err == nil {
			return true
		}
		if k.ctx.Err() == nil {
			klog.FromContext(k.ctx).Error(err, "Node of simulated instance", "call", what, "instance", id, "retryIn", pause)
		}
		select {
		case <-k.ctx.Done():
			return false
		case <-enough:
			return true
		case <-k.clock.After(pause):
		}
	}
}

func (k *Keeper) inSlot(call func(context.Context) error) error {
	select {
	case k.slots <- struct{}{}:
		defer func() { <-k.slots }()
		return call(k.ctx)
	case <-k.ctx.Done():
		return k.ctx.Err()
	}
}
