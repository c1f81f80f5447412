package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

var (
	scaleIns  = schema.GroupVersionResource{Group: kaiGroup, Version: "v1alpha1", Resource: "scaleins"}
	scaleOuts = schema.GroupVersionResource{Group: kaiGroup, Version: "v1alpha1", Resource: "scaleouts"}
)

const (
	// maxFailedScalers is how many times one change to a job is tried within failedScalerAge.
	maxFailedScalers = 3
	failedScalerAge  = 30 * time.Minute
)

// scaler is a ScaleIn or a ScaleOut of a job, whoever made it.
//
// How et-operator deals with them was read in its source, commit 96806fb, which is what Arena installs:
//
//   - A running job takes the newest that has not ended and that it owns (setTrainingJobScaler), whenever the one worker that
//     looks after all TrainingJobs of the cluster comes to it. So a ScaleIn may wait for minutes, and outlive the workers that
//     it names; a job that is restarted or resumed has workers of the same names.
//   - Of the pods that a ScaleIn names, those that are there when it is begun are noted in status.toDeletePods. Where none is,
//     *all* workers of the job are deleted with no grace (executeScaleIn, DeleteWorkerPods of no names). From the note on,
//     it keeps to these pods.
//   - The status is only made complete where the operator sets the owner itself (setScalingOwner). Of a scaler that has an
//     owner, the API server refuses the first status, for lack of the required replicaStatuses, and with it the condition
//     from which the time-out of a ScaleOut counts: the job would stay in the phase Scaling for good.
//   - One that is gone ends for its job as if it were done (executeScaling).
type scaler struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
}

func (s scaler) String() string { return s.object.GetKind() + " " + s.object.GetName() }

func (s scaler) failed() bool { return condition(s.object, "ScaleFailed") }
func (s scaler) ended() bool  { return condition(s.object, "ScaleSucceeded", "ScaleFailed") }

// begun says whether the operator has noted which pods it is about.
func (s scaler) begun() bool {
	for _, field := range []string{"toDeletePods", "addPods"} {
		if pods, _, _ := unstructured.NestedStringSlice(s.object.Object, "status", field); len(pods) > 0 {
			return true
		}
	}
	return false
}

// takesOut says whether it is a ScaleIn that names one of the pods.
func (s scaler) takesOut(pods []string) bool { return len(s.namedOf(pods)) > 0 }

// namedOf are those of the pods that it names, where it is a ScaleIn.
func (s scaler) namedOf(pods []string) []string {
	if s.resource != scaleIns {
		return nil
	}
	named, _, _ := unstructured.NestedStringSlice(s.object.Object, "spec", "toDelete", "podNames")
	return inBoth(named, pods)
}

// scalersOf are all of a job, those that have ended too.
func (t *trainingJob) scalersOf(ctx context.Context, job types.NamespacedName) ([]scaler, error) {
	var scalers []scaler
	for _, resource := range []schema.GroupVersionResource{scaleIns, scaleOuts} {
		found, err := t.dynamic.Resource(resource).Namespace(job.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", resource.Resource, err)
		}
		for i := range found.Items {
			if target, _, _ := unstructured.NestedString(found.Items[i].Object, "spec", "selector", "name"); target == job.Name {
				scalers = append(scalers, scaler{resource, &found.Items[i]})
			}
		}
	}
	return scalers, nil
}

// nextScaler names the ScaleIn or ScaleOut to make. The error is a BusyError where another is at work on the job, and
// ErrUnchanged where it is this very one. Ended ones stay until the job goes, and are counted: the same change may be due
// twice, since the operator gives names of workers to others once they are free. A ScaleIn of pods that are leaving, which
// has yet to begin, makes room for one of all that leave.
func (t *trainingJob) nextScaler(ctx context.Context, job Job, name string, leaving ...string) (string, error) {
	scalers, err := t.scalersOf(ctx, job.NamespacedName)
	if err != nil {
		return "", err
	}
	var ended, failed int
	for _, scaler := range scalers {
		same := strings.HasPrefix(scaler.object.GetName(), name+"-")
		switch {
		case scaler.ended() && same:
			ended++
			if scaler.failed() && t.clock.Since(scaler.object.GetCreationTimestamp().Time) < failedScalerAge {
				failed++
			}
		case scaler.ended():
		case same:
			return "", ErrUnchanged
		case !scaler.begun() && scaler.takesOut(leaving):
			if err := t.deleteScaler(ctx, scaler); err != nil {
				return "", err
			}
		default:
			return "", &BusyError{With: scaler.String()}
		}
	}
	if failed >= maxFailedScalers {
		return "", fmt.Errorf("et-operator failed %d times at %s", failed, name)
	}
	return name + "-" + strconv.Itoa(ended), nil
}

// scale makes a scaler. It has no owner: see there.
func (t *trainingJob) scale(ctx context.Context, resource schema.GroupVersionResource, kind, name string, job Job, spec map[string]any) error {
	spec["selector"] = map[string]any{"name": job.Name}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion(resource.GroupVersion().String())
	object.SetKind(kind)
	object.SetNamespace(job.Namespace)
	object.SetName(name)
	_, err := t.dynamic.Resource(resource).Namespace(job.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return ErrUnchanged // another of us was faster
	}
	return err
}

// scalerName is the same for the same change to the same workers of the same job.
func scalerName(job Job, direction string, what ...string) string {
	sum := sha256.Sum256([]byte(string(job.UID) + "\n" + strings.Join(what, "\n")))
	name := job.Name
	if len(name) > 40 { // a name of 63 is safe everywhere
		name = name[:40]
	}
	return fmt.Sprintf("%s-spot-%s-%s", strings.TrimRight(name, "-."), direction, hex.EncodeToString(sum[:5]))
}

// Shrinking names those of the pods that the operator has yet to take out of the job. What waits for a job that does not run
// is of its former life.
func (t *trainingJob) Shrinking(ctx context.Context, job Job, pods []string) ([]string, error) {
	phase, err := phase(job.Object, "phase")
	if err != nil || phase != trainingPhaseRunning && phase != trainingPhaseScaling {
		return nil, err
	}
	scalers, err := t.scalersOf(ctx, job.NamespacedName)
	if err != nil {
		return nil, err
	}
	var leaving []string
	for _, scaler := range scalers {
		if !scaler.ended() {
			leaving = append(leaving, scaler.namedOf(pods)...)
		}
	}
	slices.Sort(leaving)
	return slices.Compact(leaving), nil
}

// CancelShrink removes each ScaleIn of the pods that has yet to begin. Those that have begun may lose their pods.
func (t *trainingJob) CancelShrink(ctx context.Context, job types.NamespacedName, pods []string) error {
	return t.deleteScalers(ctx, job, func(s scaler) bool { return !s.begun() && s.takesOut(pods) })
}

// deleteScalers removes those of the job that have not ended and are chosen.
func (t *trainingJob) deleteScalers(ctx context.Context, job types.NamespacedName, chosen func(scaler) bool) error {
	scalers, err := t.scalersOf(ctx, job)
	if err != nil {
		return err
	}
	var errs []error
	for _, scaler := range scalers {
		if !scaler.ended() && chosen(scaler) {
			errs = append(errs, t.deleteScaler(ctx, scaler))
		}
	}
	return errors.Join(errs...)
}

// deleteScaler fails with a conflict where the scaler has changed since it was read: it may have begun.
func (t *trainingJob) deleteScaler(ctx context.Context, s scaler) error {
	err := t.dynamic.Resource(s.resource).Namespace(s.object.GetNamespace()).Delete(ctx, s.object.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(s.object.GetUID()), ResourceVersion: ptr.To(s.object.GetResourceVersion())},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting %s: %w", s, err)
	}
	klog.FromContext(ctx).Info("Removed a scaler that its job must not meet any more", "scaler", s.String(), "namespace", s.object.GetNamespace())
	return nil
}
