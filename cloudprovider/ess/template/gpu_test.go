package template

import (
	"testing"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

func TestGPUConfig(t *testing.T) {
	const a10 = "NVIDIA-A10"
	for name, test := range map[string]struct {
		labels      map[string]string
		allocatable map[apiv1.ResourceName]string
		want        *cloudprovider.GpuConfig
	}{
		"no GPU": {allocatable: map[apiv1.ResourceName]string{"cpu": "4"}},
		"a resource of 0 is no GPU": {
			allocatable: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "0"},
		},
		"whole GPUs": {
			labels:      map[string]string{api.LabelGPUModel: a10},
			allocatable: map[apiv1.ResourceName]string{"nvidia.com/gpu": "8"},
			want:        &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: a10, ResourceName: "nvidia.com/gpu"},
		},
		"whole GPUs without label": {
			allocatable: map[apiv1.ResourceName]string{"nvidia.com/gpu": "1"},
			want:        &cloudprovider.GpuConfig{Label: api.LabelGPUModel, ResourceName: "nvidia.com/gpu"},
		},
		"driver not up yet": {
			labels: map[string]string{api.LabelGPUModel: a10, api.LabelGPUSchedule: "default"},
			want:   &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: a10, ResourceName: "nvidia.com/gpu"},
		},
		"shared GPUs": {
			labels:      map[string]string{api.LabelGPUModel: a10},
			allocatable: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "22", "aliyun.com/gpu-count": "1"},
			want:        &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: a10, ResourceName: "aliyun.com/gpu-mem"},
		},
		"shared GPUs, driver not up yet": {
			labels: map[string]string{api.LabelGPUModel: a10, api.LabelGPUSchedule: "core_mem"},
			want:   &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: a10, ResourceName: "aliyun.com/gpu-mem"},
		},
		"GPUs picked by topology": {
			labels:      map[string]string{api.LabelGPUModel: a10, api.LabelGPUSchedule: "topology"},
			allocatable: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu": "8"},
			want:        &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: a10, ResourceName: "aliyun.com/gpu"},
		},
		"an unknown way of sharing": {
			labels: map[string]string{api.LabelGPUModel: a10, api.LabelGPUSchedule: "disabled"},
			want:   &cloudprovider.GpuConfig{Label: api.LabelGPUModel, Type: a10, ResourceName: "nvidia.com/gpu"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Labels: test.labels}}
			node.Status.Allocatable = apiv1.ResourceList{}
			for name, quantity := range test.allocatable {
				node.Status.Allocatable[name] = resource.MustParse(quantity)
			}
			got := GPUConfig(node)
			if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
	t.Run("no node", func(t *testing.T) {
		if got := GPUConfig(nil); got != nil {
			t.Errorf("got %+v", got)
		}
	})
}

func TestGPUModel(t *testing.T) {
	for name, test := range map[string]struct {
		spec      string
		memoryGiB float64
		want      string
	}{
		"as ECS spells it":               {"NVIDIA A10", 24, "NVIDIA-A10"},
		"without the maker":              {"A10", 24, "NVIDIA-A10"},
		"in other letters and spaces":    {" Nvidia  a10 ", 24, "NVIDIA-A10"},
		"of the two V100 the small":      {"NVIDIA V100", 16, "Tesla-V100-SXM2-16GB"},
		"of the two V100 the large":      {"NVIDIA V100", 32, "Tesla-V100-SXM2-32GB"},
		"a V100 of unknown size":         {"NVIDIA V100", 0, "Tesla-V100-SXM2-16GB"},
		"with the Tesla in its name":     {"NVIDIA Tesla T4", 16, "Tesla-T4"},
		"of the two A100 the small":      {"NVIDIA A100", 40, "NVIDIA-A100-SXM4-40GB"},
		"of the two A100 the large":      {"NVIDIA A100", 80, "NVIDIA-A100-SXM4-80GB"},
		"spelt as on the node already":   {"Tesla-V100-SXM2-32GB", 32, "Tesla-V100-SXM2-32GB"},
		"a model not in the table":       {"NVIDIA L40S", 48, "NVIDIA-L40S"},
		"a model not in the table, bare": {"96GB-GPU", 96, "NVIDIA-96GB-GPU"},
		"a name fit for no label":        {"NVIDIA T4/8 (vGPU)", 2, "NVIDIA-T4-8--vGPU"},
		"another maker's":                {"AMD S7150", 8, ""},
		"none":                           {"", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := GPUModel(alicloud.InstanceType{GPUs: 1, GPUModel: test.spec, GPUMemoryGiB: test.memoryGiB})
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
				t.Errorf("not a label: %v", problems)
			}
		})
	}
	t.Run("no GPUs", func(t *testing.T) {
		if got := GPUModel(alicloud.InstanceType{GPUModel: "NVIDIA A10"}); got != "" {
			t.Errorf("got %q", got)
		}
	})
}
