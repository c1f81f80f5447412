package template

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
		assert.Equal(t, test.want, MaxPods(node, test.requests), name)
	}
	assert.Zero(t, MaxPods(nil, nil))
}
