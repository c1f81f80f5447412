package nodes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// backoff gives an API server three quarters of a minute to come back. A kubelet never gives up.
var backoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: .2, Steps: 15, Cap: 5 * time.Second}

// retry repeats a call while the API server fails, and not while it refuses.
func (r *Registrar) retry(ctx context.Context, call func() error) error {
	delays := backoff
	for attempt := 1; ; attempt++ {
		err := call()
		if err == nil || refused(err) || attempt == backoff.Steps {
			return err
		}
		timer := r.clock.NewTimer(delays.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w, last error: %w", context.Cause(ctx), err)
		case <-timer.C():
		}
	}
}

// refused says whether the same call would fail again.
func refused(err error) bool {
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists, metav1.StatusReasonInvalid,
		metav1.StatusReasonBadRequest, metav1.StatusReasonForbidden, metav1.StatusReasonUnauthorized,
		metav1.StatusReasonMethodNotAllowed:
		return true
	}
	return false
}
