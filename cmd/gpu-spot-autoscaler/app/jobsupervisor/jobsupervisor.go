// Package jobsupervisor recognizes Elastic-Job-Supervisor, which Arena installs by default, and which suspends and resumes the same
// TrainingJobs as the autoscaler, by the same annotations.
package jobsupervisor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

const (
	// Name is the name of its Deployment, and the value of the label app of that and of its pods
	// (arena-artifacts/charts/elastic-job-supervisor/templates/deployment.yaml in kubeflow/arena, 2a4f33fa1a30).
	Name = "elastic-job-supervisor"
	// Reason is that of the problem that it runs.
	Reason = "job_supervisor"
	// Cause says what is wrong with that.
	Cause = "Elastic-Job-Supervisor runs, too, and suspends and resumes the same jobs by the same annotations"

	labelApp = "app"
	// every is how often it is looked for.
	every = time.Minute
)

// Is returns whether an object with this name and these labels is a Deployment of it, or with the labels of its pods one of those.
func Is(object metav1.Object) bool {
	return object.GetName() == Name || object.GetLabels()[labelApp] == Name || object.GetLabels()["app.kubernetes.io/name"] == Name
}

// Mend returns a sentence that says how to stop the Deployment.
func Mend(namespace, deployment string) string {
	return fmt.Sprintf("Stop it, since the autoscaler does its work: kubectl -n %s scale deployment %s --replicas=0", namespace, deployment)
}

// Board is where problems are reported. *problems.Board implements it.
type Board interface {
	Update(source problems.Source, now ...problems.Problem)
}

// Run reports the problem as long as there are pods of Elastic-Job-Supervisor, until ctx ends. It reads nothing but the pods that are
// watched anyway.
func Run(ctx context.Context, pods corelisters.PodLister, board Board) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		all, err := pods.List(labels.Everything())
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot look for Elastic-Job-Supervisor")
			return
		}
		board.Update(problems.Cluster, found(all)...)
	}, every)
}

// found returns the problem of the first of its pods, none if there is none.
func found(pods []*corev1.Pod) []problems.Problem {
	running := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool {
		return !Is(pod) || pod.DeletionTimestamp != nil || kubepod.IsPodTerminal(pod)
	})
	if len(running) == 0 {
		return nil
	}
	first := slices.MinFunc(running, func(a, b *corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(deploymentOf(a), deploymentOf(b)))
	})
	return []problems.Problem{{Reason: Reason, Cause: Cause, Fix: Mend(first.Namespace, deploymentOf(first))}}
}

// deploymentOf returns the name of the pod's Deployment, whose ReplicaSets have the hash of their pods at the end of their names.
func deploymentOf(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return Name
	}
	return strings.TrimSuffix(owner.Name, "-"+pod.Labels["pod-template-hash"])
}
