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

	mu sync.Mutex
	// carriers are the goroutines that have not ended; changed is told of everything that one of them does next.
	carriers map[*carrier]struct{}
	changed  *sync.Cond
}

// carrier is what its goroutine has told the others.
type carrier struct {
	// gone is closed when the machine is to be taken off; nil from then on.
	gone <-chan struct{}
	// waiting says that there is nothing to do until gone is closed, or until time passes.
	waiting bool
}

// NewKeeper returns a keeper that works until the context ends.
func NewKeeper(ctx context.Context, cluster Cluster, clk clock.Clock) *Keeper {
	k := &Keeper{ctx: ctx, cluster: cluster, clock: clk, slots: make(chan struct{}, 32), carriers: map[*carrier]struct{}{}}
	k.changed = sync.NewCond(&k.mu)
	return k
}

// Boot registers the machine, and takes it off again when gone is closed.
func (k *Keeper) Boot(m Machine, gone <-chan struct{}) {
	c := &carrier{gone: gone}
	k.update(func() { k.carriers[c] = struct{}{} })
	k.group.Go(func() {
		defer k.update(func() { delete(k.carriers, c) })
		k.carry(c, m)
	})
}

func (k *Keeper) carry(c *carrier, m Machine) {
	gone := c.gone
	if !k.persist(c, gone, "up", m.InstanceID, func(ctx context.Context) error { return k.cluster.Up(ctx, m) }) {
		return
	}
	k.update(func() { c.waiting = true })
	select {
	case <-k.ctx.Done():
		return
	case <-gone:
	}
	k.update(func() { c.waiting, c.gone = false, nil })
	k.persist(c, nil, "down", m.InstanceID, func(ctx context.Context) error { return k.cluster.Down(ctx, m.InstanceID) })
}

func (k *Keeper) update(what func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what()
	k.changed.Broadcast()
}

// Settle returns when every machine that has booted has been carried to the cluster, and every one that is gone off it, or
// when that failed and waits to be tried again. It must not be called by who drives the clock while a call of the cluster
// waits for that clock.
func (k *Keeper) Settle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.anyBusy() {
		k.changed.Wait()
	}
}

func (k *Keeper) anyBusy() bool {
	for c := range k.carriers {
		select {
		case <-c.gone: // which its goroutine may not have seen yet
			return true
		default:
		}
		if !c.waiting {
			return true
		}
	}
	return false
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
func (k *Keeper) persist(c *carrier, enough <-chan struct{}, what, id string, call func(context.Context) error) bool {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := k.inSlot(call)
		if err == nil {
			return true
		}
		if k.ctx.Err() == nil {
			klog.FromContext(k.ctx).Error(err, "Node of simulated instance", "call", what, "instance", id, "retryIn", pause)
		}
		again := k.clock.After(pause)
		k.update(func() { c.waiting = true })
		select {
		case <-k.ctx.Done():
			return false
		case <-enough:
			return true
		case <-again:
		}
		k.update(func() { c.waiting = false })
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
