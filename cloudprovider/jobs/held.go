package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// HeldAs is how a job is held: a value of api.LabelHeld, empty for jobs that are not held.
type HeldAs string

const (
	HeldSuspended HeldAs = "suspended"
	HeldShrunk    HeldAs = "shrunk"
)

// HeldAs returns how the job is held.
func (j Job) HeldAs() HeldAs {
	if j.Object == nil {
		return ""
	}
	return HeldAs(j.Object.GetLabels()[api.LabelHeld])
}

// HeldReason returns the reason for which the job is held.
func (j Job) HeldReason() HoldReason {
	if j.Object == nil {
		return ""
	}
	return HoldReason(j.Object.GetAnnotations()[api.AnnotationHeldReason])
}

// FullReplicas returns how many workers the job asked for before it was held, and no more than its maximum, or how many it asks
// for if it is not held.
func (j Job) FullReplicas() int {
	if j.HeldAs() == "" {
		return j.Replicas
	}
	return min(cmp.Or(HeldReplicas(j.Object), j.Replicas), j.Max)
}

// HeldReplicas returns how many workers the job asked for before it was held, zero if that is not written on it.
func HeldReplicas(job *unstructured.Unstructured) int {
	replicas, err := strconv.ParseInt(job.GetAnnotations()[api.AnnotationHeldReplicas], 10, 32)
	if err != nil {
		return 0
	}
	return max(0, int(replicas))
}

// NeedsSuspend returns whether Suspend has anything left to do. It has not if the job has ended, if the autoscaler suspended it
// for the same reason, or if somebody else suspended it.
func (j Job) NeedsSuspend(reason HoldReason) bool {
	if j.Finished {
		return false
	}
	return !j.Suspended || j.HeldAs() == HeldSuspended && j.HeldReason() != reason
}

// HoldPatch returns the patch that writes the held label and annotations.
func (c Cluster) HoldPatch(job Job, how HeldAs, reason HoldReason) Patch {
	patch := Patch{}.Set(string(how), "metadata", "labels", api.LabelHeld).
		SetAnnotation(api.AnnotationHeldReason, string(reason)).
		SetAnnotation(api.AnnotationHeldSince, c.heldSince(job, how)).
		SetAnnotation(api.AnnotationHeldReplicas, strconv.Itoa(job.FullReplicas()))
	if len(job.Parts) > 0 {
		patch.SetAnnotation(api.AnnotationHeldParts, formatParts(job.Parts))
	}
	return patch
}

// heldSince returns when the job was first suspended, or now for one that is shrunk, or runs again: so that the patch changes the object in any
// case, and an Unhold that was decided before it finds the job held anew.
func (c Cluster) heldSince(job Job, how HeldAs) string {
	if since := job.Object.GetAnnotations()[api.AnnotationHeldSince]; since != "" && how == HeldSuspended && job.HeldAs() == how && job.Suspended {
		return since
	}
	return c.Clock.Now().UTC().Format(time.RFC3339)
}

// isHeldAnewSince returns whether the job has been held, or held once more, since it was read before.
func (j Job) isHeldAnewSince(before Job) bool {
	since := func(job Job) string { return job.Object.GetAnnotations()[api.AnnotationHeldSince] }
	return before.Object != nil && since(j) != since(before)
}

// UnholdPatch returns the patch that removes what HoldPatch has written.
func UnholdPatch() Patch {
	patch := Patch{}.Set(nil, "metadata", "labels", api.LabelHeld)
	for _, key := range []string{api.AnnotationHeldReason, api.AnnotationHeldSince, api.AnnotationHeldReplicas, api.AnnotationHeldParts} {
		patch.SetAnnotation(key, nil)
	}
	return patch
}

// Unhold sends a patch of the job's object that removes what HoldPatch has written. A job that was not suspended when it was read may be
// suspended at this moment, and would lose the label by which it is resumed: the error is a BusyError if its object has changed since.
func (c Cluster) Unhold(ctx context.Context, resource schema.GroupVersionResource, job Job, patch Patch) error {
	if !job.Suspended {
		patch.Set(job.Object.GetResourceVersion(), "metadata", "resourceVersion")
	}
	err := c.PatchJob(ctx, resource, job, patch)
	if apierrors.IsConflict(err) {
		return errChanged
	}
	return err
}

// formatParts writes Refs of the job's own namespace as "<system>/<name>".
func formatParts(parts []Ref) string {
	names := make([]string, 0, len(parts))
	for _, part := range parts {
		names = append(names, part.System+"/"+part.Name)
	}
	return strings.Join(names, ",")
}

// parseParts leaves out what is malformed.
func parseParts(namespace, text string) (parts []Ref) {
	for entry := range strings.SplitSeq(text, ",") {
		if system, name, ok := strings.Cut(entry, "/"); ok {
			parts = append(parts, NewRef(system, namespace, name))
		}
	}
	return parts
}

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
func (s SuspendField) Suspend(ctx context.Context, job Job, reason HoldReason) (changed bool, err error) {
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
	err = s.Cluster.Unhold(ctx, s.resource, job, UnholdPatch().Set(false, s.path...))
	return err == nil, err
}

// SavedWork is how much useful work of a job is saved in checkpoints, as it is written on the job.
type SavedWork struct {
	Work time.Duration
	// Of is all of the work, as the pods of the job stated it then. If it is empty, or they state the same, Work is a part of that.
	Of string
	// At is when it was saved, zero if that is not said.
	At time.Time
}

// SavedWork returns what is written on the job. What cannot be read is not said.
func (j Job) SavedWork() (saved SavedWork) {
	if j.Object == nil {
		return SavedWork{}
	}
	annotations := j.Object.GetAnnotations()
	work, err := time.ParseDuration(annotations[api.AnnotationWorkSaved])
	if err != nil || work < 0 {
		return SavedWork{}
	}
	at, _ := time.Parse(time.RFC3339, annotations[api.AnnotationWorkSavedAt])
	return SavedWork{Work: work, Of: annotations[api.AnnotationWorkSavedOf], At: at}
}

// noteOn has a pod that states the work say how much of it is saved.
func (s SavedWork) noteOn(pod *corev1.Pod) {
	stated, has := pod.Annotations[api.AnnotationWork]
	if has && s.Work > 0 && (s.Of == "" || s.Of == stated) {
		pod.Annotations[api.AnnotationWorkSaved] = s.Work.String()
	}
}

// Notes are a Registry that writes on jobs what they have saved. They are safe for concurrent use.
type Notes struct{ *Registry }

// NewNotes returns the Notes on the jobs of a Registry.
func NewNotes(registry *Registry) Notes { return Notes{registry} }

// NoteWork writes on the job how much of its work is saved. The error wraps ErrUnsupported for jobs that cannot be suspended, on which nothing may be
// written.
func (n Notes) NoteWork(ctx context.Context, job Job, saved SavedWork) error {
	return n.act(ctx, job, action{name: "note", do: func(ctx context.Context, system System, job Job) (bool, error) {
		if _, ok := system.(Suspender); !ok {
			return false, ErrUnsupported
		}
		return true, n.config.Cluster.PatchJob(ctx, system.Resource(), job, Patch{}.
			SetAnnotation(api.AnnotationWorkSaved, saved.Work.String()).
			SetAnnotation(api.AnnotationWorkSavedOf, saved.Of).
			SetAnnotation(api.AnnotationWorkSavedAt, saved.At.UTC().Format(time.RFC3339)))
	}})
}
