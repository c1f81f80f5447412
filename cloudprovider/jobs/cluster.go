package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Cluster is what systems use to read and change the cluster.
type Cluster struct {
	// Dynamic reads and changes the objects of jobs.
	Dynamic dynamic.Interface
	// Client finds pods.
	Client kubernetes.Interface
	Clock  clock.WithTicker
}

// PatchJob sends one merge patch of the job's object. The error wraps ErrNoObject if another job has the name by now.
func (c Cluster) PatchJob(ctx context.Context, resource schema.GroupVersionResource, job Job, patch Patch) error {
	_, err := c.Patch(ctx, resource, job.NamespacedName, job.UID, patch)
	return err
}

// Patch sends one merge patch of an object, and returns the object as it is then. The error wraps ErrNoObject if another object
// has the name by now.
func (c Cluster) Patch(
	ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName, uid types.UID, patch Patch, subresources ...string,
) (*unstructured.Unstructured, error) {
	body, err := patch.Set(string(uid), "metadata", "uid").marshal()
	if err != nil {
		return nil, err
	}
	object, err := c.Dynamic.Resource(resource).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
	if isOfAnotherUID(err) {
		return nil, fmt.Errorf("another job has its name by now: %w: %w", ErrNoObject, err)
	}
	return object, err
}

// isOfAnotherUID returns whether the API server has refused a patch because the object has another UID. That is no conflict: the UID
// is validated as a field that must not change (ValidateObjectMetaAccessorUpdate in k8s.io/apimachinery/pkg/api/validation).
func isOfAnotherUID(err error) bool {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	isUID := func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" }
	return slices.ContainsFunc(status.Status().Details.Causes, isUID)
}

// Patch is a JSON merge patch of an object. A value of nil removes its field.
type Patch map[string]any

// Set sets a field, and returns the patch. Numbers have to be int64. It panics where the path leads through a field that is
// no object, which is a mistake in the program.
func (p Patch) Set(value any, path ...string) Patch {
	if err := unstructured.SetNestedField(p, value, path...); err != nil {
		panic(fmt.Sprintf("jobs: malformed patch: %v", err))
	}
	return p
}

// SetAnnotation sets an annotation, or removes it where the value is nil, and returns the patch.
func (p Patch) SetAnnotation(key string, value any) Patch {
	return p.Set(value, "metadata", "annotations", key)
}

func (p Patch) marshal() ([]byte, error) { return json.Marshal(map[string]any(p)) }
