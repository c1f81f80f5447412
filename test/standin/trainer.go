package standin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Resources of the Kubeflow Trainer.
var (
	TrainJobs        = schema.GroupVersionResource{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"}
	TrainingRuntimes = TrainJobs.GroupVersion().WithResource("trainingruntimes")
)

type trainJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Suspend    bool `json:"suspend"`
		RuntimeRef struct {
			Name string `json:"name"`
		} `json:"runtimeRef"`
	} `json:"spec"`
	Status trainJobStatus `json:"status"`
}

type trainJobStatus struct {
	Conditions conditions `json:"conditions,omitempty"`
}

// NewTrainer plays the Kubeflow Trainer v2 (github.com/kubeflow/trainer). It needs the stand-in for JobSet.
//
// A TrainJob makes a JobSet of its own name out of its TrainingRuntime, and keeps it suspended or not as it is itself,
// whatever others do to the JobSet. The JobSet's end is its own.
//
// There are no ClusterTrainingRuntimes, and nothing of the TrainJob goes into the JobSet.
func NewTrainer(config *rest.Config) (*Operator, error) {
	return newOperator("trainer", config, trainerKinds)
}

func trainerKinds(c cluster) []kind { return []kind{{TrainJobs, (&trainer{c}).reconcile}} }

type trainer struct{ cluster }

func (o *trainer) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	job, err := decode[trainJob](object)
	if err != nil || job.Status.Conditions.has("Complete") || job.Status.Conditions.has("Failed") {
		return err
	}
	sets := o.objects.Resource(JobSets).Namespace(job.Namespace)
	set, err := sets.Get(ctx, job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if set, err = o.newJobSet(ctx, object, &job); err == nil {
			set, err = sets.Create(ctx, set, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return err
	}
	if suspended, _, _ := unstructured.NestedBool(set.Object, "spec", "suspend"); suspended != job.Spec.Suspend {
		if err := unstructured.SetNestedField(set.Object, job.Spec.Suspend, "spec", "suspend"); err != nil {
			return err
		}
		if _, err := sets.Update(ctx, set, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	job.Status.follow(job.Spec.Suspend, set)
	return o.setStatus(ctx, TrainJobs, object, &job.Status)
}

func (o *trainer) newJobSet(ctx context.Context, object *unstructured.Unstructured, job *trainJob) (*unstructured.Unstructured, error) {
	runtime, err := o.objects.Resource(TrainingRuntimes).Namespace(job.Namespace).Get(ctx, job.Spec.RuntimeRef.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("its runtime: %w", err)
	}
	spec, _, err := unstructured.NestedMap(runtime.Object, "spec", "template", "spec")
	if err != nil {
		return nil, err
	}
	spec["suspend"] = job.Spec.Suspend
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": JobSets.GroupVersion().String(), "kind": "JobSet", "spec": spec,
	}}
	set.SetName(job.Name)
	set.SetNamespace(job.Namespace)
	set.SetOwnerReferences([]metav1.OwnerReference{controllerReference(object)})
	return set, nil
}

// follow brings the status up to what the JobSet says.
func (s *trainJobStatus) follow(suspended bool, set *unstructured.Unstructured) {
	state, _, _ := unstructured.NestedString(set.Object, "status", "terminalState")
	switch state {
	case jobSetCompleted:
		s.Conditions.set("Complete", true)
	case jobSetFailed:
		s.Conditions.set("Failed", true)
	default:
		if suspended || s.Conditions.has("Suspended") {
			s.Conditions.set("Suspended", suspended)
		}
	}
}
