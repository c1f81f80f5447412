package main

import (
	"cmp"
	"context"
	"embed"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/standin"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// Names of the demo's jobs, and of their manifests.
const (
	singleJob  = "single-gpu"
	gangJob    = "allreduce-8"
	elasticJob = "elastic-training"
)

// job is one of the demo's jobs.
type job struct {
	Name string `json:"name"`
	// Title is what it is, for people.
	Title string `json:"title"`
	// Pods is how many GPU pods it has when it runs in full.
	Pods int `json:"pods"`
}

// jobs are all there are, in the order in which they are submitted.
func jobs() []job {
	return []job{
		{singleJob, "one pod, one GPU", 1},
		{gangJob, "gang of 8, all or nothing", 8},
		{elasticJob, "elastic: 8 workers, at least 1", 8},
	}
}

// submit applies the manifest of that name.
func submit(ctx context.Context, c *cluster.Cluster, name string) error {
	file, err := manifests.Open("manifests/" + name + ".yaml")
	if err != nil {
		return err
	}
	defer file.Close()
	if err := c.ApplyYAML(ctx, file); err != nil {
		return fmt.Errorf("submit %s: %w", name, err)
	}
	return nil
}

// jobOf returns the job that a pod is of, "" for a pod of no job of the demo.
func jobOf(pod *corev1.Pod) string {
	return cmp.Or(pod.Labels["demo-job"], pod.Labels[standin.LabelTrainingJob])
}
