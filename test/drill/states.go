package drill

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// State is how a job is.
type State string

const (
	// Whole: all its workers run on nodes that are not reclaiming.
	Whole State = "whole"
	// Suspended: nothing of it runs, and it waits to be resumed.
	Suspended State = "suspended"
	// Lacking: it lacks workers.
	Lacking State = "lacking"
	// Failed: for good.
	Failed State = "failed"
)

// States returns how each job is, by its name.
func States(ctx context.Context, r *rig.Rig, o *Observer, jobs []Job) (map[string]State, error) {
	states := make(map[string]State, len(jobs))
	running := o.Running()
	for _, job := range jobs {
		if running[job.Name] >= job.Workers {
			states[job.Name] = Whole
		} else {
			states[job.Name] = Lacking
		}
	}
	lists, err := r.Client.BatchV1().Jobs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: LabelJob})
	if err != nil {
		return nil, err
	}
	for _, job := range lists.Items {
		switch {
		case slices.ContainsFunc(job.Status.Conditions, hasFailed):
			states[job.Name] = Failed
		case job.Spec.Suspend != nil && *job.Spec.Suspend:
			states[job.Name] = Suspended
		}
	}
	if slices.ContainsFunc(jobs, func(j Job) bool { return j.Kind == JobSet }) {
		if err := addJobSets(ctx, r, states); err != nil {
			return nil, err
		}
	}
	return states, addTraining(ctx, r, jobs, states)
}

func hasFailed(c batchv1.JobCondition) bool {
	return c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue
}

func addTraining(ctx context.Context, r *rig.Rig, jobs []Job, states map[string]State) error {
	if !slices.ContainsFunc(jobs, func(j Job) bool { return j.Kind == Training }) {
		return nil
	}
	all, err := objects(ctx, r, standin.TrainingJobs)
	if err != nil {
		return err
	}
	for _, job := range all {
		phase, _, err := unstructured.NestedString(job.Object, "status", "phase")
		if err != nil {
			return fmt.Errorf("TrainingJob %s: %w", job.GetName(), err)
		}
		switch phase {
		case "Failed", "Succeeded": // nobody's training ended well here
			states[job.GetName()] = Failed
		case "Suspended":
			states[job.GetName()] = Suspended
		}
	}
	return nil
}
