package jobs

import (
	"errors"
	"fmt"
)

// ErrUnchanged is how an Adapter says that nothing was to do. The Registry counts it apart, tells nobody, and returns nil.
var ErrUnchanged = errors.New("nothing to do")

// BusyError says that the job cannot be asked at the moment because of something that is under way. Try again later.
type BusyError struct {
	// With is the object under way, such as "ScaleIn train-1".
	With string
}

func (e *BusyError) Error() string { return "busy with " + e.With }

// FieldError says which field of a job is missing or malformed.
type FieldError struct {
	// Path is that of the field, such as "spec.elasticPolicy.minReplicas".
	Path string
	// Problem completes the sentence that the path begins.
	Problem string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Path, e.Problem) }

// TooManyPodsError says that a job asks for more pods than there can be a place for.
type TooManyPodsError struct {
	// Path is that of the template, Pods how many of it are asked for, Most for how many there is room.
	Path       string
	Pods, Most int
	// Workers: the template is that of the job's workers.
	Workers bool
}

func (e *TooManyPodsError) Error() string {
	return fmt.Sprintf("%d pods of %s are asked for, and there is room for %d at most", e.Pods, e.Path, e.Most)
}
