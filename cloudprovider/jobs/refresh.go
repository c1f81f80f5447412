package jobs

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// refresher is an adapter whose jobs have to be told that workers have gone and come, which is some time after Shrink.
type refresher interface {
	Refresh(ctx context.Context, job Job) error
}

// refreshAfter is when, after a Shrink: once the pods of the usual grace period have gone, and once those that replace them
// may have started on nodes that were there.
var refreshAfter = []time.Duration{10 * time.Second, 45 * time.Second}

// refresh is one telling that is due.
type refresh struct {
	Ref
	after time.Duration
}

// scheduleRefresh has the job told later, where its system needs it. What is scheduled is lost when Run ends, which
// costs the job a minute.
func (r *Registry) scheduleRefresh(adapter Adapter, ref Ref) {
	if _, ok := adapter.(refresher); !ok {
		return
	}
	r.services.mu.RLock()
	defer r.services.mu.RUnlock()
	if r.refreshes == nil {
		return
	}
	for _, after := range refreshAfter {
		r.refreshes.AddAfter(refresh{ref, after}, after)
	}
}

// runRefreshes tells jobs until the queue is shut down.
func (r *Registry) runRefreshes(ctx context.Context, queue workqueue.TypedDelayingInterface[refresh]) {
	for {
		due, shutdown := queue.Get()
		if shutdown {
			return
		}
		if adapter, err := r.adapter(due.Ref); err == nil {
			bounded, cancel := context.WithTimeout(ctx, r.config.Timeout)
			if err := adapter.(refresher).Refresh(bounded, Job{Ref: due.Ref}); err != nil {
				klog.ErrorS(err, "Cannot have a launcher look at its hosts", "job", due.Ref)
			}
			cancel()
		}
		queue.Done(due)
	}
}

func newRefreshes(clk clock.WithTicker) workqueue.TypedDelayingInterface[refresh] {
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[refresh]{Clock: clk})
}
