package nodes

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels that an ACK node carries beside the well-known ones.
const (
	LabelInstanceID   = "alibabacloud.com/ecs-instance-id"
	LabelNodePool     = "alibabacloud.com/nodepool-id"
	LabelNodePoolNode = "node.alibabacloud.com/nodepool-id"
	LabelChargeType   = "node.alibabacloud.com/instance-charge-type"
	LabelSpotStrategy = "node.alibabacloud.com/spot-strategy"
	LabelGPUName      = "aliyun.accelerator/nvidia_name"
	LabelGPUCount     = "aliyun.accelerator/nvidia_count"
	LabelGPUMemory    = "aliyun.accelerator/nvidia_mem"
)

// KwokAnnotation makes kwok look after a node.
const KwokAnnotation = "kwok.x-k8s.io/node"

// Extended resources that the GPU driver and its device plugin bring.
const (
	resourceGPU = corev1.ResourceName("nvidia.com/gpu")
	// Where GPUs are shared, these take the place of nvidia.com/gpu.
	resourceSharedGPUMemory = corev1.ResourceName("aliyun.com/gpu-mem")
	resourceSharedGPUCount  = corev1.ResourceName("aliyun.com/gpu-count")
)

// Machine is a booted instance.
type Machine struct {
	InstanceID, Region, Zone, InstanceType string
	// SpotStrategy is NoSpot, SpotAsPriceGo or SpotWithPriceLimit; empty means NoSpot.
	SpotStrategy string
	// PoolID is the scaling group.
	PoolID string
	// Labels and Taints are added to those every ACK node has; these labels win, but for the instance ID.
	Labels map[string]string
	Taints []corev1.Taint
	// Resources are further extended resources by name, as quantities. With aliyun.com/gpu-mem or aliyun.com/gpu-count
	// among them the GPUs are shared, and there is no nvidia.com/gpu.
	Resources map[string]string
	VCPU      int
	MemoryGiB float64
	// SystemDiskGiB is 0 for ACK's default of 120.
	SystemDiskGiB int
	GPUs          int
	// GPUModel is the bare name ("A10") or Alibaba's GPUSpec ("NVIDIA A10").
	GPUModel string
	// GPUMemGiB is per GPU.
	GPUMemGiB float64
	// DriverDelay is how long after the Node appears its GPUs become allocatable.
	DriverDelay time.Duration
}

// buildNode returns the node without name and address, and the resources that only the driver brings.
func buildNode(m Machine) (*corev1.Node, corev1.ResourceList, error) {
	extended, driver, err := extendedResources(m)
	if err != nil {
		return nil, nil, err
	}
	capacity := capacityOf(m)
	allocatable := allocatableOf(capacity)
	maps.Copy(capacity, extended)
	maps.Copy(allocatable, extended)
	if m.DriverDelay <= 0 {
		maps.Copy(capacity, driver)
		maps.Copy(allocatable, driver)
		driver = nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      labelsOf(m),
			Annotations: map[string]string{KwokAnnotation: "fake"},
		},
		Spec: corev1.NodeSpec{
			ProviderID: m.Region + "." + m.InstanceID,
			Taints:     slices.Clone(m.Taints),
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: allocatable,
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:            "amd64",
				OperatingSystem:         "linux",
				OSImage:                 "Alibaba Cloud Linux 3",
				ContainerRuntimeVersion: "containerd://1.6.38",
				KubeletVersion:          "v1.33.3-aliyun.1",
			},
		},
	}, driver, nil
}

// named returns a copy that carries ACK's name for a node with this address.
func named(node *corev1.Node, address netip.Addr) *corev1.Node {
	node = node.DeepCopy()
	region, _, _ := strings.Cut(node.Spec.ProviderID, ".")
	node.Name = region + "." + address.String()
	node.Labels[corev1.LabelHostname] = node.Name
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: address.String()},
		{Type: corev1.NodeHostName, Address: node.Name},
	}
	return node
}

func labelsOf(m Machine) map[string]string {
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: m.InstanceType,
		corev1.LabelTopologyZone:       m.Zone,
		corev1.LabelTopologyRegion:     m.Region,
		corev1.LabelArchStable:         "amd64",
		corev1.LabelOSStable:           "linux",
		LabelChargeType:                "PostPaid",
		LabelSpotStrategy:              orDefault(m.SpotStrategy, "NoSpot"),
	}
	if m.PoolID != "" {
		labels[LabelNodePool] = m.PoolID
		labels[LabelNodePoolNode] = m.PoolID
	}
	if m.GPUs > 0 {
		labels[LabelGPUName] = GPUName(m.GPUModel, m.GPUMemGiB)
		labels[LabelGPUCount] = strconv.Itoa(m.GPUs)
		labels[LabelGPUMemory] = fmt.Sprintf("%.0fMiB", m.GPUMemGiB*1024)
	}
	maps.Copy(labels, m.Labels)
	labels[LabelInstanceID] = m.InstanceID
	return labels
}

// GPUName returns the name that the driver reports, as ACK writes it on a node: "NVIDIA-A10", "Tesla-V100-SXM2-16GB".
// model may be bare ("V100") or Alibaba's GPUSpec ("NVIDIA V100"); memory is per GPU. A model it does not know becomes
// "NVIDIA-<model>".
func GPUName(model string, memoryGiB float64) string {
	model = strings.TrimPrefix(strings.TrimSpace(model), "NVIDIA ")
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

// extendedResources parses what is there from the start, and what comes with the driver.
func extendedResources(m Machine) (extended, driver corev1.ResourceList, err error) {
	extended, driver = corev1.ResourceList{}, corev1.ResourceList{}
	if m.GPUs > 0 {
		driver[resourceGPU] = *resource.NewQuantity(int64(m.GPUs), resource.DecimalSI)
	}
	for name, text := range m.Resources {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, nil, fmt.Errorf("nodes: instance %s: resource %s=%q: %w", m.InstanceID, name, text, err)
		}
		switch name := corev1.ResourceName(name); name {
		case resourceSharedGPUMemory, resourceSharedGPUCount:
			delete(driver, resourceGPU)
			driver[name] = quantity
		case resourceGPU:
			driver[name] = quantity
		default:
			extended[name] = quantity
		}
	}
	return extended, driver, nil
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}
