package ess

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

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
	assert.Equal(t, 2*10*most, f.provider.MostPods(pod), "two pools of ten at most")
}
