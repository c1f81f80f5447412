// Package work has what all parts of a reclaim work with: queues with their workers, and a bound on requests for pods.
package work

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// FirstRetry is how soon something that failed is tried again at first. Notices leave minutes, so retries start fast.
const FirstRetry = 100 * time.Millisecond

// Queue holds what has to be looked at: names of Nodes, or parties. It is safe for concurrent use.
type Queue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
}

// NewQueue returns a queue with a name for its metrics, in which no retry waits longer than slowestRetry.
func NewQueue[T comparable](name string, clk clock.WithTicker, slowestRetry time.Duration) Queue[T] {
	return Queue[T]{workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](FirstRetry, slowestRetry),
		workqueue.TypedRateLimitingQueueConfig[T]{Name: name, Clock: clk})}
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
			klog.FromContext(ctx).Error(err, "Will try again", "item", item)
			q.AddRateLimited(item)
		}
		q.Done(item)
	}
}
