package remover

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
)

// batch is a set of instances of one pool that are removed together.
type batch struct {
	poolID string
	wanted map[string]ledger.RemovalReason
	// done is closed when failures is complete. Failures are by instance.
	done     chan struct{}
	failures map[string]error
}

// batcher gathers instances for a while and hands each pool's over as one batch. It is safe for concurrent use.
type batcher struct {
	window time.Duration
	clock  clock.Clock
	// run removes a batch. Each runs in a goroutine of its own, which stop waits for.
	run func(context.Context, *batch)

	mu       sync.Mutex
	gathered map[string]*batch // by pool
	stopped  bool
	running  sync.WaitGroup
}

// add adds the instances to the batch that the pool is gathering; nil after stop.
func (b *batcher) add(ctx context.Context, poolID string, instances []string, reason ledger.RemovalReason) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil
	}
	current := b.gathered[poolID]
	if current == nil {
		current = &batch{poolID: poolID, wanted: map[string]ledger.RemovalReason{}, done: make(chan struct{}), failures: map[string]error{}}
		b.gathered[poolID] = current
		b.running.Go(func() { b.finish(ctx, current) })
	}
	for _, id := range instances {
		current.wanted[id] = max(reason, current.wanted[id])
	}
	return current
}

// finish waits until the batch is gathered, and runs it.
func (b *batcher) finish(ctx context.Context, gathered *batch) {
	defer close(gathered.done)
	_ = sleep(ctx, b.clock, b.window)
	b.mu.Lock()
	delete(b.gathered, gathered.poolID)
	b.mu.Unlock()
	b.run(ctx, gathered)
}

// stop refuses new instances and waits for the batches under way.
func (b *batcher) stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.running.Wait()
}

// sleep waits for the duration; the error is that of the context, if it ends before.
func sleep(ctx context.Context, clk clock.Clock, d time.Duration) error {
	timer := clk.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
