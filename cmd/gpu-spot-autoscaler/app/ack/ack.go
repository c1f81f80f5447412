// Package ack recognizes ACK's own autoscalers: Cluster Autoscaler as ACK runs it, and its successor GOATScaler.
package ack

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Meta is the name of the ConfigMap in kube-system that says which scaling groups ACK's autoscaler manages. Its data is JSON, in which
// the scaling groups are the keys of "scaling_configurations". Both autoscalers use it. Source: clusterAutoscalerMeta and
// autoscalerMeta in resource_alicloud_cs_kubernetes_autoscaler.go of aliyun/terraform-provider-alicloud. The form is not documented,
// so any text that names a scaling group counts.
const Meta = "autoscaler-meta"

// GOATScaler is the name of the component, and of its Lease in kube-system. In a managed cluster it runs in ACK's control plane, and the
// Lease is all that is seen of it. The name is that of ACK's list of components ("ACK GOATScaler",
// help.aliyun.com/en/ack/product-overview/ack-goatscaler); the Lease was seen in real managed clusters in October 2026, with a ConfigMap
// Meta that named no scaling group although node pools were scaled.
const GOATScaler = "ack-goatscaler"

// Manages returns a sentence if the ConfigMap says that ACK's autoscaler manages the scaling group, and "" if it does not.
func Manages(meta *corev1.ConfigMap, scalingGroup string) string {
	for _, text := range meta.Data {
		if strings.Contains(text, `"`+scalingGroup+`"`) {
			return fmt.Sprintf("ACK's own autoscaler is set up for the scaling group too: ConfigMap %s/%s names it", meta.Namespace, meta.Name)
		}
	}
	return ""
}
