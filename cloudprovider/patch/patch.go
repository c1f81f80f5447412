// Package patch changes objects of the API server that are known by their UID. The name of an object may belong to another one by now:
// a pod of a StatefulSet or of an indexed Job is made anew under its name, and a Node is registered again.
package patch

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
)

// Client is a client of one kind of object, such as CoreV1().Pods(namespace).
type Client[T any] interface {
	Patch(ctx context.Context, name string, kind types.PatchType, body []byte, options metav1.PatchOptions, subresources ...string) (T, error)
}

// Annotate sets annotations of the object, and removes those of which the value is nil. It returns a NotFound error if the object is gone,
// even if another has its name by now.
func Annotate[T any](ctx context.Context, client Client[T], object metav1.Object, annotations map[string]any) error {
	_, err := Send(ctx, client, object, types.MergePatchType, map[string]any{"metadata": map[string]any{"annotations": annotations}}, metav1.PatchOptions{})
	return err
}

// Send sends a patch, to which it adds the UID of the object, and returns the object as it is then. Like Annotate it returns a NotFound error
// if the object is gone.
func Send[T any](
	ctx context.Context, client Client[T], object metav1.Object, kind types.PatchType, patch map[string]any, options metav1.PatchOptions,
	subresources ...string,
) (patched T, err error) {
	if err := unstructured.SetNestedField(patch, string(object.GetUID()), "metadata", "uid"); err != nil {
		return patched, fmt.Errorf("add the UID to a patch: %w", err)
	}
	body, err := json.Marshal(patch)
	if err != nil {
		return patched, fmt.Errorf("marshal a patch: %w", err)
	}
	patched, err = client.Patch(ctx, object.GetName(), kind, body, options, subresources...)
	if refused := refusal(err); isOfAnotherUID(refused) {
		kind := schema.GroupResource{Group: refused.Group, Resource: refused.Kind}
		err = fmt.Errorf("another has its name by now: %w: %w", apierrors.NewNotFound(kind, object.GetName()), err)
	}
	return patched, err
}

// refusal returns what the API server says is invalid, nil if the error is another one.
func refusal(err error) *metav1.StatusDetails {
	status := apierrors.APIStatus(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) {
		return nil
	}
	return status.Status().Details
}

// isOfAnotherUID returns whether the object has another UID than the patch. That is no conflict: the UID is validated as a field that must
// not change (ValidateObjectMetaAccessorUpdate in k8s.io/apimachinery/pkg/api/validation). An end-to-end test asks a real API server.
func isOfAnotherUID(refused *metav1.StatusDetails) bool {
	isUID := func(cause metav1.StatusCause) bool { return cause.Field == "metadata.uid" }
	return refused != nil && slices.ContainsFunc(refused.Causes, isUID)
}
