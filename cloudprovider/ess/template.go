package ess

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// Purchase is how an instance is bought.
type Purchase string

// The purchase options.
const (
	PurchaseSpot     Purchase = "spot"
	PurchaseOnDemand Purchase = "on-demand"
)

// PurchaseOf returns the purchase option of a SpotStrategy; none and NoSpot are on-demand.
func PurchaseOf(spotStrategy string) Purchase {
	if spotStrategy == "" || spotStrategy == alicloud.NoSpot {
		return PurchaseOnDemand
	}
	return PurchaseSpot
}

// TemplateSpec is what the node of an offering will be made of.
type TemplateSpec struct {
	// GroupID is the node group, PoolID the scaling group. Zone is empty where the pool decides it.
	GroupID, PoolID, Region, Zone string
	Type                          alicloud.InstanceType
	Purchase                      Purchase
	// SpotStrategy is how ESS will buy it; empty means SpotAsPriceGo for spot.
	SpotStrategy string
	// SystemDiskGiB is 0 where the scaling configuration does not say.
	SystemDiskGiB int
	Settings      Settings
}

// BuildTemplate makes the Node that an instance of the offering would be once it is up: what kubelet, ACK and the
// device plugin would put on it, and over that what the pool's tags say. The name is new each time; there is no
// providerID. Where a tag contradicts what follows from the offering itself, such as its zone, the offering wins.
func BuildTemplate(spec TemplateSpec) *apiv1.Node {
	name := templateName(spec.PoolID)
	gpuLabels, gpuResources := gpuShape(spec.Type, spec.gpuSchedule())

	maxPods := int64(defaultMaxPods)
	if pods, ok := spec.Settings.Resources[apiv1.ResourcePods]; ok {
		maxPods = pods.Value()
	}
	diskGiB := spec.SystemDiskGiB
	if diskGiB <= 0 {
		diskGiB = defaultSystemDiskGiB
	}
	capacity, allocatable := machineResources(spec.Type.VCPU, spec.Type.MemoryGiB, diskGiB, maxPods)
	for _, list := range []apiv1.ResourceList{capacity, allocatable} {
		maps.Copy(list, gpuResources)
		maps.Copy(list, spec.Settings.Resources)
	}

	return &apiv1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: MergeTags(gpuLabels, spec.Settings.Labels, spec.labels(name)),
		},
		Spec: apiv1.NodeSpec{Taints: slices.Clone(spec.Settings.Taints)},
		Status: apiv1.NodeStatus{
			Capacity:    capacity,
			Allocatable: allocatable,
			Conditions:  cloudprovider.BuildReadyConditions(),
			NodeInfo:    apiv1.NodeSystemInfo{Architecture: spec.arch(), OperatingSystem: cloudprovider.DefaultOS},
		},
	}
}

// templateName is also fit for the label of the host name, which is shorter than names may be.
func templateName(poolID string) string {
	pool := strings.ReplaceAll(strings.ToLower(labelValue(poolID)), "_", "-")
	return fmt.Sprintf("template-%.40s-%s", pool, rand.String(10))
}

// gpuSchedule is how ACK will hand out the GPUs: as the label that nodes of the pool get says, if there is one. A tag for
// the amount of a resource says it too, since a node offers its GPUs in one way only.
func (spec TemplateSpec) gpuSchedule() string {
	schedule := spec.Settings.Labels[api.LabelGPUSchedule]
	tagged := func(name apiv1.ResourceName) bool { return isPositive(spec.Settings.Resources, name) }
	switch {
	case schedule != "":
		return schedule
	case spec.Settings.SharedGPU || tagged(api.ResourceGPUMemory):
		return scheduleMemory
	case tagged(api.ResourceTopologyGPU):
		return scheduleTopology
	}
	return scheduleWhole
}

func (spec TemplateSpec) arch() string {
	if spec.Type.Arch != "" {
		return spec.Type.Arch
	}
	return cloudprovider.DefaultArch
}

func (spec TemplateSpec) spotStrategy() string {
	switch {
	case spec.Purchase != PurchaseSpot:
		return alicloud.NoSpot
	case PurchaseOf(spec.SpotStrategy) == PurchaseSpot:
		return spec.SpotStrategy
	}
	return alicloud.SpotAsPriceGo
}

// labels are those that follow from the offering. The beta forms are still written by kubelet and cloud-controller.
func (spec TemplateSpec) labels(hostname string) map[string]string {
	labels := map[string]string{
		apiv1.LabelHostname:           hostname,
		apiv1.LabelArchStable:         spec.arch(),
		apiv1.LabelOSStable:           cloudprovider.DefaultOS,
		"beta.kubernetes.io/arch":     spec.arch(),
		"beta.kubernetes.io/os":       cloudprovider.DefaultOS,
		apiv1.LabelInstanceTypeStable: spec.Type.ID,
		apiv1.LabelInstanceType:       spec.Type.ID,
		apiv1.LabelTopologyRegion:     spec.Region,
		apiv1.LabelTopologyZone:       spec.Zone,

		apiv1.LabelFailureDomainBetaRegion: spec.Region,
		apiv1.LabelFailureDomainBetaZone:   spec.Zone,

		api.LabelDiskZone:     spec.Zone,
		api.LabelChargeType:   "PostPaid",
		api.LabelSpotStrategy: spec.spotStrategy(),
	}
	// A pool that cannot be targeted may put the node into any of its zones.
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}
