// Package trim makes the objects of the shared informers small. The informers hold every pod of the cluster for the
// simulation of the scheduler. What the simulation does not read is left out, and pods of one controller share in memory what is
// equal in them, which saves three quarters of a pod.
//
// Therefore a pod or a Node of an informer must not be changed, nor sent back with Update. Patch it, or get it first.
package trim

import (
	"context"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// New returns a transformation for informers that removes from a pod or a Node what the autoscaler does not read, and from any
// other object its managed fields. It may be applied to its own result.
func New() cache.TransformFunc {
	shared := newSharedParts()
	return func(object any) (any, error) {
		switch object := object.(type) {
		case *apiv1.Pod:
			trimPod(object)
			shared.share(object)
		case *apiv1.Node:
			object.Status.Images = nil // only the scores of the scheduler depend on them
		}
		return ManagedFields(object)
	}
}

// ManagedFields is a transformation for informers that removes the managed fields of an object.
func ManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// trimPod keeps what the filters of the scheduler, Cluster Autoscaler's drain rules and this project read.
func trimPod(pod *apiv1.Pod) {
	if metav1.HasAnnotation(pod.ObjectMeta, apiv1.LastAppliedConfigAnnotation) { // else the map may be shared by now
		delete(pod.Annotations, apiv1.LastAppliedConfigAnnotation)
	}
	// A pod that was asked acknowledges from its address, and asks the node-agent for its interval from there. Its job is waited for no longer
	// once a container of it has ended since (isDoneTraining in cloudprovider/reclaim/handshake).
	isAsked := pod.Annotations[api.AnnotationCheckpointRequest] != ""
	containers := containerStatuses(pod, isAsked, pod.Annotations[api.AnnotationWork] != "")
	trimContainers(pod.Spec.InitContainers)
	trimContainers(pod.Spec.Containers)
	pod.Spec.EphemeralContainers = nil
	pod.Spec.Volumes = only(pod.Spec.Volumes, isPlace)
	pod.Spec.SecurityContext, pod.Spec.ImagePullSecrets = nil, nil
	pod.Spec.HostAliases, pod.Spec.DNSConfig, pod.Spec.ReadinessGates = nil, nil, nil

	status := pod.Status
	pod.Status = apiv1.PodStatus{
		Phase: status.Phase, Reason: status.Reason, NominatedNodeName: status.NominatedNodeName, StartTime: status.StartTime,
		Resize: status.Resize, ResourceClaimStatuses: status.ResourceClaimStatuses,
		Conditions: only(status.Conditions, isRemarkable),
	}
	if isAsked || pod.Annotations[api.AnnotationCheckpointTime] != "" {
		pod.Status.PodIPs = status.PodIPs
	}
	pod.Status.ContainerStatuses = containers
}

// containerStatuses returns the requests of containers that are being resized, and, if asked for, when containers have ended or were started.
func containerStatuses(pod *apiv1.Pod, withEnds, withStarts bool) (kept []apiv1.ContainerStatus) {
	for _, status := range pod.Status.ContainerStatuses {
		short := apiv1.ContainerStatus{Name: status.Name}
		if isResized(status, pod.Spec.Containers) {
			short.Resources, short.AllocatedResources = status.Resources, status.AllocatedResources
		}
		if withEnds {
			short.State, short.LastTerminationState = endOf(status.State), endOf(status.LastTerminationState)
		}
		if withStarts {
			short.State = startOf(status.State, short.State)
		}
		if short.Resources != nil || short.State != (apiv1.ContainerState{}) || short.LastTerminationState.Terminated != nil {
			kept = append(kept, short)
		}
	}
	return kept
}

// endOf returns when the container ended, if it has.
func endOf(state apiv1.ContainerState) (end apiv1.ContainerState) {
	if state.Terminated != nil {
		end.Terminated = &apiv1.ContainerStateTerminated{FinishedAt: state.Terminated.FinishedAt}
	}
	return end
}

// startOf adds to what is kept of the state when the container was started.
func startOf(state, kept apiv1.ContainerState) apiv1.ContainerState {
	switch {
	case state.Running != nil:
		kept.Running = &apiv1.ContainerStateRunning{StartedAt: state.Running.StartedAt}
	case kept.Terminated != nil:
		kept.Terminated.StartedAt = state.Terminated.StartedAt
	}
	return kept
}

// trimContainers keeps requests, limits and the ports that two pods cannot both have on a node.
func trimContainers(containers []apiv1.Container) {
	for i, c := range containers {
		containers[i] = apiv1.Container{
			Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy, // Always is what makes a sidecar
			Ports: only(c.Ports, func(port apiv1.ContainerPort) bool { return port.HostPort != 0 }),
		}
	}
}

// isResized returns whether the container has other requests than its pod specifies, because it is being resized in place.
func isResized(status apiv1.ContainerStatus, containers []apiv1.Container) bool {
	i := slices.IndexFunc(containers, func(c apiv1.Container) bool { return c.Name == status.Name })
	return status.Resources != nil && i >= 0 &&
		!apiequality.Semantic.DeepEqual(status.Resources.Requests, containers[i].Resources.Requests)
}

// isPlace returns whether the volume may restrict on which nodes the pod can run. Volumes of configuration do not.
func isPlace(volume apiv1.Volume) bool {
	return volume.Projected == nil && volume.ConfigMap == nil && volume.Secret == nil && volume.DownwardAPI == nil
}

// isRemarkable returns whether the condition is not one of those that every running pod has.
func isRemarkable(condition apiv1.PodCondition) bool {
	return condition.Status != apiv1.ConditionTrue || !slices.Contains([]apiv1.PodConditionType{
		apiv1.PodReadyToStartContainers, apiv1.PodInitialized, apiv1.PodReady, apiv1.ContainersReady, apiv1.PodScheduled,
	}, condition.Type)
}

// only returns a new list of the items to be kept, so that the memory of the others is freed.
func only[T any](list []T, keep func(T) bool) (kept []T) {
	for _, item := range list {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// WatchPods makes the factory list pods in pages, and apply the transformation to each page before it gets the next one.
// Otherwise all pods would be in memory as they are, and their encoded form too, before the first is transformed. It must be
// called before anything else asks the factory for its informer of pods.
func WatchPods(factory informers.SharedInformerFactory, transform cache.TransformFunc) {
	factory.InformerFor(&apiv1.Pod{}, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
		pods := client.CoreV1().Pods(metav1.NamespaceAll)
		source := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
				if options.ResourceVersion == "0" {
					options.ResourceVersion = "" // "0" allows the API server to ignore the size of pages
				}
				list, err := pods.List(ctx, options)
				if err != nil {
					return nil, err
				}
				for i := range list.Items {
					if _, err := transform(&list.Items[i]); err != nil {
						return nil, err
					}
				}
				return list, nil
			},
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, options)
			},
		}
		return cache.NewSharedIndexInformer(source, &apiv1.Pod{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	})
}
