package processors_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// resources returns a list of names, each followed by its amount.
func resources(amounts ...string) apiv1.ResourceList {
	list := apiv1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		list[apiv1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return list
}

func TestThePartOfTheGPUsThatIsRequested(t *testing.T) {
	for name, c := range map[string]struct {
		allocatable, requests apiv1.ResourceList
		gpus                  float64
		want                  float64
	}{
		"whole GPUs":              {resources("nvidia.com/gpu", "8", "cpu", "96"), resources("nvidia.com/gpu", "2", "cpu", "90"), 8, .25},
		"a slice of a GPU":        {resources("nvidia.com/mig-1g.10gb", "4", "cpu", "96"), resources("nvidia.com/mig-1g.10gb", "1"), 1, .25},
		"the big slice of a GPU":  {resources("nvidia.com/mig-3g.40gb", "1", "nvidia.com/mig-1g.10gb", "3"), resources("nvidia.com/mig-3g.40gb", "1"), 1, .5},
		"a small slice beside it": {resources("nvidia.com/mig-3g.40gb", "1", "nvidia.com/mig-1g.10gb", "3"), resources("nvidia.com/mig-1g.10gb", "1"), 1, 1. / 6},
		"a slice of eight GPUs":   {resources("nvidia.com/gpu", "6", "nvidia.com/mig-3g.40gb", "4"), resources("nvidia.com/mig-3g.40gb", "1"), 8, 1. / 16},
		"whole ones beside it":    {resources("nvidia.com/gpu", "6", "nvidia.com/mig-3g.40gb", "4"), resources("nvidia.com/gpu", "2"), 8, .25},
		"GPU memory":              {resources("aliyun.com/gpu-mem", "80", "cpu", "96"), resources("aliyun.com/gpu-mem", "8"), 4, .1},
		"the most of several": {resources("aliyun.com/gpu-mem", "96", "aliyun.com/gpu-core.percentage", "400"),
			resources("aliyun.com/gpu-mem", "24", "aliyun.com/gpu-core.percentage", "200"), 4, .5},
		"no GPU":                   {resources("nvidia.com/gpu", "8", "cpu", "96"), resources("cpu", "90"), 8, 0},
		"of a node without GPUs":   {resources("cpu", "32"), resources("cpu", "8"), 0, 0},
		"of a node before its GPU": {resources(), resources("nvidia.com/gpu", "2"), 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // maps have no order
				assert.InDelta(t, c.want, processors.GPUShare(c.requests, c.allocatable, c.gpus), 1e-9)
			}
		})
	}
}
