package jobs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs/queues"
)

// KueueWorkloads are the versions of the resource with which Kueue admits jobs, the one that is asked for first before the others. Each
// Workload is owned by its job. v1beta2 is served since Kueue 0.15, and v1beta1 until 0.19 (kubernetes-sigs/kueue#13957). What is
// used of them is the same: spec.active and the owner (apis/kueue/v1beta2/workload_types.go).
var KueueWorkloads = []schema.GroupVersionResource{
	{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
	{Group: "kueue.x-k8s.io", Version: "v1beta1", Resource: "workloads"},
}

// ErrKueue is returned for jobs that Kueue alone suspends and resumes. It wraps ErrUnsupported.
var ErrKueue = fmt.Errorf("suspended and resumed by Kueue: %w", ErrUnsupported)

// Queue returns the LocalQueue of Kueue that the job is in, if it is in one.
func (j Job) Queue() (queue types.NamespacedName, isQueued bool) {
	if j.Object == nil || !IsQueued(j.Object) {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: j.Namespace, Name: j.Object.GetLabels()[api.LabelKueueQueue]}, true
}

// IsQueued returns whether an object is in a queue of Kueue.
func IsQueued(object *unstructured.Unstructured) bool {
	return object.GetLabels()[api.LabelKueueQueue] != ""
}

// kueue suspends and resumes the jobs that Kueue (sigs.k8s.io/kueue) admits. Kueue undoes at once what others do to the
// suspension of such a job, so that it is asked through the job's Workload, as read in v0.12.3:
//
//   - spec.active false evicts the Workload (core/workload_controller.go). Kueue then suspends the job
//     (jobframework/reconciler.go, stopJob), so that no pod of it counts as failed, and gives back its quota.
//   - spec.active true queues the Workload again (WorkloadReactivated). Kueue admits it when there is quota, and does not look
//     at nodes. So where there is quota it is set only when there is capacity: a job that cannot run would hold quota that others could
//     use, and with waitForPodsReady Kueue would count its time against it (reconcileNotReadyTimeout). Where others have taken the quota
//     it is set at once: nodes would be bought for a job that is not admitted, and one that is not in the queue would never come up.
type kueue struct {
	Cluster
	served *servedVersion
}

// servedVersion remembers which version of Workloads the API server serves, because each action on each job asks for them. It is safe for
// concurrent use.
type servedVersion struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// found is the version that was served when all were asked for, nil if none was, and until is for how long that is believed.
	found *schema.GroupVersionResource
	until time.Time
}

// believeServed is for how long it is believed which version is served. A version that is not served any more is noticed at once.
const believeServed = time.Minute

// order returns the versions in the order in which they are to be asked for. There are none if none was served lately.
func (v *servedVersion) order() []schema.GroupVersionResource {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.clock.Now().Before(v.until):
		return KueueWorkloads
	case v.found == nil:
		return nil
	}
	return append([]schema.GroupVersionResource{*v.found}, KueueWorkloads...) // the others if it is not served any more
}

// note notes which version is served, nil for none.
func (v *servedVersion) note(version *schema.GroupVersionResource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.clock.Now()
	if now.Before(v.until) && ptr.Equal(v.found, version) {
		return
	}
	v.found, v.until = version, now.Add(believeServed)
}

// suspend deactivates the job's Workload for a reclaim. How long a job waits for capacity is left to Kueue.
func (k kueue) suspend(
	ctx context.Context, resource schema.GroupVersionResource, workload *unstructured.Unstructured, job Job, reason HoldReason,
) (changed bool, err error) {
	switch {
	case reason != HeldForReclaim:
		return false, ErrKueue
	case job.Finished || !isActive(workload):
		return false, nil
	}
	// The label goes first, so that after a crash the next leader finds the job.
	if err := k.PatchJob(ctx, resource, job, k.HoldPatch(job, HeldSuspended, reason)); err != nil {
		return false, err
	}
	return true, k.setActive(ctx, workload, false)
}

// resume activates the job's Workload. Kueue decides when to admit it.
func (k kueue) resume(
	ctx context.Context, resource schema.GroupVersionResource, workload *unstructured.Unstructured, job Job,
) (changed bool, err error) {
	if job.HeldAs() != HeldSuspended {
		return false, nil
	}
	if !isActive(workload) {
		if err := k.setActive(ctx, workload, true); err != nil {
			return false, err
		}
	}
	err = k.Unhold(ctx, resource, job, UnholdPatch())
	return err == nil, err
}

// unhold has a job that runs although it is held be held no longer, as was decided by what it said before. The error is a BusyError if it has been
// suspended, or held anew, or has ended since. Some systems write the label first, and suspend the job by another object: so a Workload that is
// inactive is left so.
func (k kueue) unhold(ctx context.Context, system System, before, job Job, workers int) (changed bool, err error) {
	if job.Suspended || job.Stopped || job.Finished || job.isHeldAnewSince(before) {
		return false, errChanged
	}
	workload, err := k.workloadOf(ctx, job)
	switch {
	case err != nil:
		return false, err
	case workload == nil:
		return undoSuspend(ctx, system, job, workers)
	case !isActive(workload):
		return false, &BusyError{With: "Kueue, which has yet to suspend it"}
	case job.HeldAs() != HeldSuspended:
		return false, nil
	}
	err = k.Unhold(ctx, system.Resource(), job, UnholdPatch())
	return err == nil, err
}

// undoSuspend has the job run again with so many workers, through Kueue where that admits it.
func (k kueue) undoSuspend(ctx context.Context, system System, job Job, workers int) (changed bool, err error) {
	if workload, err := k.workloadOf(ctx, job); err != nil {
		return false, err
	} else if workload != nil {
		return k.resume(ctx, system.Resource(), workload, job)
	}
	return undoSuspend(ctx, system, job, workers)
}

// undoSuspend has the job run again with so many workers, by its system.
func undoSuspend(ctx context.Context, system System, job Job, workers int) (changed bool, err error) {
	suspender, ok := system.(Suspender)
	if !ok {
		return false, ErrUnsupported
	}
	return suspender.Resume(ctx, job, workers)
}

func isActive(workload *unstructured.Unstructured) bool {
	active, set, _ := unstructured.NestedBool(workload.Object, "spec", "active")
	return active || !set
}

func (k kueue) setActive(ctx context.Context, workload *unstructured.Unstructured, active bool) error {
	name := types.NamespacedName{Namespace: workload.GetNamespace(), Name: workload.GetName()}
	resource := workload.GroupVersionKind().GroupVersion().WithResource("workloads")
	if _, err := k.Patch(ctx, resource, name, workload.GetUID(), Patch{}.Set(active, "spec", "active")); err != nil {
		return fmt.Errorf("set active of its Workload %s: %w", workload.GetName(), err)
	}
	return nil
}

// workloadOf returns the Workload that the job owns, or nil for jobs that Kueue does not admit. With
// manageJobsWithoutQueueName Kueue admits jobs without a queue too. The error wraps ErrUnsupported for a job in a queue that
// has no Workload.
func (k kueue) workloadOf(ctx context.Context, job Job) (*unstructured.Unstructured, error) {
	selectors := []string{api.LabelKueueJobUID + "=" + string(job.UID)}
	if IsQueued(job.Object) {
		selectors = append(selectors, "") // a Workload that was made before its job does not have the label
	}
	for _, selector := range selectors {
		workloads, err := k.workloads(ctx, job, selector)
		if err != nil {
			return nil, fmt.Errorf("find its Workload: %w", err)
		}
		owned := func(workload unstructured.Unstructured) bool {
			return workload.GetDeletionTimestamp() == nil && slices.ContainsFunc(workload.GetOwnerReferences(),
				func(owner metav1.OwnerReference) bool { return owner.UID == job.UID })
		}
		if i := slices.IndexFunc(workloads, owned); i >= 0 {
			return &workloads[i], nil
		}
	}
	if IsQueued(job.Object) {
		return nil, ErrKueue
	}
	return nil, nil
}

// workloads lists Workloads. There are none if Kueue is not installed. For a job in a queue, they are asked for also where there was no
// Kueue a moment ago.
func (k kueue) workloads(ctx context.Context, job Job, selector string) ([]unstructured.Unstructured, error) {
	items, _, err := k.list(ctx, "workloads", job.Namespace, selector, IsQueued(job.Object))
	return items, err
}

// list lists objects of Kueue by the first version that is served. It is not served if Kueue is not installed, or was not a moment ago, unless
// it is certain to be.
func (k kueue) list(ctx context.Context, plural, namespace, selector string, isCertain bool) (items []unstructured.Unstructured, isServed bool, err error) {
	versions := k.served.order()
	switch {
	case len(versions) > 0:
	case isCertain:
		versions = KueueWorkloads
	default:
		return nil, false, nil
	}
	for _, version := range versions {
		list, err := k.Dynamic.Resource(version.GroupVersion().WithResource(plural)).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		switch {
		case err == nil:
			k.served.note(&version)
			return list.Items, true, nil
		case !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err):
			return nil, false, err
		}
	}
	k.served.note(nil)
	return nil, false, nil
}

// Queues are the queues of Kueue that jobs are in. They are safe for concurrent use.
type Queues struct{ registry *Registry }

// NewQueues returns the Queues of the jobs of a Registry.
func NewQueues(registry *Registry) Queues { return Queues{registry} }

// Quotas returns what the ClusterQueues have left, nil if Kueue is not installed.
func (q Queues) Quotas(ctx context.Context) (*queues.Quotas, error) {
	ctx, cancel := context.WithTimeout(ctx, q.registry.config.Timeout)
	defer cancel()
	var lists [3][]unstructured.Unstructured
	for i, plural := range []string{"localqueues", "clusterqueues", "resourceflavors"} {
		items, isServed, err := q.registry.kueue.list(ctx, plural, metav1.NamespaceAll, "", false)
		if err != nil {
			return nil, fmt.Errorf("list the %s of Kueue: %w", plural, err)
		}
		if !isServed {
			return nil, nil
		}
		lists[i] = items
	}
	return queues.New(lists[0], lists[1], lists[2]), nil
}

// Return puts a job that is suspended back into its queue, though there are no nodes for it. The error wraps ErrUnsupported for jobs that Kueue
// does not admit.
func (q Queues) Return(ctx context.Context, job Job) error {
	return q.registry.act(ctx, job, action{
		name: "queue", event: ReasonQueued, readsAgain: true,
		message: "Waits in its queue again: others have its quota, and nothing is bought for it before Kueue admits it",
		do: func(ctx context.Context, system System, job Job) (bool, error) {
			workload, err := q.registry.kueue.workloadOf(ctx, job)
			if err != nil {
				return false, err
			}
			if workload == nil {
				return false, ErrUnsupported
			}
			return q.registry.kueue.resume(ctx, system.Resource(), workload, job)
		},
	})
}
