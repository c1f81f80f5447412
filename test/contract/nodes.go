package main

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodeQuestions() []question {
	return []question{{
		name:     "provider-id",
		asks:     "Which form has the providerID of a Node whose instance is in a scaling group?",
		matters:  "A Node is matched with its instance by it; one of a form that is not known is left alone for ever.",
		source:   "kubernetes/cloud-provider-alibaba-cloud: <region>.<instance-id>, and the same after alicloud://",
		believed: facts{"<region>.<instance-id>": "seen"},
		ask:      askProviderID,
	}, {
		name:    "node-labels",
		asks:    "Which labels that the autoscaler reads or promises has a Node of a GPU instance?",
		matters: "Template and Node must agree, or pods wait for nodes that never suit them.",
		source:  "kubernetes/cloud-provider-alibaba-cloud, node controller; well-known labels of Kubernetes",
		believed: facts{
			"node.kubernetes.io/instance-type": "yes", "topology.kubernetes.io/zone": "yes", "topology.kubernetes.io/region": "yes",
			"kubernetes.io/arch": "yes",
		},
		ask: askNodeLabels,
	}}
}

// nodesOfMembers pairs Nodes with the instances that scaling groups list.
func nodesOfMembers(ctx context.Context, a *account) ([]corev1.Node, error) {
	if a.nodes == nil {
		return nil, cannotTell("no cluster was given: say -kubeconfig")
	}
	nodes, err := a.nodes.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	instances, err := a.client.ScalingInstances(ctx, instanceFilter(""))
	if err != nil {
		return nil, err
	}
	var found []corev1.Node
	for _, node := range nodes.Items {
		for _, i := range instances {
			if strings.HasSuffix(node.Spec.ProviderID, i.ID) {
				found = append(found, node)
			}
		}
	}
	if len(found) == 0 {
		return nil, cannotTell("no Node of the cluster belongs to an instance of a scaling group")
	}
	return found, nil
}

func askProviderID(ctx context.Context, a *account) (facts, error) {
	nodes, err := nodesOfMembers(ctx, a)
	if err != nil {
		return nil, err
	}
	found := facts{}
	for _, node := range nodes {
		id := node.Spec.ProviderID
		switch {
		case strings.HasPrefix(id, a.region+".i-"):
			found["<region>.<instance-id>"] = "seen"
		case strings.HasPrefix(id, "alicloud://"+a.region+".i-"):
			found["alicloud://<region>.<instance-id>"] = "seen"
		default:
			found["another form"] = "seen"
		}
	}
	return found, nil
}

func askNodeLabels(ctx context.Context, a *account) (facts, error) {
	nodes, err := nodesOfMembers(ctx, a)
	if err != nil {
		return nil, err
	}
	found := facts{}
	for _, label := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelArchStable} {
		_, there := nodes[0].Labels[label]
		found[label] = yesNo(there)
	}
	return found, nil
}
