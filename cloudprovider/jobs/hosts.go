package jobs

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// refreshHostsAfter is when a launcher's list of workers is refreshed after a Shrink or a GrowBeyond: once the pods have gone, given the usual
// grace period, and once those that replace them, or are added, may have started on nodes that were there.
var refreshHostsAfter = []time.Duration{10 * time.Second, 45 * time.Second}

// hostsQueue refreshes the lists of workers of launchers later. What is queued is lost with the process, which costs the job
// the minute that the kubelet takes.
type hostsQueue struct {
	clock   clock.WithTicker
	refresh func(ctx context.Context, ref Ref) error

	mu    sync.Mutex
	queue workqueue.TypedDelayingInterface[hostsRefresh] // nil while nothing refreshes
}

// hostsRefresh is one refresh that is due.
type hostsRefresh struct {
	Ref
	after time.Duration
}

func (h *hostsQueue) add(ref Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queue == nil {
		return
	}
	for _, after := range refreshHostsAfter {
		h.queue.AddAfter(hostsRefresh{ref, after}, after)
	}
}

// start takes in refreshes from now on and returns what carries them out until ctx ends.
func (h *hostsQueue) start(ctx context.Context) (run func()) {
	queue := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[hostsRefresh]{Clock: h.clock})
	h.replace(queue)
	context.AfterFunc(ctx, queue.ShutDown)
	return func() {
		defer h.replace(nil)
		for {
			due, shutdown := queue.Get()
			if shutdown {
				return
			}
			if err := h.refresh(ctx, due.Ref); err != nil {
				klog.FromContext(ctx).Error(err, "Could not refresh the launcher's list of workers", "job", due.Ref)
			}
			queue.Done(due)
		}
	}
}

func (h *hostsQueue) replace(queue workqueue.TypedDelayingInterface[hostsRefresh]) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queue = queue
}
