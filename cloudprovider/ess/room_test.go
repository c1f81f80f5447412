package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestANodeHasRoomForAsManyPodsAsItsScarcestResourceAllows(t *testing.T) {
	node := &apiv1.Node{Status: apiv1.NodeStatus{Allocatable: apiv1.ResourceList{
		apiv1.ResourcePods: resource.MustParse("110"), apiv1.ResourceCPU: resource.MustParse("7910m"),
		apiv1.ResourceMemory: resource.MustParse("28Gi"), "nvidia.com/gpu": resource.MustParse("4"),
	}}}
	for name, test := range map[string]struct {
		requests apiv1.ResourceList
		want     int
	}{
		"GPUs":                         {apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse("2"), apiv1.ResourceCPU: resource.MustParse("1")}, 2},
		"CPU":                          {apiv1.ResourceList{apiv1.ResourceCPU: resource.MustParse("500m")}, 15},
		"memory":                       {apiv1.ResourceList{apiv1.ResourceMemory: resource.MustParse("10Gi")}, 2},
		"nothing but its place":        {apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}, 110},
		"what it does not have":        {apiv1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("1")}, 0},
		"less than a thousandth of it": {apiv1.ResourceList{apiv1.ResourceCPU: resource.MustParse("1u")}, 110},
	} {
		assert.Equal(t, test.want, RoomOn(node, test.requests), name)
	}
	assert.Zero(t, RoomOn(nil, nil))
}

func TestPoolsHaveRoomForTheirMaximumOfWhatHoldsMost(t *testing.T) {
	f := newFixture(t, newFakeCloud(spotGroup("asg-1"), spotGroup("asg-2")))
	f.refresh()
	most := 0
	for _, group := range f.groupIDs() {
		info, err := f.group(group).TemplateNodeInfo()
		require.NoError(t, err)
		gpus := info.Node().Status.Allocatable["nvidia.com/gpu"]
		most = max(most, int(gpus.Value()))
	}
	require.Positive(t, most)
	pod := &apiv1.Pod{Spec: apiv1.PodSpec{Containers: []apiv1.Container{{Resources: apiv1.ResourceRequirements{
		Requests: apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
	}}}}}
	assert.Equal(t, 2*10*most, f.provider.Room(pod), "two pools of ten at most")
}
