package template

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// Values of api.LabelGPUSchedule.
const (
	scheduleWhole    = "default"
	scheduleMemory   = "cgpu"
	scheduleCompute  = "core_mem"
	scheduleTopology = "topology"
)

// scheduledResource is the resource that pods request, by value of api.LabelGPUSchedule.
var scheduledResource = map[string]apiv1.ResourceName{
	scheduleWhole:    api.ResourceGPU,
	scheduleMemory:   api.ResourceGPUMemory,
	"share":          api.ResourceGPUMemory,
	"mps":            api.ResourceGPUMemory,
	scheduleCompute:  api.ResourceGPUMemory,
	scheduleTopology: api.ResourceTopologyGPU,
}

// GPUConfig returns the model of the node's GPUs and the resource that pods request of them, which is memory where GPUs are
// shared; nil where the node has no GPU. A node whose device plugin is not up yet is recognized by its labels.
func GPUConfig(node *apiv1.Node) *cloudprovider.GpuConfig {
	if node == nil {
		return nil
	}
	model, labelled := node.Labels[api.LabelGPUModel]
	counted := apiv1.ResourceName(api.ResourceGPU)
	offered := false
	for _, name := range []apiv1.ResourceName{api.ResourceGPU, api.ResourceGPUMemory, api.ResourceTopologyGPU} {
		if quantity := node.Status.Allocatable[name]; quantity.Sign() > 0 {
			counted, offered = name, true
			break
		}
	}
	if !labelled && !offered {
		return nil
	}
	if !offered {
		if name, ok := scheduledResource[node.Labels[api.LabelGPUSchedule]]; ok {
			counted = name
		}
	}
	return &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: model, ResourceName: counted}
}

// gpuModel maps the name that ECS gives a GPU to the name that its driver gives it.
type gpuModel struct {
	// name is the GPUSpec of ECS without the manufacturer.
	name string
	// memoryGiB is the memory per GPU according to ECS. It tells variants with the same name apart.
	memoryGiB float64
	// label is the name in nvidia-smi, with dashes for spaces.
	label string
	// memoryMiB is the memory in nvidia-smi, with a driver of branch 510 or later and ECC as ECS sets it.
	memoryMiB int64
}

// gpuModels are the GPUs for which the two names differ by more than a dash, or the two sizes by more than the unit.
// The first variant of a name is used where the memory is unknown.
var gpuModels = []gpuModel{
	{"P4", 8, "Tesla-P4", 7680},
	{"P100", 16, "Tesla-P100-PCIE-16GB", 16384},
	{"V100", 16, "Tesla-V100-SXM2-16GB", 16384},
	{"V100", 32, "Tesla-V100-SXM2-32GB", 32768},
	{"V100S", 32, "Tesla-V100S-PCIE-32GB", 32768},
	{"T4", 16, "Tesla-T4", 15360},
	{"A10", 24, "NVIDIA-A10", 23028},
	{"A100", 80, "NVIDIA-A100-SXM4-80GB", 81920},
	{"A100", 40, "NVIDIA-A100-SXM4-40GB", 40960},
	{"A800", 80, "NVIDIA-A800-SXM4-80GB", 81920},
	{"L20", 48, "NVIDIA-L20", 46068},
	{"H20", 96, "NVIDIA-H20", 97871},
}

// otherVendors are the prefixes of GPUSpec of accelerators that are not made by NVIDIA. Their nodes have neither the labels
// nor the resource of NVIDIA GPUs.
var otherVendors = []string{"AMD", "MI-", "INTEL", "HL-", "ALINPU", "PPU", "NETINT"}

// GPUModel returns the value of api.LabelGPUModel for nodes of the instance type; empty where they have no NVIDIA GPU.
func GPUModel(t alicloud.InstanceType) string {
	if t.GPUs <= 0 {
		return ""
	}
	return findGPUModel(t.GPUModel, t.GPUMemoryGiB).label
}

// findGPUModel returns the GPU by the GPUSpec of ECS and the memory per GPU, 0 where that is unknown. A model that is not in
// the table gets the name that ECS gives it.
func findGPUModel(spec string, memoryGiB float64) gpuModel {
	spec = strings.Join(strings.Fields(spec), " ")
	upper := strings.ToUpper(spec)
	for _, vendor := range otherVendors {
		if strings.HasPrefix(upper, vendor) {
			return gpuModel{}
		}
	}
	bare := strings.TrimPrefix(strings.TrimPrefix(upper, "NVIDIA "), "TESLA ")
	branded := strings.HasPrefix(upper, "NVIDIA") || strings.HasPrefix(upper, "TESLA")
	var found *gpuModel
	for i, model := range gpuModels {
		if model.name == bare && (found == nil || closer(model.memoryGiB, found.memoryGiB, memoryGiB)) {
			found = &gpuModels[i]
		}
	}
	if found != nil {
		return *found
	}
	if spec != "" && !branded {
		spec = "NVIDIA " + spec // as drivers since branch 470 spell it
	}
	return gpuModel{label: labelValue(spec), memoryGiB: memoryGiB, memoryMiB: int64(memoryGiB * 1024)}
}

// closer returns whether a is nearer to the size than b; false where the size is unknown.
func closer(a, b, size float64) bool {
	return size > 0 && math.Abs(a-size) < math.Abs(b-size)
}

// labelValue turns any text into a valid label value.
func labelValue(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '_') {
			return r
		}
		return '-'
	}, text)
	return strings.Trim(clean[:min(len(clean), validation.LabelValueMaxLength)], "-._")
}

// gpuLabelsAndResources returns the labels and resources that the GPUs of the instance type add to its nodes, under a value of
// api.LabelGPUSchedule.
func gpuLabelsAndResources(t alicloud.InstanceType, schedule string) (labels map[string]string, resources apiv1.ResourceList) {
	model := findGPUModel(t.GPUModel, t.GPUMemoryGiB)
	if t.GPUs <= 0 || model.label == "" {
		return nil, nil
	}
	gpus := int64(t.GPUs)
	labels = map[string]string{
		api.LabelGPUModel:    model.label,
		api.LabelGPUCount:    strconv.FormatInt(gpus, 10),
		api.LabelXPUType:     "nvidia",
		api.LabelGPUSchedule: schedule,
	}
	if model.memoryMiB > 0 {
		labels[api.LabelGPUMemory] = strconv.FormatInt(model.memoryMiB, 10) + "MiB"
	}
	return labels, gpuResources(gpus, model.memoryMiB/1024, schedule)
}

// gpuResources returns the extended resources of a node with the given number of GPUs and whole GiB per GPU.
func gpuResources(gpus, memoryGiB int64, schedule string) apiv1.ResourceList {
	counts := map[apiv1.ResourceName]int64{api.ResourceGPU: 0}
	switch {
	case scheduledResource[schedule] == api.ResourceGPUMemory:
		counts[api.ResourceGPUMemory] = gpus * memoryGiB
		counts[api.ResourceGPUCount] = gpus
		if schedule == scheduleCompute {
			counts[api.ResourceGPUCompute] = gpus * 100
		}
	case schedule == scheduleTopology:
		counts[api.ResourceTopologyGPU] = gpus
	default:
		counts[api.ResourceGPU] = gpus
	}
	resources := apiv1.ResourceList{}
	for name, count := range counts {
		resources[name] = *resource.NewQuantity(count, resource.DecimalSI)
	}
	return resources
}
