package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SuspendField implements Suspender, and the Resource of a System, for systems whose object has a field for it, such as
// spec.suspend.
type SuspendField struct {
	Cluster  Cluster
	resource schema.GroupVersionResource
	path     []string
}

var _ Suspender = SuspendField{}

// NewSuspendField returns the SuspendField for the field at the path in objects of the resource.
func NewSuspendField(cluster Cluster, resource schema.GroupVersionResource, path ...string) SuspendField {
	return SuspendField{Cluster: cluster, resource: resource, path: path}
}

// Resource returns the resource of the job's object.
func (s SuspendField) Resource() schema.GroupVersionResource { return s.resource }

// Suspend sets the field, the held label and its annotations in one patch. An operator that is too old does not know the
// field, and the API server drops what the definition does not name: the label and the annotations are removed then.
func (s SuspendField) Suspend(ctx context.Context, job Job, reason Reason) (changed bool, err error) {
	if !job.NeedsSuspend(reason) {
		return false, nil
	}
	patch := s.Cluster.HoldPatch(job, HeldSuspended, reason).Set(true, s.path...)
	object, err := s.Cluster.Patch(ctx, s.resource, job.NamespacedName, job.UID, patch)
	if err != nil {
		return false, err
	}
	if set, _, err := unstructured.NestedBool(object.Object, s.path...); err == nil && set {
		return true, nil
	}
	return false, errors.Join(
		fmt.Errorf("%s is not known to the operator that is installed: %w", strings.Join(s.path, "."), ErrUnsupported),
		s.Cluster.PatchJob(ctx, s.resource, job, UnholdPatch()),
	)
}

// Resume unsets the field and removes the label and the annotations in one patch. It leaves the number of workers as it is.
func (s SuspendField) Resume(ctx context.Context, job Job, _ int) (changed bool, err error) {
	if job.HeldAs() != HeldSuspended {
		return false, nil
	}
	if err := s.Cluster.PatchJob(ctx, s.resource, job, UnholdPatch().Set(false, s.path...)); err != nil {
		return false, err
	}
	return true, nil
}
