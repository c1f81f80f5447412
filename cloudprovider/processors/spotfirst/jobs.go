package spotfirst

import (
	"fmt"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
)

// Jobs returns the gang or the job of a pod. Pods are of one job if it returns the same for them, or nothing, and their controller is the same.
type Jobs func(*apiv1.Pod) string

// keyOf returns a text that is the same for the pods of one job.
func (j Jobs) keyOf(pod *apiv1.Pod) string {
	key := pod.Namespace + "/"
	if group := j(pod); group != "" {
		return key + group
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return key + string(owner.UID)
	}
	return key + string(pod.UID)
}

// eachPlaced calls see for each pod of the namespaces that has a place in core's snapshot, and stays there: on a node that there is, or that is on its
// way. Nodes that are being reclaimed are not in the snapshot.
func eachPlaced(ctx *cacontext.AutoscalingContext, namespaces sets.Set[string], see func(*apiv1.Pod, *framework.NodeInfo)) error {
	nodes, err := ctx.ClusterSnapshot.ListNodeInfos()
	if err != nil {
		return fmt.Errorf("list the nodes of the snapshot: %w", err)
	}
	for _, node := range nodes {
		for _, info := range node.Pods() {
			if namespaces.Has(info.Namespace) && info.DeletionTimestamp == nil {
				see(info.Pod, node)
			}
		}
	}
	return nil
}
