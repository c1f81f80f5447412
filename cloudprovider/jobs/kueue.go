package jobs

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// workloads are what Kueue admits: one for each of its jobs, which owns it.
var workloads = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta1", Resource: "workloads"}

// kueue ends and resumes the jobs that Kueue (sigs.k8s.io/kueue) admits. Whether they are suspended is its to say, so that it is
// told through the Workload, as read in v0.12.3:
//
//   - spec.active false evicts the Workload (core/workload_controller.go), for which Kueue suspends the job
//     (jobframework/reconciler.go, stopJob), so that no pod of it counts as failed, and gives back its quota. To suspend the job
//     itself is undone at once.
//   - spec.active true has it queue again (WorkloadReactivated). It is admitted when there is quota, which knows nothing of
//     nodes, so that it is set when there is room for the job: one that cannot run would hold quota that others could use.
type kueue struct{ *cluster }

// suspend takes the job's Workload. Kueue alone says how long a job waits for capacity.
func (k *kueue) suspend(ctx context.Context, adapter Adapter, workload *unstructured.Unstructured, job Job, reason Reason) error {
	switch {
	case reason != ReasonReclaim:
		return errQueued
	case job.Finished || !isActive(workload):
		return ErrUnchanged
	}
	// Marked first: a crash leaves a job that is found again.
	marks := patch{"metadata": k.held(job, HeldSuspended, reason)}
	if _, err := k.patchObject(ctx, adapter.Resource(), job.NamespacedName, job.UID, marks); err != nil {
		return err
	}
	return k.setActive(ctx, workload, false)
}

// resume leaves it to Kueue when to admit the job.
func (k *kueue) resume(ctx context.Context, adapter Adapter, workload *unstructured.Unstructured, job Job) error {
	if heldAs(job) != HeldSuspended {
		return ErrUnchanged
	}
	if !isActive(workload) {
		if err := k.setActive(ctx, workload, true); err != nil {
			return err
		}
	}
	_, err := k.patchObject(ctx, adapter.Resource(), job.NamespacedName, job.UID, patch{"metadata": released()})
	return err
}

func isActive(workload *unstructured.Unstructured) bool {
	active, set, _ := unstructured.NestedBool(workload.Object, "spec", "active")
	return active || !set
}

func (k *kueue) setActive(ctx context.Context, workload *unstructured.Unstructured, active bool) error {
	name := types.NamespacedName{Namespace: workload.GetNamespace(), Name: workload.GetName()}
	if _, err := k.patchObject(ctx, workloads, name, workload.GetUID(), patch{"spec": map[string]any{"active": active}}); err != nil {
		return fmt.Errorf("setting active of its Workload %s: %w", workload.GetName(), err)
	}
	return nil
}

// workloadOf finds the Workload that the job owns; nil for jobs that are none of Kueue's. With manageJobsWithoutQueueName it
// admits jobs without a queue too. The error wraps ErrUnsupported for a job in a queue that has no Workload.
func (k *kueue) workloadOf(ctx context.Context, job Job) (*unstructured.Unstructured, error) {
	selectors := []string{api.LabelKueueJobUID + "=" + string(job.UID)}
	if queued(job.Object) {
		selectors = append(selectors, "") // one that was made beforehand does not have the label
	}
	for _, selector := range selectors {
		list, err := k.dynamic.Resource(workloads).Namespace(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			break // Kueue is not installed, or does not serve this version
		}
		if err != nil {
			return nil, fmt.Errorf("finding its Workload: %w", err)
		}
		owned := func(workload unstructured.Unstructured) bool {
			return workload.GetDeletionTimestamp() == nil && slices.ContainsFunc(workload.GetOwnerReferences(),
				func(owner metav1.OwnerReference) bool { return owner.UID == job.UID })
		}
		if i := slices.IndexFunc(list.Items, owned); i >= 0 {
			return &list.Items[i], nil
		}
	}
	if queued(job.Object) {
		return nil, errQueued
	}
	return nil, nil
}
