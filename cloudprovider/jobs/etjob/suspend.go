package etjob

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// workerReplicas is the path of the number of workers that a job starts with.
func workerReplicas() []string { return []string{"spec", "etReplicaSpecs", "worker", "replicas"} }

// Suspend sets the annotation at which the operator ends all pods. For a job whose maximum wait is over it sets the status
// that Elastic-Job-Supervisor would have set, and that `arena list` shows.
func (s *System) Suspend(ctx context.Context, job jobs.Job, reason jobs.HoldReason) (changed bool, err error) {
	if !job.NeedsSuspend(reason) {
		return false, nil
	}
	if job, err = withReplicasToHold(job); err != nil {
		return false, err
	}
	patch := s.cluster.HoldPatch(job, jobs.HeldSuspended, reason).SetAnnotation(api.AnnotationSupervisorSuspended, "true")
	if reason == jobs.HeldForMaxWait {
		patch.SetAnnotation(api.AnnotationSupervisorStatus, "timeout")
	}
	if err := s.deleteScalers(ctx, job.NamespacedName, isAny); err != nil {
		// The job is suspended all the same: the operator starts no scaler of a suspended job, and Resume deletes them first.
		klog.FromContext(ctx).Error(err, "Could not delete scalers of a job that is suspended", "job", job.Ref)
	}
	if err := s.cluster.PatchJob(ctx, resource, job, patch); err != nil {
		return false, err
	}
	return true, nil
}

// Resume restarts the job with so many workers. A former leader may have carried out some of its steps: the held label is
// removed last.
func (s *System) Resume(ctx context.Context, job jobs.Job, workers int) (changed bool, err error) {
	if job.HeldAs() != jobs.HeldSuspended {
		return false, nil
	}
	object, err := decode(job.Object)
	if err != nil {
		return false, err
	}
	isSuspended := object.Status.Phase == phaseSuspended
	switch {
	case isSuspended:
		if err := s.restart(ctx, job, workers); err != nil {
			return false, err
		}
	case job.Suspended:
		return false, &jobs.BusyError{With: "et-operator, which has yet to suspend it"}
	case job.Stopped:
		return false, &jobs.BusyError{With: "its end, for which it was asked: it is to be suspended first"}
	default: // it went on in spite of a request to stop, or a former leader has restarted it
		workers = min(workers, job.Replicas)
	}
	patch := unholdPatch()
	if workers < job.FullReplicas() { // the rest is left to Grow
		patch = s.cluster.HoldPatch(job, jobs.HeldShrunk, jobs.HeldForReclaim).
			SetAnnotation(api.AnnotationStopRequested, nil).SetAnnotation(api.AnnotationHeldRestarts, nil)
	}
	err = s.cluster.Unhold(ctx, resource, job, patch)
	return err == nil, err
}

// unholdPatch removes the held label and all annotations that belong to it.
func unholdPatch() jobs.Patch {
	return jobs.UnholdPatch().SetAnnotation(api.AnnotationStopRequested, nil).SetAnnotation(api.AnnotationHeldRestarts, nil)
}

// restart resets the job so that the operator starts it with so many workers.
func (s *System) restart(ctx context.Context, job jobs.Job, workers int) error {
	if err := s.deleteScalers(ctx, job.NamespacedName, isAny); err != nil {
		return err
	}
	hosts := job.Name + "-config" // the operator would keep an old list of hosts
	err := s.cluster.Client.CoreV1().ConfigMaps(job.Namespace).Delete(ctx, hosts, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete ConfigMap %s: %w", hosts, err)
	}
	// The operator starts the launcher when as many workers run as are asked for. Once the job runs again nobody has asked for its end: should this
	// leader die before the job is unheld, a failure of the job's own must not be taken for one.
	patch := jobs.Patch{}.Set(int64(min(max(workers, 1), job.Max)), workerReplicas()...).
		SetAnnotation(api.AnnotationSupervisorSuspended, nil).SetAnnotation(api.AnnotationSupervisorStatus, nil).
		SetAnnotation(api.AnnotationStopRequested, nil)
	if err := s.cluster.PatchJob(ctx, resource, job, patch); err != nil {
		return err
	}
	none := map[string]any{"active": nil, "succeeded": nil, "failed": nil}
	status := map[string]any{
		"phase": phaseCreated, "conditions": []any{}, "targetWorkers": nil, "currentWorkers": nil, "currentScaler": nil,
		"completionTime":  nil,
		"replicaStatuses": map[string]any{"Launcher": none, "Worker": none},
	}
	if restarts, err := strconv.ParseUint(job.Object.GetAnnotations()[api.AnnotationHeldRestarts], 10, 31); err == nil {
		status["restartCount"] = int64(restarts) // the end for which this project asked was no failure of the job's
	}
	_, err = s.cluster.Patch(ctx, resource, job.NamespacedName, job.UID, jobs.Patch{"status": status}, "status")
	return err
}
