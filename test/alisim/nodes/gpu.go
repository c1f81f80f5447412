package nodes

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Labels of an ACK node with GPUs.
const (
	LabelGPUName   = "aliyun.accelerator/nvidia_name"
	LabelGPUCount  = "aliyun.accelerator/nvidia_count"
	LabelGPUMemory = "aliyun.accelerator/nvidia_mem"
	LabelXPUType   = "aliyun.accelerator/xpu_type"
	// LabelGPUSchedule is the way in which ACK hands out the GPUs of a node: whole ("default", as without the label),
	// shared ("cgpu", "core_mem", "share", "mps") or by topology.
	// Source: https://www.alibabacloud.com/help/doc-detail/191140.html
	LabelGPUSchedule = "ack.node.gpu.schedule"
)

// Extended resources that the GPU driver and its device plugin bring.
const (
	resourceGPU         = corev1.ResourceName("nvidia.com/gpu")
	resourceTopologyGPU = corev1.ResourceName("aliyun.com/gpu")
	// resourceGPUMemory is in GiB, all GPUs of the node together.
	resourceGPUMemory = corev1.ResourceName("aliyun.com/gpu-mem")
	resourceGPUCount  = corev1.ResourceName("aliyun.com/gpu-count")
	// resourceGPUCore is in per cent of a GPU, all GPUs of the node together.
	resourceGPUCore = corev1.ResourceName("aliyun.com/gpu-core.percentage")
)

// broughtByDriver says whether a resource is absent until the driver is there.
func broughtByDriver(name corev1.ResourceName) bool {
	switch name {
	case resourceGPU, resourceTopologyGPU, resourceGPUMemory, resourceGPUCount, resourceGPUCore:
		return true
	}
	return false
}

// gpuResources are what the device plugin of the pool's way of scheduling announces.
func gpuResources(m Machine) corev1.ResourceList {
	count := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	gpus := int64(m.GPUs)
	if gpus == 0 {
		return corev1.ResourceList{}
	}
	shared := corev1.ResourceList{
		resourceGPUMemory: count(gpus * gpuMemoryMiB(m.GPUModel, m.GPUMemGiB) / 1024),
		resourceGPUCount:  count(gpus),
	}
	switch m.Labels[LabelGPUSchedule] {
	case "core_mem":
		shared[resourceGPUCore] = count(100 * gpus)
		return shared
	case "cgpu", "share", "mps":
		return shared
	case "topology":
		return corev1.ResourceList{resourceTopologyGPU: count(gpus)}
	}
	return corev1.ResourceList{resourceGPU: count(gpus)}
}

func gpuLabels(m Machine) map[string]string {
	if m.GPUs == 0 {
		return nil
	}
	return map[string]string{
		LabelGPUName:   GPUName(m.GPUModel, m.GPUMemGiB),
		LabelGPUCount:  strconv.Itoa(m.GPUs),
		LabelGPUMemory: fmt.Sprintf("%dMiB", gpuMemoryMiB(m.GPUModel, m.GPUMemGiB)),
		LabelXPUType:   "nvidia",
	}
}

// GPUName returns the name that the driver reports, as ACK writes it on a node: "NVIDIA-A10", "Tesla-V100-SXM2-16GB".
// model may be bare ("V100") or Alibaba's GPUSpec ("NVIDIA V100"); memory is per GPU. A model it does not know becomes
// "NVIDIA-<model>".
func GPUName(model string, memoryGiB float64) string {
	model = bareModel(model)
	switch model {
	case "P4", "T4", "M40":
		return "Tesla-" + model
	case "P100":
		return fmt.Sprintf("Tesla-P100-PCIE-%.0fGB", memoryGiB)
	case "V100":
		return fmt.Sprintf("Tesla-V100-SXM2-%.0fGB", memoryGiB)
	case "A100":
		return fmt.Sprintf("NVIDIA-A100-SXM4-%.0fGB", memoryGiB)
	}
	return "NVIDIA-" + strings.ReplaceAll(model, " ", "-")
}

// gpuMemoryMiB is what the driver finds in one GPU. Those with ECC in ordinary memory have less than they are sold with.
func gpuMemoryMiB(model string, soldGiB float64) int64 {
	switch bareModel(model) {
	case "P4":
		return 7680
	case "T4":
		return 15360
	case "A10":
		return 23028
	case "L20":
		return 46068
	}
	return int64(soldGiB * 1024)
}

func bareModel(model string) string { return strings.TrimPrefix(strings.TrimSpace(model), "NVIDIA ") }
