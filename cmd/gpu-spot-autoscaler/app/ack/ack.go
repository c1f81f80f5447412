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

// Manages returns a sentence if the ConfigMap says that ACK's autoscaler manages the scaling group, and "" if it does not.
func Manages(meta *corev1.ConfigMap, scalingGroup string) string {
	for _, text := range meta.Data {
		if strings.Contains(text, `"`+scalingGroup+`"`) {
			return fmt.Sprintf("ACK's own autoscaler is set up for the scaling group too: ConfigMap %s/%s names it", meta.Namespace, meta.Name)
		}
	}
	return ""
}
