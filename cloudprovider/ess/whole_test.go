package ess

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

const wholeGroup = "asg-1/any/any/spot"

// shapedCloud has other resources for the instance types.
type shapedCloud struct {
	*fakeCloud
	shapes []alicloud.InstanceType
}

func (c *shapedCloud) InstanceTypes(_ context.Context, ids []string) ([]alicloud.InstanceType, error) {
	return slices.DeleteFunc(slices.Clone(c.shapes), func(s alicloud.InstanceType) bool { return !slices.Contains(ids, s.ID) }), nil
}

func TestWholePoolPromisesOnlyWhatEveryTypeHas(t *testing.T) {
	for name, test := range map[string]struct {
		shapes []alicloud.InstanceType
		cpu    int64 // at most, as all that follow
		memory int64
		gpus   int64
		labels map[string]string // "" is for labels that must not be there
	}{
		"one has more memory, the other more cores": {
			shapes: []alicloud.InstanceType{
				{ID: a10, VCPU: 8, MemoryGiB: 120, GPUs: 1, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64"},
				{ID: v100, VCPU: 16, MemoryGiB: 32, GPUs: 2, GPUModel: "NVIDIA V100", GPUMemoryGiB: 16, Arch: "amd64"},
			},
			cpu: 8, memory: 32, gpus: 1,
			labels: map[string]string{
				api.LabelGPUModel: "", api.LabelGPUCount: "", apiv1.LabelInstanceTypeStable: "", apiv1.LabelTopologyZone: "",
				apiv1.LabelArchStable: "amd64", api.LabelSpotStrategy: alicloud.SpotAsPriceGo, "team": "vision",
			},
		},
		"alike in their GPUs": {
			shapes: []alicloud.InstanceType{
				{ID: a10, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64"},
				{ID: v100, VCPU: 16, MemoryGiB: 60, GPUs: 1, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64"},
			},
			cpu: 8, memory: 30, gpus: 1, labels: map[string]string{api.LabelGPUModel: "NVIDIA-A10", api.LabelGPUCount: "1"},
		},
		"one without GPUs": {
			shapes: []alicloud.InstanceType{
				{ID: a10, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64"},
				{ID: v100, VCPU: 8, MemoryGiB: 30, Arch: "arm64"},
			},
			cpu: 8, memory: 30, labels: map[string]string{api.LabelGPUModel: "", apiv1.LabelArchStable: ""},
		},
		"the other without GPUs": {
			shapes: []alicloud.InstanceType{
				{ID: a10, VCPU: 8, MemoryGiB: 30, Arch: "amd64"},
				{ID: v100, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA V100", GPUMemoryGiB: 16, Arch: "amd64"},
			},
			cpu: 8, memory: 30, labels: map[string]string{api.LabelGPUModel: ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			group := spotGroup("asg-1")
			group.Tags["gpu-spot.autoscaling/targeting"] = "whole"
			group.Tags["gpu-spot.autoscaling/label/team"] = "vision"
			cloud := newFakeCloud(group)
			f := newFixture(t, cloud, func(c *Config) { c.Cloud = &shapedCloud{cloud, test.shapes} })
			f.refresh()
			info, err := f.group(wholeGroup).TemplateNodeInfo()
			require.NoError(t, err)
			node := info.Node()
			for _, list := range []apiv1.ResourceList{node.Status.Allocatable, node.Status.Capacity} {
				assert.LessOrEqual(t, list.Cpu().Value(), test.cpu)
				assert.LessOrEqual(t, list.Memory().Value(), test.memory<<30)
				gpus := list[api.ResourceGPU]
				assert.Equal(t, test.gpus, gpus.Value())
				assert.Positive(t, list.Pods().Value())
			}
			for key, value := range test.labels {
				assert.Equal(t, value, node.Labels[key], key)
			}
			assert.Equal(t, node.Name, node.Labels[apiv1.LabelHostname])
		})
	}
}

func TestWholePoolInOneZonePromisesTheZone(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/targeting"], group.VSwitchIDs = "whole", []string{"vsw-a"}
	f := newFixture(t, newFakeCloud(group))
	f.refresh()
	info, err := f.group(wholeGroup).TemplateNodeInfo()
	require.NoError(t, err)
	assert.Equal(t, "zone-a", info.Node().Labels[apiv1.LabelTopologyZone])
}

func TestTemplateOfAWholePoolChangesWithAnyOfItsTypes(t *testing.T) {
	group := spotGroup("asg-1")
	group.Tags["gpu-spot.autoscaling/targeting"] = "whole"
	version := func(memoryGiB float64) string {
		cloud := newFakeCloud(group)
		f := newFixture(t, cloud, func(c *Config) {
			c.Cloud = &shapedCloud{cloud, []alicloud.InstanceType{
				{ID: a10, VCPU: 8, MemoryGiB: memoryGiB, GPUs: 1, GPUModel: "NVIDIA A10", Arch: "amd64"},
				{ID: v100, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA V100", Arch: "amd64"},
			}}
		})
		f.refresh()
		return f.provider.TemplateVersion(wholeGroup)
	}
	assert.Equal(t, version(32), version(32))
	assert.NotEqual(t, version(32), version(64))
}
