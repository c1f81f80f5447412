package etjob

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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// maxFailedScalers is how many times one change to a job is tried within failedScalerAge.
	maxFailedScalers = 3
	failedScalerAge  = 30 * time.Minute
	// executionTime is how long the operator may take from when it takes a ScaleIn to when it has noted the pods that it deleted.
	executionTime = 20 * time.Second
)

// scaler is a ScaleIn or a ScaleOut of a job, whoever made it.
//
// How et-operator deals with them was read in its source, commit 96806fb, which is what Arena installs:
//
//   - A running job takes the newest that has not ended and that it owns (setTrainingJobScaler), whenever the one worker that
//     reconciles all TrainingJobs of the cluster comes to it. So a ScaleIn may wait for minutes, and outlive the workers that
//     it names; a job that is restarted or resumed has workers of the same names.
//   - Of the pods that a ScaleIn names, those that exist when it begins are noted in status.toDeletePods. Where none exists,
//     *all* workers of the job are deleted without a grace period (executeScaleIn, DeleteWorkerPods of no names), and those of
//     jobs of the same name in other namespaces (getWorkerPods has labels only). From the note on, it keeps to these pods.
//     The note is written after the pods were deleted (the deferred updateObjectStatus of executeScaling).
//   - The status is complete only where the operator sets the owner itself (setScalingOwner). Of a scaler that has an owner,
//     the API server refuses the first status, for lack of the required replicaStatuses, and with it the condition from which
//     the timeout of a ScaleOut counts: the job would stay in the phase Scaling for good.
//   - One that was deleted ends for its job as if it were done (executeScaling).
type scaler struct {
	resource schema.GroupVersionResource
	object   *unstructured.Unstructured
	Spec     struct {
		Selector struct {
			Name string `json:"name"`
		} `json:"selector"`
		ToDelete struct {
			PodNames []string `json:"podNames"`
		} `json:"toDelete"`
	} `json:"spec"`
	Status struct {
		ToDeletePods []string    `json:"toDeletePods"`
		AddPods      []string    `json:"addPods"`
		Conditions   []condition `json:"conditions"`
	} `json:"status"`
}

func newScaler(resource schema.GroupVersionResource, object *unstructured.Unstructured) *scaler {
	s := &scaler{resource: resource, object: object}
	_ = jobs.Decode(object, s) // anybody may have written it: what cannot be read is taken for missing
	return s
}

func (s *scaler) String() string { return s.object.GetKind() + " " + s.object.GetName() }

// isOurs returns whether this project made the scaler, by its name.
func (s *scaler) isOurs() bool {
	return strings.HasPrefix(s.object.GetName(), scalerPrefix(s.Spec.Selector.Name))
}

func (s *scaler) hasFailed() bool { return s.condition("ScaleFailed") != nil }
func (s *scaler) hasEnded() bool  { return s.hasFailed() || s.condition("ScaleSucceeded") != nil }

// condition returns the condition of that type if it is true, else nil.
func (s *scaler) condition(kind string) *condition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == kind && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

// hasBegun returns whether the operator has noted which pods the scaler is about.
func (s *scaler) hasBegun() bool { return len(s.Status.ToDeletePods) > 0 || len(s.Status.AddPods) > 0 }

// isUnderWay returns whether the operator may have deleted workers that the scaler names, and not noted it yet: it took the scaler a
// moment ago, and none of the workers is there. To delete the scaler now would leave the job without them and with nobody to add
// them again. If they went for another reason just after the operator took the scaler, it deletes all workers; it does so within
// moments, and nothing tells the two apart.
func (s *scaler) isUnderWay(workers []corev1.Pod, now time.Time) bool {
	taken := s.condition("Scaling")
	if taken == nil || s.isAboutOneOf(workers) {
		return false
	}
	at, err := time.Parse(time.RFC3339, taken.LastTransitionTime)
	return err == nil && now.Sub(at).Abs() < executionTime
}

// namedOf returns those of the pods that the scaler names, if it is a ScaleIn.
func (s *scaler) namedOf(pods []string) []string {
	if s.resource != scaleIns {
		return nil
	}
	return intersection(s.Spec.ToDelete.PodNames, pods)
}

// isAboutOneOf returns whether the scaler is a ScaleIn that names one of the pods, and the pod is no newer than the scaler.
func (s *scaler) isAboutOneOf(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return !pod.CreationTimestamp.After(s.object.GetCreationTimestamp().Time) && len(s.namedOf([]string{pod.Name})) > 0
	})
}

// scalersOf returns all scalers of a job, also those that have ended.
func (s *System) scalersOf(ctx context.Context, job types.NamespacedName) ([]*scaler, error) {
	var scalers []*scaler
	for _, resource := range []schema.GroupVersionResource{scaleIns, scaleOuts} {
		found, err := s.cluster.Dynamic.Resource(resource).Namespace(job.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", resource.Resource, err)
		}
		for i := range found.Items {
			if scaler := newScaler(resource, &found.Items[i]); scaler.Spec.Selector.Name == job.Name {
				scalers = append(scalers, scaler)
			}
		}
	}
	return scalers, nil
}

// nextScaler returns the name of the ScaleIn or ScaleOut to make, empty where the same is at work already. The error is a
// BusyError where another is at work on the job. Scalers that have ended stay until the job is deleted, and are counted: the
// same change may be due twice, since the operator gives free names of workers to others. A ScaleIn of the leaving pods that
// has yet to begin is deleted, to make room for one of all of them.
func (s *System) nextScaler(ctx context.Context, job jobs.Job, name string, leaving ...string) (string, error) {
	scalers, err := s.scalersOf(ctx, job.NamespacedName)
	if err != nil {
		return "", err
	}
	var ended, failed int
	for _, scaler := range scalers {
		isSame := strings.HasPrefix(scaler.object.GetName(), name+"-")
		switch {
		case scaler.hasEnded() && isSame:
			ended++
			if scaler.hasFailed() && s.cluster.Clock.Since(scaler.object.GetCreationTimestamp().Time) < failedScalerAge {
				failed++
			}
		case scaler.hasEnded():
		case isSame:
			return "", nil
		case !scaler.hasBegun() && len(scaler.namedOf(leaving)) > 0:
			if err := s.deleteScaler(ctx, scaler); err != nil {
				return "", err
			}
		default:
			return "", &jobs.BusyError{With: scaler.String()}
		}
	}
	if failed >= maxFailedScalers {
		return "", fmt.Errorf("et-operator failed %d times at %s", failed, name)
	}
	return name + "-" + strconv.Itoa(ended), nil
}

// createScaler makes a scaler without an owner: see there. It returns false where another replica of the autoscaler was faster.
func (s *System) createScaler(
	ctx context.Context, resource schema.GroupVersionResource, kind, name string, job jobs.Job, spec map[string]any,
) (created bool, err error) {
	spec["selector"] = map[string]any{"name": job.Name}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetAPIVersion(resource.GroupVersion().String())
	object.SetKind(kind)
	object.SetNamespace(job.Namespace)
	object.SetName(name)
	_, err = s.cluster.Dynamic.Resource(resource).Namespace(job.Namespace).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return err == nil, err
}

// scalerName returns the same name for the same change to the same workers of the same job.
func scalerName(job jobs.Job, direction string, what ...string) string {
	sum := sha256.Sum256([]byte(string(job.UID) + "\n" + strings.Join(what, "\n")))
	return scalerPrefix(job.Name) + direction + "-" + hex.EncodeToString(sum[:5])
}

// scalerPrefix returns how the names of all scalers begin that this project makes for a job.
func scalerPrefix(job string) string {
	if len(job) > 40 { // so that the whole has no more than 63 characters, which is safe everywhere
		job = job[:40]
	}
	return strings.TrimRight(job, "-.") + "-spot-"
}

// isAny selects all scalers: those that were made for workers of one run of a job are not for those of the next.
func isAny(*scaler) bool { return true }

// deleteScalers deletes the scalers of the job that have not ended and are selected.
func (s *System) deleteScalers(ctx context.Context, job types.NamespacedName, isSelected func(*scaler) bool) error {
	scalers, err := s.scalersOf(ctx, job)
	if err != nil {
		return err
	}
	var errs []error
	for _, scaler := range scalers {
		if !scaler.hasEnded() && isSelected(scaler) {
			errs = append(errs, s.deleteScaler(ctx, scaler))
		}
	}
	return errors.Join(errs...)
}

// deleteScaler fails with a conflict where the scaler has changed since it was read: it may have begun.
func (s *System) deleteScaler(ctx context.Context, scaler *scaler) error {
	object := scaler.object
	err := s.cluster.Dynamic.Resource(scaler.resource).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: ptr.To(object.GetUID()), ResourceVersion: ptr.To(object.GetResourceVersion())},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", scaler, err)
	}
	klog.FromContext(ctx).Info("Deleted a scaler that must not be carried out any more", "scaler", scaler.String(), "namespace", object.GetNamespace())
	return nil
}
