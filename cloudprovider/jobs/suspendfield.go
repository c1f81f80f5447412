package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SuspendField implements Suspender for systems whose object has a field for it, such as spec.suspend.
type SuspendField struct {
	Cluster Cluster
	// GVR is the resource of the job's object, Path that of the field in it.
	GVR  schema.GroupVersionResource
	Path []string
}

var _ Suspender = SuspendField{}

// Suspend sets the field, the held label and its annotations in one patch. An operator that is too old does not know the
// field, and the API server drops what the definition does not name: the label and the annotations are removed then.
func (s SuspendField) Suspend(ctx context.Context, job Job, reason Reason) (changed bool, err error) {
	if !job.NeedsSuspend(reason) {
		return false, nil
	}
	patch := s.Cluster.HoldPatch(job, HeldSuspended, reason).Set(true, s.Path...)
	object, err := s.Cluster.Patch(ctx, s.GVR, job.NamespacedName, job.UID, patch)
	if err != nil {
		return false, err
	}
	if set, _, err := unstructured.NestedBool(object.Object, s.Path...); err == nil && set {
		return true, nil
	}
	return false, errors.Join(
		fmt.Errorf("%s is not known to the operator that is installed: %w", strings.Join(s.Path, "."), ErrUnsupported),
		s.Cluster.PatchJob(ctx, s.GVR, job, ReleasePatch()),
	)
}

// Resume unsets the field and removes the label and the annotations in one patch. It leaves the number of workers as it is.
func (s SuspendField) Resume(ctx context.Context, job Job, _ int) (changed bool, err error) {
	if job.HeldAs() != HeldSuspended {
		return false, nil
	}
	if err := s.Cluster.PatchJob(ctx, s.GVR, job, ReleasePatch().Set(false, s.Path...)); err != nil {
		return false, err
	}
	return true, nil
}
