// Package patchtest has what the API server answers, for tests with a fake client.
package patchtest

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// AnotherUID returns the answer to a patch that names a UID which is not that of the object. An end-to-end test compares it with that of a
// real API server.
func AnotherUID(kind, name string) *apierrors.StatusError {
	return apierrors.NewInvalid(schema.GroupKind{Kind: kind}, name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), "uid-before", "field is immutable"),
	})
}
