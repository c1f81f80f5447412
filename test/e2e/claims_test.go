package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/test/rig"
)

// claimedGPU is a claim by the API of which Kubernetes serves only v1 from 1.34 on, unless it is told to serve more.
const claimedGPU = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpu}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
---
`

func TestPodThatClaimsItsGPUIsNotBoughtForAndSaysSo(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	require.NoError(t, s.Cluster.ApplyYAML(t.Context(), strings.NewReader(claimedGPU)))
	autoscaler := s.RunAutoscaler(t)
	claiming := rig.GPUPod("claiming", 1)
	claiming.Spec.Containers[0].Resources = corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}
	claiming.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
	s.Submit(t, claiming)
	s.awaitEvent("SpotPodHasResourceClaims", "not bought for", "nvidia.com/gpu")
	s.eventually("the metric counts it by the reason", func(ctx context.Context) (bool, error) {
		families, err := autoscaler.Metrics(ctx)
		for _, metric := range families["gpu_spot_pending_pods"].GetMetric() {
			if metric.GetLabel()[0].GetValue() == string(reasons.ResourceClaims) {
				return metric.GetGauge().GetValue() == 1, err
			}
		}
		return false, err
	})

	// A pod that comes later shows that the loop went on: one instance is bought, and that for it.
	other := rig.GPUPod("other", 1)
	s.Submit(t, other)
	s.awaitRunning(other)
	assert.Len(t, s.requests("ScaleWithAdjustment"), 1)
	assert.Len(t, s.instances("asg-1"), 1)
	pod, err := s.pod(t.Context(), "claiming")
	require.NoError(t, err)
	assert.Empty(t, pod.Spec.NodeName)
}
