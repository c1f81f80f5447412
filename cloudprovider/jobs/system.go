package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// cluster is what adapters work on.
type cluster struct {
	dynamic dynamic.Interface
	client  kubernetes.Interface
	clock   clock.PassiveClock
}

// adapters returns those of all systems. The first that knows a pod has it, so that what renders another system's objects
// stands before that one.
func adapters(c *cluster) []Adapter {
	return []Adapter{
		newTrainingJob(c),
		newMPIJob(c), newMPIJobV1(c),
		newPyTorchJob(c),
		newDLRover(c),
		newAITrainingJob(c),
		newRayJob(c), newRayCluster(c),
		newVolcano(c),
		newJobSet(c),
		newBatchJob(c),
	}
}

// system is what adapters have in common: by itself, a system whose jobs need nothing when they lose pods, and that cannot
// be suspended.
type system struct {
	*cluster
	name     string
	resource schema.GroupVersionResource
	kind     string
}

func (s *system) System() string                        { return s.name }
func (s *system) Resource() schema.GroupVersionResource { return s.resource }
func (s *system) Kind() string                          { return s.kind }

func (s *system) Warn(context.Context, Job, Warning) error    { return ErrUnchanged }
func (s *system) Shrink(context.Context, Job, []string) error { return ErrUnchanged }
func (s *system) Grow(context.Context, Job, int) error        { return ErrUnchanged }
func (s *system) Suspend(context.Context, Job, Reason) error  { return ErrUnsupported }
func (s *system) Resume(context.Context, Job, int) error      { return ErrUnsupported }

// ref names a job of the system.
func (s *system) ref(namespace, name string) Ref {
	return Ref{System: s.name, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

func refTo(adapter Adapter, object *unstructured.Unstructured) Ref {
	return Ref{System: adapter.System(), NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}}
}

// patch is a merge patch of an object.
type patch map[string]any

// patchJob sends one patch of the job's object. It is refused where another job has the name by now.
func (s *system) patchJob(ctx context.Context, job Job, change patch, subresources ...string) error {
	_, err := s.patchObject(ctx, s.resource, job.NamespacedName, job.UID, change, subresources...)
	return err
}

func (c *cluster) patchObject(
	ctx context.Context, resource schema.GroupVersionResource, name types.NamespacedName, uid types.UID, change patch, subresources ...string,
) (*unstructured.Unstructured, error) {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"] = string(uid)
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	object, err := c.dynamic.Resource(resource).Namespace(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, body, metav1.PatchOptions{}, subresources...)
	if apierrors.IsConflict(err) { // there is no resourceVersion in the patch: it is the UID
		return nil, fmt.Errorf("another job has its name by now: %w: %w", ErrNoObject, err)
	}
	return object, err
}

// held marks a job as held by us: the metadata of a patch.
func (c *cluster) held(job Job, how string, reason Reason) map[string]any {
	annotations := map[string]any{
		api.AnnotationHeldReason:   string(reason),
		api.AnnotationHeldSince:    c.heldSince(job, how),
		api.AnnotationHeldReplicas: strconv.Itoa(wanted(job)),
	}
	if len(job.Parts) > 0 {
		annotations[api.AnnotationHeldParts] = formatParts(job.Parts)
	}
	return map[string]any{"labels": map[string]any{api.LabelHeld: how}, "annotations": annotations}
}

// formatParts writes Refs of the job's own namespace as "<system>/<name>".
func formatParts(parts []Ref) string {
	names := make([]string, 0, len(parts))
	for _, part := range parts {
		names = append(names, part.System+"/"+part.Name)
	}
	return strings.Join(names, ",")
}

// parseParts leaves out what is no Ref.
func parseParts(namespace, text string) (parts []Ref) {
	for entry := range strings.SplitSeq(text, ",") {
		if system, name, ok := strings.Cut(entry, "/"); ok {
			parts = append(parts, Ref{System: system, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		}
	}
	return parts
}

// heldSince is when the job was suspended, or when it was last shrunk.
func (c *cluster) heldSince(job Job, how string) string {
	if since := job.Object.GetAnnotations()[api.AnnotationHeldSince]; since != "" && how == HeldSuspended && heldAs(job) == how {
		return since
	}
	return c.clock.Now().UTC().Format(time.RFC3339)
}

// released takes the marks off: the metadata of a patch.
func released() map[string]any {
	return map[string]any{
		"labels": map[string]any{api.LabelHeld: nil},
		"annotations": map[string]any{
			api.AnnotationHeldReason: nil, api.AnnotationHeldSince: nil, api.AnnotationHeldReplicas: nil, api.AnnotationHeldParts: nil,
		},
	}
}

// heldAs is the value of api.LabelHeld, empty for jobs that are not held.
func heldAs(job Job) string {
	if job.Object == nil {
		return ""
	}
	return job.Object.GetLabels()[api.LabelHeld]
}

// heldFor is the reason for which the job is held.
func heldFor(job Job) Reason {
	if job.Object == nil {
		return ""
	}
	return Reason(job.Object.GetAnnotations()[api.AnnotationHeldReason])
}

// wanted is how many workers the job asked for before it was held, or asks for.
func wanted(job Job) int {
	if job.Object == nil || heldAs(job) == "" {
		return job.Replicas
	}
	replicas, err := strconv.Atoi(job.Object.GetAnnotations()[api.AnnotationHeldReplicas])
	if err != nil || replicas < 0 {
		return job.Replicas
	}
	return replicas
}

// suspended says what is left to do to suspend a job, for systems where it is a field of the object: nothing where it has
// ended, where it was us and for that reason, or where it was somebody else.
func suspended(job Job, reason Reason) (done bool) {
	if job.Finished {
		return true
	}
	return job.Suspended && (heldAs(job) != HeldSuspended || heldFor(job) == reason)
}

// setSuspend is Suspend and Resume of systems that have a field for it.
type setSuspend struct {
	*system
	path []string
}

// Suspend sets the field and the marks in one patch. Old operators do not know the field, and the API server drops
// what the definition does not name: the marks are taken off then.
func (s *setSuspend) Suspend(ctx context.Context, job Job, reason Reason) error {
	if suspended(job, reason) {
		return ErrUnchanged
	}
	change := patch{"metadata": s.held(job, HeldSuspended, reason)}
	setNested(change, true, s.path...)
	object, err := s.patchObject(ctx, s.resource, job.NamespacedName, job.UID, change)
	if err != nil {
		return err
	}
	if set, err := fieldsOf(object).flagAt(s.path...); err == nil && set {
		return nil
	}
	return errors.Join(
		fmt.Errorf("%s is not known to the operator that is installed: %w", strings.Join(s.path, "."), ErrUnsupported),
		s.patchJob(ctx, job, patch{"metadata": released()}),
	)
}

func (s *setSuspend) Resume(ctx context.Context, job Job, _ int) error {
	if heldAs(job) != HeldSuspended {
		return ErrUnchanged
	}
	change := patch{"metadata": released()}
	setNested(change, false, s.path...)
	return s.patchJob(ctx, job, change)
}

// setNested sets a field of a patch.
func setNested(change patch, value any, path ...string) {
	at := map[string]any(change)
	for _, field := range path[:len(path)-1] {
		next, ok := at[field].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[field] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
}
