package work

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/util/workqueue"
)

const (
	// podWorkers is how many requests are made at once for the pods of one Node or job.
	podWorkers = 8
	// podTimeout bounds one request. A server that is so busy that it takes seconds goes on with a request that was given up.
	podTimeout = 15 * time.Second
)

// Requests bounds how many requests for pods are made to the API server at once. It is safe for concurrent use.
type Requests struct{ inFlight *semaphore.Weighted }

// NewRequests returns a bound of so many requests at once.
func NewRequests(inFlight int64) *Requests { return &Requests{semaphore.NewWeighted(inFlight)} }

// ForEach calls do for each of the pods, several at a time, and returns the errors, that of ctx among them if it has ended. The
// context of each call ends after some seconds, counted from when the call may begin.
func (r *Requests) ForEach(ctx context.Context, pods []*corev1.Pod, do func(context.Context, *corev1.Pod) error) error {
	var mu sync.Mutex
	var errs []error
	workqueue.ParallelizeUntil(ctx, podWorkers, len(pods), func(i int) {
		if r.inFlight.Acquire(ctx, 1) != nil {
			return // ctx has ended
		}
		defer r.inFlight.Release(1)
		ctx, cancel := context.WithTimeout(ctx, podTimeout)
		defer cancel()
		if err := do(ctx, pods[i]); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	})
	if err := ctx.Err(); err != nil {
		errs = append(errs, err) // some pods may not have had their turn
	}
	return utilerrors.NewAggregate(errs)
}
