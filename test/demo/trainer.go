package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"gpu-spot-autoscaler/test/standin"
)

const (
	// trainerInterval is how often a training process looks at the file with its pod's annotations.
	trainerInterval = 500 * time.Millisecond
	// saving is how long it takes to write a checkpoint.
	saving = 3 * time.Second
)

// trainer stands in for the training processes: no container runs here. Where a job was asked for a checkpoint its first
// worker takes a while, and then says that it is saved, as the loops in deploy/examples do.
type trainer struct {
	client kubernetes.Interface
	// asked is when a request was first seen, by its id.
	asked map[string]time.Time
}

// run trains until ctx ends, and returns the first error that trying again does not cure.
func (t *trainer) run(ctx context.Context) error {
	ticker := time.NewTicker(trainerInterval)
	defer ticker.Stop()
	for {
		if err := t.look(ctx); err != nil && ctx.Err() == nil && !standin.Transient(err) {
			return fmt.Errorf("stand-in for the training processes: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (t *trainer) look(ctx context.Context) error {
	list, err := t.client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	// The first worker of each job that was asked speaks for it.
	speakers := map[string]*corev1.Pod{}
	for i := range list.Items {
		pod := &list.Items[i]
		request := pod.Annotations[requestAnnotation]
		if request == "" || pod.Annotations[awaitAnnotation] == "" || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		if first := speakers[request]; first == nil || pod.Name < first.Name {
			speakers[request] = pod
		}
	}
	for _, request := range slices.Sorted(maps.Keys(speakers)) {
		if err := t.answer(ctx, speakers[request], request); err != nil {
			return err
		}
	}
	return nil
}

// answer acknowledges once the checkpoint would be saved.
func (t *trainer) answer(ctx context.Context, pod *corev1.Pod, request string) error {
	if t.asked[request].IsZero() {
		t.asked[request] = time.Now()
	}
	if time.Since(t.asked[request]) < saving || pod.Annotations[acknowledgedAnnotation] == request {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, acknowledgedAnnotation, request)
	_, err := t.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
