// Package batch collects requests that are made at about the same time, so that they are served with fewer calls to the cloud.
package batch

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrStopped is returned for requests after Stop.
var ErrStopped = errors.New("shutting down, so no further requests are served")

// Execute serves the requests that were made under one key within one window. It returns one result for each, in their order.
type Execute[K comparable, T, U any] func(ctx context.Context, key K, requests []T) []U

// Batcher collects requests, T, by key. The first request under a key opens a window; when the window is over, Execute gets all
// requests that were made until then. Batches run at the same time, also those under one key. It is safe for concurrent use.
type Batcher[K comparable, T, U any] struct {
	ctx     context.Context
	clock   clock.Clock
	window  time.Duration
	execute Execute[K, T, U]

	mu      sync.Mutex
	open    map[K]*batch[T, U]
	stopped bool
	running sync.WaitGroup
}

// batch is complete, and results are set, when done is closed.
type batch[T, U any] struct {
	requests []T
	results  []U
	done     chan struct{}
}

// New returns a Batcher. When the context ends, open windows end too; the context is also that of Execute.
func New[K comparable, T, U any](ctx context.Context, clk clock.Clock, window time.Duration, execute Execute[K, T, U]) *Batcher[K, T, U] {
	return &Batcher[K, T, U]{ctx: ctx, clock: clk, window: window, execute: execute, open: map[K]*batch[T, U]{}}
}

// Pending are requests that were added and may not have been served yet.
type Pending[T, U any] struct {
	batch      *batch[T, U]
	begin, end int
}

// Add makes the requests under the key. It does not wait. The error is ErrStopped.
func (b *Batcher[K, T, U]) Add(key K, requests ...T) (*Pending[T, U], error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopped {
		return nil, ErrStopped
	}
	current := b.open[key]
	if current == nil {
		current = &batch[T, U]{done: make(chan struct{})}
		b.open[key] = current
		b.running.Go(func() { b.run(key, current) })
	}
	begin := len(current.requests)
	current.requests = append(current.requests, requests...)
	return &Pending[T, U]{current, begin, len(current.requests)}, nil
}

// Wait waits until the requests are served, and returns their results in the order in which the requests were added.
func (p *Pending[T, U]) Wait() []U {
	<-p.batch.done
	return slices.Clone(p.batch.results[p.begin:p.end])
}

// Stop refuses new requests and waits until all others are served.
func (b *Batcher[K, T, U]) Stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.running.Wait()
}

// run waits until the window of the batch is over, and serves it.
func (b *Batcher[K, T, U]) run(key K, collected *batch[T, U]) {
	defer close(collected.done)
	window := b.clock.NewTimer(b.window)
	defer window.Stop()
	select {
	case <-window.C():
	case <-b.ctx.Done():
	}
	b.mu.Lock()
	delete(b.open, key)
	b.mu.Unlock()
	collected.results = b.execute(b.ctx, key, collected.requests)
}
