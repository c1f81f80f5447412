package app

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

// Informers hold every pod of the cluster, for the simulations of the scheduler. What those do not look at is left out,
// and what pods of a controller have in common they share: together that is three quarters of a pod. Therefore: never
// change a pod or a Node of an informer, and never send one back with Update. Patch it, or get it first.

// newSlimmer returns a function that drops from an object what nobody here reads. It may be called again with what it
// returned.
func newSlimmer() cache.TransformFunc {
	family := newSiblings()
	return func(object any) (any, error) {
		switch object := object.(type) {
		case *apiv1.Pod:
			slimPod(object)
			family.share(object)
		case *apiv1.Node:
			object.Status.Images = nil // only the scheduler's scores go by them
		}
		return withoutManagedFields(object)
	}
}

// withoutManagedFields drops what nobody here reads and is a good part of every object.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// slimPod keeps what the filters of the scheduler, Cluster Autoscaler's drain rules and our own code read.
func slimPod(pod *apiv1.Pod) {
	if metav1.HasAnnotation(pod.ObjectMeta, apiv1.LastAppliedConfigAnnotation) { // else the map may be shared by now
		delete(pod.Annotations, apiv1.LastAppliedConfigAnnotation)
	}
	resized := only(pod.Status.ContainerStatuses, func(status apiv1.ContainerStatus) bool { return isResized(status, pod.Spec.Containers) })
	slimContainers(pod.Spec.InitContainers)
	slimContainers(pod.Spec.Containers)
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
	if pod.Annotations[api.AnnotationCheckpointRequest] != "" { // its acknowledgement is known by its address
		pod.Status.PodIPs = status.PodIPs
	}
	for _, status := range resized {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, apiv1.ContainerStatus{
			Name: status.Name, Resources: status.Resources, AllocatedResources: status.AllocatedResources,
		})
	}
}

// slimContainers keeps requests, limits and the ports that two pods cannot both have on a node.
func slimContainers(containers []apiv1.Container) {
	for i, c := range containers {
		containers[i] = apiv1.Container{
			Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy, // Always is what makes a sidecar
			Ports: only(c.Ports, func(port apiv1.ContainerPort) bool { return port.HostPort != 0 }),
		}
	}
}

// isResized says whether the container has other requests than its pod asks for: it is being resized in place.
func isResized(status apiv1.ContainerStatus, containers []apiv1.Container) bool {
	i := slices.IndexFunc(containers, func(c apiv1.Container) bool { return c.Name == status.Name })
	return status.Resources != nil && i >= 0 &&
		!apiequality.Semantic.DeepEqual(status.Resources.Requests, containers[i].Resources.Requests)
}

// isPlace says whether the volume may bind the pod to a place, as all do but those that bring configuration.
func isPlace(volume apiv1.Volume) bool {
	return volume.Projected == nil && volume.ConfigMap == nil && volume.Secret == nil && volume.DownwardAPI == nil
}

// isRemarkable says whether the condition is not one that every pod that runs has.
func isRemarkable(condition apiv1.PodCondition) bool {
	return condition.Status != apiv1.ConditionTrue || !slices.Contains([]apiv1.PodConditionType{
		apiv1.PodReadyToStartContainers, apiv1.PodInitialized, apiv1.PodReady, apiv1.ContainersReady, apiv1.PodScheduled,
	}, condition.Type)
}

// only returns a list of its own of what is to be kept, so that the memory of the rest is given back.
func only[T any](list []T, keep func(T) bool) (kept []T) {
	for _, item := range list {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// watchPods has the factory list pods in pages and slim each before it gets the next. Otherwise all of them would be in
// memory as they are, and their encoded form too, before the first is slimmed. Nobody may have asked the factory for
// pods before.
func watchPods(factory informers.SharedInformerFactory, slim cache.TransformFunc) {
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
					if _, err := slim(&list.Items[i]); err != nil {
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
