package app

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// deploymentEvents records Events on our own Deployment: about pools, prices and everything else that is no object of
// the cluster.
type deploymentEvents struct {
	recorder   record.EventRecorder
	deployment *corev1.ObjectReference
}

// newDeploymentEvents looks the Deployment up once, for its UID, by which kubectl describe finds Events. Without the
// right to, or without a Deployment, Events are recorded all the same.
func newDeploymentEvents(ctx context.Context, client kubernetes.Interface, recorder record.EventRecorder, namespace, name string) *deploymentEvents {
	ref := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: name}
	if deployment, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
		ref.UID = deployment.UID
	} else {
		klog.V(1).Infof("Events will not show in kubectl describe deployment: %v", err)
	}
	return &deploymentEvents{recorder: recorder, deployment: ref}
}

// Eventf records an Event of the type Normal or Warning. It never blocks.
func (e *deploymentEvents) Eventf(eventType, reason, messageFmt string, args ...any) {
	e.recorder.Eventf(e.deployment, eventType, reason, messageFmt, args...)
}
