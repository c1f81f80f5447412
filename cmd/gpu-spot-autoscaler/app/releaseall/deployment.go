package releaseall

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
)

// podPatience is for how long the pods of the Deployment may take to end. One that does not, such as that of a node that is down, is
// kept from acting by the lease.
const podPatience = time.Minute

// replicas returns how many replicas the Deployment asks for, none if it does not exist.
func (r *releaser) replicas(ctx context.Context) (int32, error) {
	scale, err := r.kube.AppsV1().Deployments(r.namespace).GetScale(ctx, r.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the scale of Deployment %s/%s: %w", r.namespace, r.name, err)
	}
	return scale.Spec.Replicas, nil
}

// stopDeployment scales the Deployment to zero, and waits until its pods are gone.
func (r *releaser) stopDeployment(ctx context.Context) error {
	selector := ""
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		scale, err := r.kube.AppsV1().Deployments(r.namespace).GetScale(ctx, r.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		selector = scale.Status.Selector
		if scale.Spec.Replicas == 0 {
			return nil
		}
		before := scale.Spec.Replicas
		scale.Spec.Replicas = 0
		if _, err = r.kube.AppsV1().Deployments(r.namespace).UpdateScale(ctx, r.name, scale, metav1.UpdateOptions{}); err == nil {
			r.report.ScaledFrom = before
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		r.note("There is no Deployment %s/%s. If the autoscaler has another name, give --autoscaler-namespace and --autoscaler-name", r.namespace, r.name)
		return nil
	case err != nil:
		return fmt.Errorf("scale Deployment %s/%s to zero: %w", r.namespace, r.name, err)
	}
	if r.report.ScaledFrom > 0 {
		r.note("To run the autoscaler again: kubectl -n %s scale deployment %s --replicas=%d", r.namespace, r.name, r.report.ScaledFrom)
	}
	left := 0
	err = wait.PollUntilContextTimeout(ctx, time.Second, podPatience, true, func(ctx context.Context) (bool, error) {
		pods, err := r.kube.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return false, fmt.Errorf("list the pods of Deployment %s/%s: %w", r.namespace, r.name, err)
		}
		left = 0
		for i := range pods.Items {
			if !kubepod.IsPodTerminal(&pods.Items[i]) {
				left++
			}
		}
		return left == 0, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		r.note("Of the pods of the Deployment, %d have not ended within %v; the lease keeps them from acting", left, podPatience)
		return nil
	}
	return orCause(ctx, err)
}
