package app

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// deploymentEvents records Events on our own Deployment, about everything that is not an object of the cluster, such as pools and
// prices.
type deploymentEvents struct {
	recorder   record.EventRecorder
	deployment *corev1.ObjectReference
}

// eventsInAWhile is how many Events of one reason are recorded one by one within ten minutes. Further ones are aggregated into one.
const eventsInAWhile = 100

// newDeploymentRecorder returns a recorder that ends with ctx. Core's own recorder allows for one Event of a reason in five
// minutes per object, and all pools share the one Deployment.
func newDeploymentRecorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		MaxEvents: eventsInAWhile, BurstSize: eventsInAWhile, QPS: 1,
	}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: options.Name})
}

// lookUp bridges some seconds in which the API server does not answer.
var lookUp = wait.Backoff{Steps: 5, Duration: 200 * time.Millisecond, Factor: 2}

// newDeploymentEvents gets the Deployment once, for its UID, by which kubectl describe finds Events. If the Deployment does not
// exist or may not be read, Events are recorded without the UID.
func newDeploymentEvents(ctx context.Context, client kubernetes.Interface, recorder record.EventRecorder, namespace, name string) *deploymentEvents {
	ref := &corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: namespace, Name: name}
	err := retry.OnError(lookUp, func(err error) bool {
		return !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) && ctx.Err() == nil
	},
		func() error {
			deployment, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				ref.UID = deployment.UID
			}
			return err
		})
	if err != nil {
		klog.FromContext(ctx).V(1).Info("Events will not show in kubectl describe deployment", "deployment", klog.KRef(namespace, name), "err", err)
	}
	return &deploymentEvents{recorder: recorder, deployment: ref}
}

// Eventf records an Event of the type Normal or Warning. It never blocks.
func (e *deploymentEvents) Eventf(eventType, reason, messageFmt string, args ...any) {
	e.recorder.Eventf(e.deployment, eventType, reason, messageFmt, args...)
}
