// Package work has what the parts of a reclaim and those that look after jobs and gangs work with: queues with their workers, a bound on
// requests for pods, and waits on an injected clock.
package work

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// FirstRetry is how soon something that failed is tried again at first. Notices leave minutes, so retries start fast.
const FirstRetry = 100 * time.Millisecond

// ErrNotYet is returned for an item that is to be tried again, later each time, though nothing has failed. It is not logged.
var ErrNotYet = errors.New("not yet")

// Queue holds what has to be looked at, such as names of Nodes. It is safe for concurrent use.
type Queue[T comparable] struct {
	name string
	workqueue.TypedRateLimitingInterface[T]
}

// NewQueue returns a queue with a name for its metrics, in which no retry waits longer than slowestRetry. It is first in, first out.
func NewQueue[T comparable](name string, clk clock.WithTicker, slowestRetry time.Duration) Queue[T] {
	return NewOrderedQueue(name, clk, slowestRetry, workqueue.DefaultQueue[T]())
}

// NewRankedQueue is NewQueue for a queue from which the item of the least rank is taken first. The queue calls rank for each item
// that is added, or added again, under its lock.
func NewRankedQueue[T comparable](name string, clk clock.WithTicker, slowestRetry time.Duration, rank func(T) Rank) Queue[T] {
	return NewOrderedQueue(name, clk, slowestRetry, newRanked(rank))
}

// NewOrderedQueue is NewQueue for a queue from which items are taken in that order.
func NewOrderedQueue[T comparable](name string, clk clock.WithTicker, slowestRetry time.Duration, order workqueue.Queue[T]) Queue[T] {
	ready := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Clock: clk, Queue: order})
	return Queue[T]{name, workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](FirstRetry, slowestRetry),
		workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[T]{Name: name, Clock: clk, Queue: ready})})}
}

// Work calls sync for one item after the other until the queue is shut down. What fails is tried again, later each time.
func (q Queue[T]) Work(ctx context.Context, sync func(context.Context, T) error) {
	for {
		item, shutdown := q.Get()
		if shutdown {
			return
		}
		if err := sync(ctx, item); err == nil {
			q.Forget(item)
		} else if ctx.Err() == nil {
			if !errors.Is(err, ErrNotYet) {
				klog.FromContext(ctx).Error(err, "Will try again", "queue", q.name, "item", item)
			}
			q.AddRateLimited(item)
		}
		q.Done(item)
	}
}

// WorkAgain is Work for items that have to be looked at again after the time that sync returns; zero is never.
func (q Queue[T]) WorkAgain(ctx context.Context, sync func(context.Context, T) (again time.Duration, err error)) {
	q.Work(ctx, func(ctx context.Context, item T) error {
		again, err := sync(ctx, item)
		if err == nil && again > 0 {
			q.AddAfter(item, again)
		}
		return err
	})
}
