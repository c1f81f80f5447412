package drill

import (
	"context"
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// Kinds whose real operators have to run: those of test/operators.
const (
	// Queued is an Indexed Job in the queue that CreateQueue makes. It fails for good with the first pod that fails.
	Queued Kind = "kueue"
	// JobSet is one of two Jobs, each with half of the workers. It fails for good with the first pod that fails.
	JobSet Kind = "jobset"
)

const (
	queueName     = "drill"
	jobsInAJobSet = 2
)

// CreateQueue makes the queue of Queued jobs in the namespace default, with a quota of so many GPUs. Kueue has to run.
func CreateQueue(ctx context.Context, r *rig.Rig, gpus int) error {
	return r.Cluster.ApplyYAML(ctx, strings.NewReader(operators.Queue(queueName, metav1.NamespaceDefault, gpus)))
}

// queuedTemplate asks only for what the queue covers: Kueue admits no job that asks for more kinds of resources.
func (j Job) queuedTemplate() corev1.PodTemplateSpec {
	template := j.template()
	template.Spec.Containers[0].Resources.Requests = nil
	return template
}

func (j Job) createQueued(ctx context.Context, r *rig.Rig) error {
	workers := ptr.To(int32(j.Workers))
	job := &batchv1.Job{ObjectMeta: j.meta(), Spec: batchv1.JobSpec{
		Suspend: ptr.To(true), Parallelism: workers, Completions: workers, CompletionMode: ptr.To(batchv1.IndexedCompletion),
		BackoffLimit: ptr.To[int32](0), Template: j.queuedTemplate(),
	}}
	job.Labels[operators.LabelQueue] = queueName
	_, err := r.Client.BatchV1().Jobs(j.namespace()).Create(ctx, job, metav1.CreateOptions{})
	return err
}

func (j Job) createJobSet(ctx context.Context, r *rig.Rig) error {
	template := j.template()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&template)
	if err != nil {
		return err
	}
	each := int64(j.Workers / jobsInAJobSet)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": operators.JobSets.GroupVersion().String(), "kind": "JobSet",
		"spec": map[string]any{
			"failurePolicy": map[string]any{"maxRestarts": int64(0)},
			"replicatedJobs": []any{map[string]any{
				"name": "worker", "replicas": int64(jobsInAJobSet),
				"template": map[string]any{"spec": map[string]any{
					"parallelism": each, "completions": each, "backoffLimit": int64(0), "template": content,
				}},
			}},
		},
	}}
	return j.createObject(ctx, r, operators.JobSets, object)
}

// Finish has the workers of each job succeed that has all of them.
func Finish(ctx context.Context, r *rig.Rig, jobs []Job) error {
	pods, err := r.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: LabelJob})
	if err != nil {
		return err
	}
	there, running := map[string]int{}, map[string][]types.NamespacedName{}
	for _, pod := range pods.Items {
		job := pod.Labels[LabelJob]
		switch {
		case pod.Status.Phase == corev1.PodSucceeded:
			there[job]++
		case pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
			there[job]++
			running[job] = append(running[job], types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
		}
	}
	for _, job := range jobs {
		if there[job.Name] < job.Workers {
			continue
		}
		for _, pod := range running[job.Name] {
			if _, err := r.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
				[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
				return err
			}
		}
	}
	return nil
}

// addJobSets tells of those that are suspended or have failed.
func addJobSets(ctx context.Context, r *rig.Rig, states map[string]State) error {
	sets, err := objects(ctx, r, operators.JobSets)
	if err != nil {
		return err
	}
	for _, set := range sets {
		suspended, _, err := unstructured.NestedBool(set.Object, "spec", "suspend")
		if err != nil {
			return fmt.Errorf("JobSet %s: %w", set.GetName(), err)
		}
		ended, _, err := unstructured.NestedString(set.Object, "status", "terminalState")
		if err != nil {
			return fmt.Errorf("JobSet %s: %w", set.GetName(), err)
		}
		switch {
		case ended == "Failed":
			states[set.GetName()] = Failed
		case suspended:
			states[set.GetName()] = Suspended
		}
	}
	return nil
}
