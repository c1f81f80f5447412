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

// deploymentEvents records Events on our own Deployment: about pools, prices and everything else that is no object of
// the cluster.
type deploymentEvents struct {
	recorder   record.EventRecorder
	deployment *corev1.ObjectReference
}

// eventsInAWhile is how many Events of one reason are recorded one by one within ten minutes. Further ones are summed up
// in the last.
const eventsInAWhile = 100

// newDeploymentRecorder returns a recorder that ends with ctx. Core's own keeps to one Event of a reason in five minutes
// for each object, and all pools share the one Deployment.
func newDeploymentRecorder(ctx context.Context, client kubernetes.Interface) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx), record.WithCorrelatorOptions(record.CorrelatorOptions{
		MaxEvents: eventsInAWhile, BurstSize: eventsInAWhile, QPS: 1,
	}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: options.Name})
}

// lookUp is how often the Deployment is looked for while the API server has a bad moment, some seconds long.
var lookUp = wait.Backoff{Steps: 5, Duration: 200 * time.Millisecond, Factor: 2}

// newDeploymentEvents looks the Deployment up once, for its UID, by which kubectl describe finds Events. Without the
// right to, or without a Deployment, Events are recorded all the same.
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
		klog.FromContext(ctx).V(1).Info("Reading the Deployment failed; kubectl describe deployment will not show Events", "err", err)
	}
	return &deploymentEvents{recorder: recorder, deployment: ref}
}

// Eventf records an Event of the type Normal or Warning. It never blocks.
func (e *deploymentEvents) Eventf(eventType, reason, messageFmt string, args ...any) {
	e.recorder.Eventf(e.deployment, eventType, reason, messageFmt, args...)
}
