// Package template builds the Node that an instance would become, so that Cluster Autoscaler can simulate pods on it before it
// is bought.
package template

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
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

// IsSpot returns whether a SpotStrategy of Alibaba Cloud means spot instances. An empty one and NoSpot mean on-demand.
func IsSpot(spotStrategy string) bool {
	return spotStrategy != "" && spotStrategy != alicloud.NoSpot
}

// Spec is everything that decides what the node of an offering looks like.
type Spec struct {
	// PoolID is the scaling group. Zone is empty where the scaling group chooses it.
	PoolID, Region, Zone string
	Type                 alicloud.InstanceType
	Spot                 bool
	// SpotStrategy is the one that the instance will be bought with. If it contradicts Spot, it is ignored: the node then has
	// SpotAsPriceGo for spot and NoSpot for on-demand.
	SpotStrategy string
	// SystemDiskGiB is 0 where the scaling configuration sets no size.
	SystemDiskGiB int
	Settings      settings.Settings
}

// Build returns the Node that an instance of the offering would be once it is Ready: what kubelet, ACK and the device plugin
// would put on it, and what the pool's tags add. The name is new with each call, and there is no providerID. Where a tag
// contradicts a property of the offering, such as its zone, the offering wins.
func Build(spec Spec) *apiv1.Node {
	name := nodeName(spec.PoolID)
	gpuLabels, gpuResources := gpuLabelsAndResources(spec.Type, spec.gpuSchedule())

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
			Labels: settings.Merge(gpuLabels, spec.Settings.Labels, spec.labels(name)),
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

// nodeName returns a new name. It fits into the host name label too, whose values are shorter than names of Nodes.
func nodeName(poolID string) string {
	pool := strings.ReplaceAll(strings.ToLower(labelValue(poolID)), "_", "-")
	return fmt.Sprintf("template-%.40s-%s", pool, rand.String(10))
}

// gpuSchedule returns the value of api.LabelGPUSchedule, which decides in which resource ACK hands out the GPUs. The pool's
// own label wins. A tag for the amount of a GPU resource decides too, because a node offers its GPUs in one resource only.
func (spec Spec) gpuSchedule() string {
	schedule := spec.Settings.Labels[api.LabelGPUSchedule]
	switch {
	case schedule != "":
		return schedule
	case spec.Settings.SharedGPU || Offers(spec.Settings.Resources, api.ResourceGPUMemory):
		return scheduleMemory
	case Offers(spec.Settings.Resources, api.ResourceTopologyGPU):
		return scheduleTopology
	}
	return scheduleWhole
}

func (spec Spec) arch() string {
	if spec.Type.Arch != "" {
		return spec.Type.Arch
	}
	return cloudprovider.DefaultArch
}

func (spec Spec) spotStrategy() string {
	switch {
	case !spec.Spot:
		return alicloud.NoSpot
	case IsSpot(spec.SpotStrategy):
		return spec.SpotStrategy
	}
	return alicloud.SpotAsPriceGo
}

// labels returns the labels that follow from the offering. Kubelet and cloud-controller-manager still write the beta forms.
func (spec Spec) labels(hostname string) map[string]string {
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
	// The zone is empty where the scaling group chooses it.
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}
