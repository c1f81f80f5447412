package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
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
	// LabelDiskZone is what volumes on cloud disks are bound to.
	LabelDiskZone = "topology.diskplugin.csi.alibabacloud.com/zone"
)

// KwokAnnotation makes kwok look after a node.
const KwokAnnotation = "kwok.x-k8s.io/node"

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
	// Resources are further resources by name, as quantities. GPU resources among them (nvidia.com/gpu, or aliyun.com/gpu-mem
	// and aliyun.com/gpu-count where GPUs are shared) take the place of those that follow from GPUs and LabelGPUSchedule.
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
	maps.Copy(capacity, extended)
	allocatable := allocatableOf(capacity)
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
		corev1.LabelInstanceTypeStable:      m.InstanceType,
		corev1.LabelInstanceType:            m.InstanceType,
		corev1.LabelTopologyZone:            m.Zone,
		corev1.LabelFailureDomainBetaZone:   m.Zone,
		LabelDiskZone:                       m.Zone,
		corev1.LabelTopologyRegion:          m.Region,
		corev1.LabelFailureDomainBetaRegion: m.Region,
		corev1.LabelArchStable:              "amd64",
		"beta.kubernetes.io/arch":           "amd64",
		corev1.LabelOSStable:                "linux",
		"beta.kubernetes.io/os":             "linux",
		LabelChargeType:                     "PostPaid",
		LabelSpotStrategy:                   cmp.Or(m.SpotStrategy, "NoSpot"),
	}
	if m.PoolID != "" {
		labels[LabelNodePool] = m.PoolID
		labels[LabelNodePoolNode] = m.PoolID
	}
	maps.Copy(labels, gpuLabels(m))
	maps.Copy(labels, m.Labels)
	labels[LabelInstanceID] = m.InstanceID
	return labels
}

// extendedResources parses what is there from the start, and what comes with the driver.
func extendedResources(m Machine) (extended, driver corev1.ResourceList, err error) {
	extended, driver = corev1.ResourceList{}, corev1.ResourceList{}
	for name, text := range m.Resources {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, nil, fmt.Errorf("nodes: instance %s: resource %s=%q: %w", m.InstanceID, name, text, err)
		}
		if broughtByDriver(corev1.ResourceName(name)) {
			driver[corev1.ResourceName(name)] = quantity
		} else {
			extended[corev1.ResourceName(name)] = quantity
		}
	}
	if len(driver) == 0 {
		driver = gpuResources(m)
	}
	return extended, driver, nil
}
