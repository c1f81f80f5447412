package jobs

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

var (
	// ErrUnsupported is returned for what a system cannot do, or what this project may not do to the job.
	ErrUnsupported = errors.New("not supported by the job's system")
	// ErrNoObject is returned for jobs without an object: the object is gone, its definition is not installed, or the pods
	// belong to no known system.
	ErrNoObject = errors.New("the job has no object")
)

// BusyError says that the job cannot be changed at the moment because of something that is under way. Try again later.
type BusyError struct {
	// With completes "busy with": the object under way, such as "ScaleIn train-1", or what else has to be waited for.
	With string
}

func (e *BusyError) Error() string { return "busy with " + e.With }

// errChanged is why nothing was done that was decided by what the job's object said before.
var errChanged error = &BusyError{With: "a change of the job since this was decided"}

// ErrNotGrown is why a job does not get more workers than it asks for, though it is to. It wraps ErrUnsupported.
var ErrNotGrown = fmt.Errorf("it is not grown: %w", ErrUnsupported)

// FieldError says which field of a job is missing or malformed.
type FieldError struct {
	// Path is that of the field, such as "spec.elasticPolicy.minReplicas".
	Path string
	// Problem completes the sentence that the path begins.
	Problem string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Problem) }

// Missing returns the FieldError of a field that has to be there.
func Missing(path string) error { return &FieldError{Path: path, Problem: "is missing"} }

// TooManyPodsError says that a job asks for more pods than there could be capacity for.
type TooManyPodsError struct {
	// Path is that of the template, Pods how many pods of it are asked for, Most for how many there could be capacity.
	Path       string
	Pods, Most int
	// Workers is true if the template is that of the job's workers.
	Workers bool
}

func (e *TooManyPodsError) Error() string {
	return fmt.Sprintf("%d pods of %s are asked for, and there could be capacity for %d at most", e.Pods, e.Path, e.Most)
}

// withErrNoObject has the API server's answer that there is no such object wrap ErrNoObject.
func withErrNoObject(err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: %w", ErrNoObject, err)
	}
	return err
}
