package template

import (
	"maps"
	"strings"
	"testing"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/settings"
)

var (
	a10Type = alicloud.InstanceType{
		ID: "ecs.gn7i-4x.8xlarge", VCPU: 32, MemoryGiB: 128, GPUs: 4, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64",
	}
	cpuType = alicloud.InstanceType{ID: "ecs.g7.large", VCPU: 2, MemoryGiB: 8, Arch: "amd64"}
)

func templateOf(t alicloud.InstanceType, settings settings.Settings) *apiv1.Node {
	return Build(Spec{
		PoolID: "asg-1", Region: "cn-hangzhou", Zone: "cn-hangzhou-h",
		Type: t, Spot: true, SpotStrategy: alicloud.SpotAsPriceGo, SystemDiskGiB: 120, Settings: settings,
	})
}

func TestTemplateIsLikeAnACKNode(t *testing.T) {
	node := templateOf(a10Type, settings.Settings{})

	wantLabels := map[string]string{
		"kubernetes.io/hostname":                        node.Name,
		"kubernetes.io/arch":                            "amd64",
		"kubernetes.io/os":                              "linux",
		"beta.kubernetes.io/arch":                       "amd64",
		"beta.kubernetes.io/os":                         "linux",
		"node.kubernetes.io/instance-type":              "ecs.gn7i-4x.8xlarge",
		"beta.kubernetes.io/instance-type":              "ecs.gn7i-4x.8xlarge",
		"topology.kubernetes.io/region":                 "cn-hangzhou",
		"topology.kubernetes.io/zone":                   "cn-hangzhou-h",
		"failure-domain.beta.kubernetes.io/region":      "cn-hangzhou",
		"failure-domain.beta.kubernetes.io/zone":        "cn-hangzhou-h",
		"topology.diskplugin.csi.alibabacloud.com/zone": "cn-hangzhou-h",
		"node.alibabacloud.com/instance-charge-type":    "PostPaid",
		"node.alibabacloud.com/spot-strategy":           "SpotAsPriceGo",
		"aliyun.accelerator/nvidia_name":                "NVIDIA-A10",
		"aliyun.accelerator/nvidia_count":               "4",
		"aliyun.accelerator/nvidia_mem":                 "23028MiB",
		"aliyun.accelerator/xpu_type":                   "nvidia",
		"ack.node.gpu.schedule":                         "default",
	}
	if !maps.Equal(node.Labels, wantLabels) {
		t.Errorf("labels\n%v, want\n%v", node.Labels, wantLabels)
	}
	for key, value := range node.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("label %s=%s: %v", key, value, problems)
		}
	}
	if problems := validation.IsDNS1123Subdomain(node.Name); len(problems) > 0 {
		t.Errorf("name %s: %v", node.Name, problems)
	}
	if node.Spec.ProviderID != "" || node.Spec.Unschedulable || len(node.Spec.Taints) > 0 {
		t.Errorf("spec %+v", node.Spec)
	}
	if len(node.Status.Conditions) == 0 || node.Status.Conditions[0].Type != apiv1.NodeReady ||
		node.Status.Conditions[0].Status != apiv1.ConditionTrue {
		t.Errorf("conditions %v", node.Status.Conditions)
	}
	wantResources(t, "capacity", node.Status.Capacity, map[apiv1.ResourceName]string{
		"cpu": "32", "memory": "128384Mi", "ephemeral-storage": "120448Mi", "pods": "110",
		"hugepages-1Gi": "0", "hugepages-2Mi": "0", "nvidia.com/gpu": "4",
	})
	wantResources(t, "allocatable", node.Status.Allocatable, map[apiv1.ResourceName]string{
		"cpu": "31850m", "memory": "126619Mi", "ephemeral-storage": "113668993800", "pods": "110",
		"hugepages-1Gi": "0", "hugepages-2Mi": "0", "nvidia.com/gpu": "4",
	})
}

// wantResources compares the whole list.
func wantResources(t *testing.T, what string, got apiv1.ResourceList, want map[apiv1.ResourceName]string) {
	t.Helper()
	for name, quantity := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s has %s=%s", what, name, &quantity)
		}
	}
	for name, quantity := range want {
		if had, ok := got[name]; !ok || had.Cmp(resource.MustParse(quantity)) != 0 {
			t.Errorf("%s %s is %s, want %s", what, name, &had, quantity)
		}
	}
}

func TestTemplateWithoutGPUs(t *testing.T) {
	node := templateOf(cpuType, settings.Settings{SharedGPU: true})
	for key := range node.Labels {
		if strings.Contains(key, "accelerator") || strings.Contains(key, "gpu.schedule") {
			t.Errorf("label %s", key)
		}
	}
	for name := range node.Status.Capacity {
		if strings.Contains(string(name), "gpu") {
			t.Errorf("resource %s", name)
		}
	}
	if got := GPUConfig(node); got != nil {
		t.Errorf("core would see %+v", got)
	}
}

func TestTemplateOfSharedGPUs(t *testing.T) {
	for name, test := range map[string]struct {
		settings settings.Settings
		schedule string
		want     map[apiv1.ResourceName]string
		counted  apiv1.ResourceName
	}{
		"by our tag": {
			settings: settings.Settings{SharedGPU: true}, schedule: "cgpu", counted: "aliyun.com/gpu-mem",
			want: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "88", "aliyun.com/gpu-count": "4"},
		},
		"by the label that ACK gives the node pool": {
			settings: settings.Settings{Labels: map[string]string{"ack.node.gpu.schedule": "share"}},
			schedule: "share", counted: "aliyun.com/gpu-mem",
			want: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "88", "aliyun.com/gpu-count": "4"},
		},
		"with compute power apart": {
			settings: settings.Settings{SharedGPU: true, Labels: map[string]string{"ack.node.gpu.schedule": "core_mem"}},
			schedule: "core_mem", counted: "aliyun.com/gpu-mem",
			want: map[apiv1.ResourceName]string{
				"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "88", "aliyun.com/gpu-count": "4", "aliyun.com/gpu-core.percentage": "400",
			},
		},
		"by topology": {
			settings: settings.Settings{Labels: map[string]string{"ack.node.gpu.schedule": "topology"}},
			schedule: "topology", counted: "aliyun.com/gpu",
			want: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu": "4"},
		},
		"by a tag for the amount alone": {
			settings: settings.Settings{Resources: apiv1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("92")}},
			schedule: "cgpu", counted: "aliyun.com/gpu-mem",
			want: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "92", "aliyun.com/gpu-count": "4"},
		},
		"by topology, by a tag for the amount alone": {
			settings: settings.Settings{Resources: apiv1.ResourceList{"aliyun.com/gpu": resource.MustParse("4")}},
			schedule: "topology", counted: "aliyun.com/gpu",
			want: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu": "4"},
		},
		"with the amount from a tag": {
			settings: settings.Settings{SharedGPU: true, Resources: apiv1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("92")}},
			schedule: "cgpu", counted: "aliyun.com/gpu-mem",
			want: map[apiv1.ResourceName]string{"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "92", "aliyun.com/gpu-count": "4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := templateOf(a10Type, test.settings)
			if got := node.Labels["ack.node.gpu.schedule"]; got != test.schedule {
				t.Errorf("handed out by %q, want %q", got, test.schedule)
			}
			gpus := apiv1.ResourceList{}
			for name, quantity := range node.Status.Allocatable {
				if strings.Contains(string(name), "gpu") {
					gpus[name] = quantity
				}
			}
			wantResources(t, "allocatable", gpus, test.want)
			if got := GPUConfig(node); got == nil || got.ResourceName != test.counted {
				t.Errorf("core would see %+v", got)
			}
		})
	}
}

// A node of ACK as published, of which only the limit on pods hangs on the network plugin.
func TestTemplateIsLikeAnACKNodeSeen(t *testing.T) {
	t4 := alicloud.InstanceType{
		ID: "ecs.gn6i-c4g1.xlarge", VCPU: 4, MemoryGiB: 15, GPUs: 1, GPUModel: "NVIDIA T4", GPUMemoryGiB: 16,
	}
	node := Build(Spec{PoolID: "asg-1", Type: t4, Spot: true, SystemDiskGiB: 40, Settings: settings.Settings{
		SharedGPU: true, Resources: apiv1.ResourceList{"pods": resource.MustParse("13")},
	}})
	got := node.Status.Allocatable.DeepCopy()
	within(t, apiv1.ResourceMemory, got.Memory().Value(), 14368792<<10)
	within(t, apiv1.ResourceEphemeralStorage, got.StorageEphemeral().Value(), 37693705359)
	delete(got, apiv1.ResourceMemory)
	delete(got, apiv1.ResourceEphemeralStorage)
	wantResources(t, "allocatable", got, map[apiv1.ResourceName]string{
		"cpu": "3920m", "pods": "13", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
		"nvidia.com/gpu": "0", "aliyun.com/gpu-mem": "15", "aliyun.com/gpu-count": "1",
	})
}

// within holds that the template promises no more than the node has, and not much less.
func within(t *testing.T, name apiv1.ResourceName, got, seen int64) {
	t.Helper()
	if got > seen || float64(got) < 0.97*float64(seen) {
		t.Errorf("%s: %d, and the node has %d", name, got, seen)
	}
}

func TestTemplateFollowsTags(t *testing.T) {
	taint := apiv1.Taint{Key: "dedicated", Value: "gpu", Effect: apiv1.TaintEffectNoSchedule}
	settings := settings.Settings{
		Labels: map[string]string{
			"tier": "batch", "aliyun.accelerator/nvidia_name": "NVIDIA-A10G", "topology.kubernetes.io/zone": "cn-beijing-a",
		},
		Taints: []apiv1.Taint{taint},
		Resources: apiv1.ResourceList{
			"pods": resource.MustParse("20"), "memory": resource.MustParse("100Gi"), "aliyun/member-eni": resource.MustParse("13"),
		},
	}
	node := templateOf(a10Type, settings)

	for key, want := range map[string]string{
		"tier":                           "batch",
		"aliyun.accelerator/nvidia_name": "NVIDIA-A10G",
		"topology.kubernetes.io/zone":    "cn-hangzhou-h",
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s=%q, want %q", key, got, want)
		}
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0] != taint {
		t.Errorf("taints %v", node.Spec.Taints)
	}
	node.Spec.Taints[0].Value = "changed"
	if settings.Taints[0] != taint {
		t.Error("the settings share their taints with the node")
	}
	for what, list := range map[string]apiv1.ResourceList{"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		for name, want := range settings.Resources {
			if got := list[name]; got.Cmp(want) != 0 {
				t.Errorf("%s %s=%s, want %s", what, name, &got, &want)
			}
		}
	}
}

func TestTemplateReservesMemoryForItsPods(t *testing.T) {
	few := templateOf(a10Type, settings.Settings{Resources: apiv1.ResourceList{"pods": resource.MustParse("10")}})
	many := templateOf(a10Type, settings.Settings{})
	got := few.Status.Allocatable.Memory().Value() - many.Status.Allocatable.Memory().Value()
	if want := int64(100 * 11 << 20); got != want {
		t.Errorf("100 pods fewer free %d bytes, want %d", got, want)
	}
}

func TestTemplateTellsHowItIsBought(t *testing.T) {
	for name, test := range map[string]struct {
		spot                   bool
		strategy, wantStrategy string
	}{
		"spot":                              {true, "SpotWithPriceLimit", "SpotWithPriceLimit"},
		"spot in no particular way":         {true, "", "SpotAsPriceGo"},
		"spot of a group that is not":       {true, "NoSpot", "SpotAsPriceGo"},
		"on demand":                         {false, "NoSpot", "NoSpot"},
		"on demand of a group that is spot": {false, "SpotAsPriceGo", "NoSpot"},
	} {
		t.Run(name, func(t *testing.T) {
			node := Build(Spec{PoolID: "asg-1", Type: cpuType, Spot: test.spot, SpotStrategy: test.strategy})
			if got := node.Labels["node.alibabacloud.com/spot-strategy"]; got != test.wantStrategy {
				t.Errorf("spot strategy %q, want %q", got, test.wantStrategy)
			}
		})
	}
}

func TestTemplateOfAPoolThatPicksTheZoneHasNone(t *testing.T) {
	node := Build(Spec{PoolID: "asg-1", Region: "cn-hangzhou", Type: cpuType, Spot: true})
	for _, key := range []string{apiv1.LabelTopologyZone, apiv1.LabelFailureDomainBetaZone, api.LabelDiskZone} {
		if value, ok := node.Labels[key]; ok {
			t.Errorf("label %s=%q", key, value)
		}
	}
}

func TestTemplateNamesAreFitAndNew(t *testing.T) {
	spec := Spec{PoolID: "ASG_" + strings.Repeat("x", 80), Type: cpuType}
	one, two := Build(spec), Build(spec)
	if one.Name == two.Name {
		t.Error("two templates have one name")
	}
	if problems := validation.IsDNS1123Subdomain(one.Name); len(problems) > 0 {
		t.Error(problems)
	}
	if problems := validation.IsValidLabelValue(one.Labels[apiv1.LabelHostname]); len(problems) > 0 {
		t.Error(problems)
	}
}

func TestIsSpot(t *testing.T) {
	for strategy, want := range map[string]bool{
		"": false, "NoSpot": false, "SpotAsPriceGo": true, "SpotWithPriceLimit": true,
	} {
		if got := IsSpot(strategy); got != want {
			t.Errorf("%q is spot: %v, want %v", strategy, got, want)
		}
	}
}
