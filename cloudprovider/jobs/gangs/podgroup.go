package gangs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// podGroupKind is the pod group of a scheduler.
type podGroupKind struct {
	resource schema.GroupVersionResource
	// A pod names its group in a label or in an annotation, of Kubernetes' own groups in neither.
	label, annotation string
}

// podGroupKinds are in the order of precedence.
var podGroupKinds = []*podGroupKind{
	// Volcano gives each pod of its scheduler a group, also one of a single pod. Source: getJobID in pkg/scheduler/api/job_info.go of
	// volcano.sh/volcano (KubeGroupNameAnnotationKey), where the pod and its group are of one namespace.
	{
		resource:   podGroups("scheduling.volcano.sh", "v1beta1"),
		annotation: "scheduling.k8s.io/group-name",
	},
	// The coscheduling plugin. Source: PodGroupLabel in apis/scheduling/v1alpha1/types.go of sigs.k8s.io/scheduler-plugins.
	{
		resource: podGroups("scheduling.x-k8s.io", "v1alpha1"),
		label:    "scheduling.x-k8s.io/pod-group",
	},
	// Koordinator, which has kept the API group and the label that the coscheduling plugin once had. Source: PodGroupLabel in
	// apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1/types.go, and GetGangName in apis/extension/coscheduling.go, of
	// github.com/koordinator-sh/koordinator.
	{
		resource: podGroups("scheduling.sigs.k8s.io", "v1alpha1"),
		label:    "pod-group.scheduling.sigs.k8s.io",
	},
}

func podGroups(group, version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: "podgroups"}
}

// nameOn returns the name of the pod's group, or "".
func (k *podGroupKind) nameOn(pod *corev1.Pod) string {
	if k.label != "" {
		return pod.Labels[k.label]
	}
	return pod.Annotations[k.annotation]
}

// podGroup is what is read of a pod group.
type podGroup struct {
	Spec struct {
		MinMember jobs.Count `json:"minMember"`
		// SchedulingPolicy is that of Kubernetes' own groups.
		SchedulingPolicy struct {
			Gang *struct {
				MinCount jobs.Count `json:"minCount"`
			} `json:"gang"`
		} `json:"schedulingPolicy"`
	} `json:"spec"`
}

// read returns the gang of a pod group. It says nothing if it is a group of Kubernetes with the policy "basic", which pods have without
// anybody having chosen it.
//
// Of Volcano's group minTaskMember is not read: Volcano goes by it only if minMember is no less than its sum (CheckTaskValid in
// pkg/scheduler/api/job_info.go of volcano.sh/volcano), and the vcjob controller writes all replicas there unless told otherwise
// (getMinTaskMember in pkg/controllers/job/job_controller_actions.go). Nor is minResources, which says when the group may be tried.
func (k *podGroupKind) read(ctx context.Context, client dynamic.Interface, name types.NamespacedName) (content, error) {
	object, err := client.Resource(k.resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return content{}, err
	}
	var group podGroup
	if err := jobs.Decode(object, &group); err != nil {
		return content{}, err
	}
	if k.resource.Group != schedulingv1.GroupName {
		return content{says: true, gangs: jobs.StartGangs{Size: group.Spec.MinMember.Int()}}, nil
	}
	gang := group.Spec.SchedulingPolicy.Gang
	if gang == nil {
		return content{}, nil
	}
	return content{says: true, gangs: jobs.StartGangs{Size: gang.MinCount.Int()}}, nil
}
