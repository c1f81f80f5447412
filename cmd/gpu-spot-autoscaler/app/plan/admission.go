package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Admit has the API server admit one pod of each kind in a dry run, which stores nothing, and gives all of its kind what that adds: the priority of
// a class, the defaults of a LimitRange, what webhooks change. A job whose pods are refused has none. If the caller may not create pods, or a
// webhook takes part in no dry run, the pods stay as they are and a note says so.
// Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run
func (s *Submitted) Admit(ctx context.Context, client kubernetes.Interface) error {
	for _, job := range s.Jobs {
		if len(job.Pods) == 0 {
			continue
		}
		allowed, err := mayCreatePods(ctx, client, job.Object.GetNamespace())
		if err != nil {
			return job.errorf("find out whether you may create pods: %w", err)
		}
		if !allowed {
			s.Notes = append(s.Notes, fmt.Sprintf("You may not create pods in namespace %s, so they are planned as they are in the file, without what the API server adds (priority classes, limit ranges, webhooks).", job.Object.GetNamespace()))
			continue
		}
		if err := s.admit(ctx, client, job); err != nil {
			return job.errorf("have the API server admit a pod in a dry run: %w", err)
		}
	}
	return nil
}

func mayCreatePods(ctx context.Context, client kubernetes.Interface, namespace string) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "create", Resource: "pods"}},
	}, metav1.CreateOptions{})
	return err == nil && review.Status.Allowed, err
}

func (s *Submitted) admit(ctx context.Context, client kubernetes.Interface, job *Job) error {
	known := map[string]*corev1.Pod{} // what was admitted, with the labels and annotations that were added, by what was asked for
	for _, pod := range job.Pods {
		key, err := json.Marshal(pod.Spec)
		if err != nil {
			return err
		}
		admitted := known[string(key)]
		if admitted == nil {
			admitted, err = client.CoreV1().Pods(pod.Namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "planned-", Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec,
			}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			switch {
			case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err):
				job.Pods, job.Nothing = nil, "The API server refuses its pods: "+err.Error()
				return nil
			case apierrors.IsBadRequest(err):
				s.Notes = append(s.Notes, fmt.Sprintf("The pods are planned as they are in the file, without what the API server adds: %v", err))
				return nil
			case err != nil:
				return err
			}
			admitted.Labels, admitted.Annotations = added(admitted.Labels, pod.Labels), added(admitted.Annotations, pod.Annotations)
			known[string(key)] = admitted
		}
		pod.Spec = *admitted.Spec.DeepCopy()
		pod.Labels, pod.Annotations = with(pod.Labels, admitted.Labels), with(pod.Annotations, admitted.Annotations)
		s.pod(pod)
	}
	return nil
}

// added returns what is in the first map and not in the other.
func added(after, before map[string]string) map[string]string {
	after = maps.Clone(after)
	maps.DeleteFunc(after, func(key, _ string) bool { _, was := before[key]; return was })
	return after
}

// with returns both maps in one. What is in both is as in the first.
func with(own, other map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, other)
	maps.Copy(all, own)
	return all
}
