package standin

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// Workloads are those of Kueue.
var Workloads = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta1", Resource: "workloads"}

const (
	// LabelQueue on a batch Job has Kueue admit it.
	LabelQueue        = "kueue.x-k8s.io/queue-name"
	labelWorkloadsJob = "kueue.x-k8s.io/job-uid"

	workloadAdmitted = "Admitted"
	workloadEvicted  = "Evicted"
)

type workload struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Active *bool `json:"active"`
	} `json:"spec"`
	Status workloadStatus `json:"status"`
}

type workloadStatus struct {
	Conditions conditions `json:"conditions,omitempty"`
}

var batchJobs = batchv1.SchemeGroupVersion.WithResource("jobs")

// NewKueue plays Kueue (sigs.k8s.io/kueue, v0.12.3) for batch Jobs that name a queue, which has quota for all.
//
// A Job gets a Workload, which it owns. A Job whose Workload is admitted is unsuspended, whoever suspended it; any other is
// suspended. A Workload that is not active is evicted: its Job is suspended, and when that has no pods any more, the
// Workload is no longer admitted. Active again, it is admitted again.
//
// There are no quotas, flavors or priorities, no other kinds of jobs, and no webhook: a Job is to be submitted suspended.
func NewKueue(config *rest.Config) (*Operator, error) {
	return newOperator("kueue", config, kueueKinds)
}

func kueueKinds(c cluster) []kind {
	k := &kueueController{c}
	return []kind{{Workloads, k.reconcileWorkload}, {batchJobs, k.reconcileJob}}
}

type kueueController struct{ cluster }

// reconcileWorkload evicts and admits.
func (k *kueueController) reconcileWorkload(ctx context.Context, object *unstructured.Unstructured) error {
	w, err := decode[workload](object)
	if err != nil {
		return err
	}
	switch active, admitted := ptr.Deref(w.Spec.Active, true), w.Status.Conditions.has(workloadAdmitted); {
	case !active:
		w.Status.Conditions.set(workloadEvicted, true)
	case !admitted:
		w.Status.Conditions.set(workloadEvicted, false)
		w.Status.Conditions.set(workloadAdmitted, true)
	}
	return k.setStatus(ctx, Workloads, object, &w.Status)
}

// reconcileJob does to the Job what its Workload says.
func (k *kueueController) reconcileJob(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[batchv1.Job](object)
	if err != nil || job.Labels[LabelQueue] == "" || jobEnded(&job) {
		return err
	}
	found, err := k.objects.Resource(Workloads).Namespace(job.Namespace).Get(ctx, workloadName(&job), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return k.makeWorkload(ctx, object, &job)
	}
	if err != nil {
		return err
	}
	w, err := decode[workload](found)
	if err != nil {
		return err
	}
	evicted := w.Status.Conditions.has(workloadEvicted)
	runs := w.Status.Conditions.has(workloadAdmitted) && !evicted
	if err := k.suspend(ctx, &job, !runs); err != nil {
		return err
	}
	if evicted && job.Status.Active == 0 {
		w.Status.Conditions.set(workloadAdmitted, false)
		return k.setStatus(ctx, Workloads, found, &w.Status)
	}
	return nil
}

func jobEnded(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == "True" {
			return true
		}
	}
	return false
}

func (k *kueueController) suspend(ctx context.Context, job *batchv1.Job, suspend bool) error {
	if ptr.Deref(job.Spec.Suspend, false) == suspend {
		return nil
	}
	body := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, suspend)
	_, err := k.objects.Resource(batchJobs).Namespace(job.Namespace).Patch(ctx, job.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func workloadName(job *batchv1.Job) string { return "job-" + job.Name + "-" + string(job.UID[:5]) }

func (k *kueueController) makeWorkload(ctx context.Context, object *unstructured.Unstructured, job *batchv1.Job) error {
	w := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"queueName": job.Labels[LabelQueue], "podSets": []any{map[string]any{"name": "main", "count": int64(ptr.Deref(job.Spec.Parallelism, 1))}},
	}}}
	w.SetAPIVersion(Workloads.GroupVersion().String())
	w.SetKind("Workload")
	w.SetName(workloadName(job))
	w.SetLabels(map[string]string{labelWorkloadsJob: string(job.UID)})
	w.SetOwnerReferences([]metav1.OwnerReference{controllerReference(object)})
	_, err := k.objects.Resource(Workloads).Namespace(job.Namespace).Create(ctx, w, metav1.CreateOptions{})
	return err
}
