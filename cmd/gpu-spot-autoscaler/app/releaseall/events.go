package releaseall

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

// eventTimeout bounds the request for one Event.
const eventTimeout = 5 * time.Second

// recorder records an Event before it returns, since the process ends soon. An Event that cannot be recorded is left out.
type recorder struct {
	ctx    context.Context
	client kubernetes.Interface
	clock  clock.PassiveClock
	// recorded counts the Events, so that each has a name of its own.
	recorded atomic.Int64
}

// Event implements record.EventRecorder.
func (r *recorder) Event(object runtime.Object, eventType, reason, message string) {
	switch reason {
	case jobs.ReasonResumed:
		message = "Resumed, whether or not there is capacity: the autoscaler is taken off the cluster"
	case jobs.ReasonGrown:
		message = "Grows to what it was, whether or not there is capacity: the autoscaler is taken off the cluster"
	}
	about, err := reference.GetReference(scheme.Scheme, object)
	if err != nil {
		klog.FromContext(r.ctx).Error(err, "Cannot record an Event", "reason", reason)
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, eventTimeout)
	defer cancel()
	now := metav1.NewTime(r.clock.Now())
	_, err = r.client.CoreV1().Events(about.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()+r.recorded.Add(1))},
		InvolvedObject: *about, Reason: reason, Message: message, Type: eventType, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: options.Name}, ReportingController: options.Name,
	}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(r.ctx).Error(err, "Cannot record an Event", "reason", reason, "object", klog.KRef(about.Namespace, about.Name))
	}
}

// Eventf implements record.EventRecorder.
func (r *recorder) Eventf(object runtime.Object, eventType, reason, messageFmt string, args ...any) {
	r.Event(object, eventType, reason, fmt.Sprintf(messageFmt, args...))
}

// AnnotatedEventf implements record.EventRecorder, without the annotations.
func (r *recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, eventType, reason, messageFmt string, args ...any) {
	r.Eventf(object, eventType, reason, messageFmt, args...)
}
