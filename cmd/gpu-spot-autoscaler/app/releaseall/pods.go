package releaseall

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/util/workqueue"

	"gpu-spot-autoscaler/cloudprovider/patch"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
)

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// unwarnPods takes the warnings of reclaims off the pods: nobody awaits an acknowledgement any more.
func (r *releaser) unwarnPods(ctx context.Context, _ sets.Set[string]) error {
	r.say("Removing the warnings of pods")
	var warned []*metav1.PartialObjectMetadata
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return r.metadata.Resource(pods).List(ctx, options)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		if pod, ok := object.(*metav1.PartialObjectMetadata); ok && len(handshake.WarningIn(pod.Annotations)) > 0 {
			warned = append(warned, pod)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	workqueue.ParallelizeUntil(ctx, parallelism, len(warned), func(i int) {
		pod := warned[i]
		err := r.unwarnPod(ctx, pod)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.report.Faults = append(r.report.Faults, fmt.Sprintf("Pod %s/%s keeps the warning of a reclaim: %v", pod.Namespace, pod.Name, err))
			return
		}
		r.report.Pods++
	})
	return nil
}

func (r *releaser) unwarnPod(ctx context.Context, pod *metav1.PartialObjectMetadata) error {
	if r.dryRun {
		return nil
	}
	err := patch.Annotate(ctx, r.metadata.Resource(pods).Namespace(pod.Namespace), pod, handshake.WarningIn(pod.Annotations))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
