package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/providerid"
)

// checkNodes compares the Nodes of the pools with what their tags say of them: pods are simulated on that while a pool is empty.
func (e *clusterExam) checkNodes(ctx context.Context, cloud *cloudExam) {
	if len(cloud.pools) == 0 {
		return
	}
	list, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if e.failed("Nodes", err) {
		return
	}
	// Without any options it strips the taints that come and go: those of Kubernetes, of Cluster Autoscaler and of reclaims.
	passing := taints.NewTaintConfig(config.AutoscalingOptions{})
	for _, node := range list.Items {
		_, id, err := providerid.Parse(node.Spec.ProviderID)
		if err != nil {
			continue
		}
		p := cloud.pools[cloud.instances[id].ScalingGroupID]
		if p == nil {
			continue
		}
		// One Node of a pool is enough to see it.
		if !e.report.hasFor(TemplateLabels, p.ID) {
			e.checkLabels(p, &node)
		}
		if !e.report.hasFor(TemplateTaints, p.ID) {
			e.checkTaints(p, &node, taints.SanitizeTaints(node.Spec.Taints, passing))
		}
	}
}

func (e *clusterExam) checkLabels(p *pool.Pool, node *corev1.Node) {
	for _, key := range slices.Sorted(maps.Keys(p.Settings.Labels)) {
		if promised := p.Settings.Labels[key]; node.Labels[key] != promised {
			e.report.add(TemplateLabels, Error, p.ID, fmt.Sprintf("its tags promise the label %s=%s, and Node %s has %q: pods that select it get nodes that do not fit them",
				key, promised, node.Name, node.Labels[key]), "Correct the tag, or have the node pool set the label")
			return
		}
	}
}

func (e *clusterExam) checkTaints(p *pool.Pool, node *corev1.Node, lasting []corev1.Taint) {
	for _, taint := range lasting {
		if !slices.ContainsFunc(p.Settings.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }) {
			e.report.add(TemplateTaints, Error, p.ID, fmt.Sprintf("Node %s has the taint %s, which no tag announces: for pods that do not tolerate it nodes are bought in vain",
				node.Name, taint.ToString()), fmt.Sprintf("Set the tag %staint/%s=%s:%s", api.TagNodeTemplate, taint.Key, taint.Value, taint.Effect))
			return
		}
	}
}
