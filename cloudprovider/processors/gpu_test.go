package processors_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestPodsThatMayRequestAGPU(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *apiv1.Pod
		asks bool
	}{
		"a whole GPU":                         {testutil.NewPod("p"), true},
		"memory of a shared GPU":              {testutil.NewPod("p", testutil.WithoutGPU, testutil.Requesting("aliyun.com/gpu-mem", "4")), true},
		"a slice of a GPU":                    {testutil.NewPod("p", testutil.WithoutGPU, testutil.Requesting("nvidia.com/mig-1g.10gb", "1")), true},
		"a GPU of another maker":              {testutil.NewPod("p", testutil.WithoutGPU, testutil.Requesting("amd.com/gpu", "1")), true},
		"a GPU for an init container":         {testutil.NewPod("p", testutil.WithoutGPU, testutil.InitRequesting(api.ResourceGPU, "1")), true},
		"a device that only its driver knows": {testutil.NewPod("p", testutil.WithoutGPU, func(pod *apiv1.Pod) { pod.Spec.ResourceClaims = []apiv1.PodResourceClaim{{Name: "device"}} }), true},
		"none":                                {testutil.NewPod("p", testutil.WithoutGPU, testutil.Requesting("cpu", "4")), false},
		"none of it":                          {testutil.NewPod("p", testutil.Requesting(api.ResourceGPU, "0")), false},
		"a network interface of its own":      {testutil.NewPod("p", testutil.WithoutGPU, testutil.Requesting("aliyun/member-eni", "1")), false},
		"a network card of a maker of GPUs":   {testutil.NewPod("p", testutil.WithoutGPU, testutil.Requesting("nvidia.com/hostdev", "1")), false},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.asks, processors.RequestsGPU(test.pod))
			assert.Equal(t, test.asks && len(test.pod.Spec.ResourceClaims) == 0, processors.RequestsGPUOfNode(test.pod))
		})
	}
}
