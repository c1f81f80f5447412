package jobset

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// TrainJobs is the resource of the Kubeflow Trainer's TrainJob.
var TrainJobs = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}

// trainJobOf returns the TrainJob that made the JobSet, or nil.
func trainJobOf(job jobs.Job) *metav1.OwnerReference {
	return jobs.ControllerOf(job.Object, TrainJobs.Group, "TrainJob")
}

// Suspend suspends the TrainJob where there is one, as the trainer would undo what is done to its JobSet. The held label is on
// the JobSet all the same, which outlives the suspension.
func (s *System) Suspend(ctx context.Context, job jobs.Job, reason jobs.HoldReason) (changed bool, err error) {
	trainJob := trainJobOf(job)
	if trainJob == nil {
		return s.SuspendField.Suspend(ctx, job, reason)
	}
	if !job.NeedsSuspend(reason) {
		return false, nil
	}
	if err := s.checkNotQueued(ctx, job, trainJob); err != nil {
		return false, err
	}
	// The label goes first: a TrainJob that is suspended without it would be taken for one that its owner has suspended.
	if err := s.Cluster.PatchJob(ctx, resource, job, s.Cluster.HoldPatch(job, jobs.HeldSuspended, reason)); err != nil {
		return false, err
	}
	return true, s.setTrainJob(ctx, job, trainJob, true)
}

// Resume resumes the TrainJob where there is one.
func (s *System) Resume(ctx context.Context, job jobs.Job, workers int) (changed bool, err error) {
	trainJob := trainJobOf(job)
	if trainJob == nil {
		return s.SuspendField.Resume(ctx, job, workers)
	}
	if job.HeldAs() != jobs.HeldSuspended {
		return false, nil
	}
	if err := s.setTrainJob(ctx, job, trainJob, false); err != nil {
		return false, err
	}
	err = s.Cluster.Unhold(ctx, resource, job, jobs.UnholdPatch())
	return err == nil, err
}

// checkNotQueued returns jobs.ErrKueue for a TrainJob that is in a queue of Kueue, whose label may be on the TrainJob alone.
func (s *System) checkNotQueued(ctx context.Context, job jobs.Job, trainJob *metav1.OwnerReference) error {
	object, err := s.Cluster.Dynamic.Resource(TrainJobs).Namespace(job.Namespace).Get(ctx, trainJob.Name, metav1.GetOptions{})
	if err == nil && jobs.IsQueued(object) {
		err = jobs.ErrKueue
	}
	return err
}

func (s *System) setTrainJob(ctx context.Context, job jobs.Job, trainJob *metav1.OwnerReference, suspend bool) error {
	name := types.NamespacedName{Namespace: job.Namespace, Name: trainJob.Name}
	if _, err := s.Cluster.Patch(ctx, TrainJobs, name, trainJob.UID, jobs.Patch{}.Set(suspend, "spec", "suspend")); err != nil {
		return fmt.Errorf("TrainJob %s: %w", name, err)
	}
	return nil
}
