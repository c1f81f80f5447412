package processors

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

// joinLookalikes makes pods that a scheduler cannot tell apart pods of one controller, without labels. Core looks once at
// all pods of a controller that are alike, and again at those of the next: a thousand jobs that lose eight pods each would
// be a thousand looks at every node. The pods are copies, and nobody's.
//
// Whom a pod keeps company with goes by labels, so that pods that say something about it are left as they are; and all of
// them are where any pod of the cluster keeps others off its node.
func joinLookalikes(ctx *cacontext.AutoscalingContext, copies []*apiv1.Pod) {
	unsociable, err := ctx.ClusterSnapshot.NodeInfos().HavePodsWithRequiredAntiAffinityList()
	if err != nil || len(unsociable) > 0 {
		return
	}
	for _, pod := range copies {
		if !isSolitary(pod) {
			continue
		}
		family, err := familyOf(pod)
		if err != nil {
			klog.Errorf("Looking at pod %s/%s by itself: %v", pod.Namespace, pod.Name, err)
			continue
		}
		pod.Labels = nil
		pod.OwnerReferences = []metav1.OwnerReference{{UID: family, Controller: ptr.To(true)}}
	}
}

// isSolitary says whether nothing but room and the properties of a node decide where the pod may go, and it may go alone.
func isSolitary(pod *apiv1.Pod) bool {
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

// familyOf is the same for pods with the same spec. Host names differ, and matter as little to core.
func familyOf(pod *apiv1.Pod) (types.UID, error) {
	spec := pod.Spec
	spec.Hostname = ""
	text, err := json.Marshal(&spec)
	if err != nil {
		return "", err
	}
	hash := fnv.New64a()
	hash.Write(text)
	return types.UID("lookalikes/" + strconv.FormatUint(hash.Sum64(), 16)), nil
}
