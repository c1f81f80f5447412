package podlist

import (
	"encoding/json"
	"hash/fnv"
	"strconv"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// groupBySpec puts pods that the scheduler cannot tell apart into one of core's equivalence groups: it makes them pods of one
// controller, without labels. Core evaluates an equivalence group at once (BuildPodGroups in core/scaleup/equivalence), and a
// group has one controller: a thousand jobs that lose eight pods each would be a thousand evaluations of every node. The pods
// are copies that nobody else uses.
//
// Pods with affinity terms, and others that fit a node or not for more reasons than its resources, are left as they are,
// because labels matter for them. So are all pods if any pod of the cluster has a required anti-affinity term.
func groupBySpec(ctx *cacontext.AutoscalingContext, copies []*apiv1.Pod) {
	withAntiAffinity, err := ctx.ClusterSnapshot.NodeInfos().HavePodsWithRequiredAntiAffinityList()
	if err != nil || len(withAntiAffinity) > 0 {
		return
	}
	for _, pod := range copies {
		if !dependsOnNodeOnly(pod) {
			continue
		}
		group, err := specGroup(pod)
		if err != nil {
			klog.ErrorS(err, "Cannot group a pod with those that have the same spec", "pod", klog.KObj(pod))
			continue
		}
		pod.Labels = nil
		pod.OwnerReferences = []metav1.OwnerReference{{UID: group, Controller: ptr.To(true)}}
	}
}

// dependsOnNodeOnly returns whether the resources and the properties of a node alone decide whether the pod may go there, and
// the pod may go alone.
func dependsOnNodeOnly(pod *apiv1.Pod) bool {
	if affinity := pod.Spec.Affinity; affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil) {
		return false
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.EmptyDir == nil {
			return false
		}
	}
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.HostPort != 0 {
				return false
			}
		}
	}
	gang, _, err := gangOf(pod)
	return gang == "" && err == nil && len(pod.Spec.TopologySpreadConstraints) == 0 && len(pod.Spec.ResourceClaims) == 0
}

// specGroup returns a UID that is equal for pods with equal specs. Host names, which core does not compare either, may differ.
func specGroup(pod *apiv1.Pod) (types.UID, error) {
	spec := pod.Spec
	spec.Hostname = ""
	text, err := json.Marshal(&spec)
	if err != nil {
		return "", err
	}
	hash := fnv.New64a()
	hash.Write(text)
	return types.UID("equal-specs/" + strconv.FormatUint(hash.Sum64(), 16)), nil
}
