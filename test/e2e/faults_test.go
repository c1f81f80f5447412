package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

func TestKillInTheMiddleOfAPurchaseBuysNothingTwice(t *testing.T) {
	slow := newWorld(spotPool("asg-1", 20))
	slow.ActivityDelay = metav1.Duration{Duration: 15 * time.Second}
	s := newSuite(t, slow)
	first := s.RunAutoscaler(t)
	pods := gpuPods("train", 3)
	s.Submit(t, pods...)
	s.eventually("the purchase is asked for", func(context.Context) (bool, error) { return len(s.requests("ScaleWithAdjustment")) > 0, nil })
	first.Kill()
	s.RunAutoscaler(t)
	s.awaitRunning(pods...)
	assert.Len(t, s.instances("asg-1"), 3)
	assert.Len(t, s.requests("ScaleWithAdjustment"), 1)
}

func TestCloudThatMisbehavesDelaysButLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]alisim.Fault{
		"the reply to a purchase is lost":     {Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply, Times: 4},
		"purchases are throttled":             {Action: "ScaleWithAdjustment", Kind: alisim.FaultThrottle, Times: 4},
		"lists are throttled":                 {Action: "DescribeScalingInstances", Kind: alisim.FaultThrottle, Times: 6},
		"answers to a purchase are no JSON":   {Action: "ScaleWithAdjustment", Kind: alisim.FaultNotJSON, Times: 3},
		"answers to lists are no JSON":        {Action: "DescribeScalingGroups", Kind: alisim.FaultNotJSON, Times: 5},
		"everything answers after one second": {Kind: alisim.FaultLatency, Latency: time.Second, Times: 40},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSuite(t, newWorld(spotPool("asg-1", 20)))
			s.injectFault(fault)
			s.RunAutoscaler(t)
			pods := gpuPods("train", 3)
			s.Submit(t, pods...)
			s.awaitRunning(pods...)
			assert.Len(t, s.instances("asg-1"), 3)
		})
	}
}

func TestBrokenTagStopsOnlyItsOwnPool(t *testing.T) {
	broken := spotPool("asg-broken", 10)
	broken.Tags["gpu-spot.autoscaling/price-cap"] = "cheap"
	s := newSuite(t, newWorld(broken, spotPool("asg-good", 10)))
	s.RunAutoscaler(t)
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitRunning(pod)
	assert.Len(t, s.instances("asg-good"), 1)
	s.awaitEvent("SpotPoolProblem", "asg-broken", "gpu-spot.autoscaling/price-cap", "cheap")
	delete(broken.Tags, "gpu-spot.autoscaling/price-cap")
	broken.Tags["gpu-spot.autoscaling/price-cap"] = "30"
	require.NoError(t, s.Cloud.SetGroupTags("asg-broken", broken.Tags))
	s.Cloud.SetPrice(a10, zoneB, 4, 10)
	more := gpuPods("more", 11)
	s.Submit(t, more...)
	s.awaitRunning(more...)
	assert.NotEmpty(t, s.instances("asg-broken"), "fixed while it runs")
}

func TestPoolThatIsDeletedInUseDoesNotStopTheRest(t *testing.T) {
	s := newSuite(t, newWorld(singleOfferingPool("asg-1", 10), rig.SpotPool("asg-2", 10, []string{t4}, []string{"vsw-b"})))
	s.Cloud.SetPrice(t4, zoneB, 9, 10)
	s.RunAutoscaler(t)
	first := rig.GPUPod("first", 1)
	s.Submit(t, first)
	s.awaitRunning(first)
	require.Len(t, s.instances("asg-1"), 1)
	require.NoError(t, s.Cloud.DeleteGroup("asg-1"))
	second := rig.GPUPod("second", 1)
	s.Submit(t, second)
	s.awaitRunning(second)
	assert.Len(t, s.instances("asg-2"), 1)
}

func TestCredentialsOfAServiceAccount(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	token := oidcTokenFile(s)
	s.RunAutoscalerWithEnv(t, []string{
		"ALIBABA_CLOUD_ACCESS_KEY_ID=", "ALIBABA_CLOUD_ACCESS_KEY_SECRET=",
		"ALIBABA_CLOUD_ROLE_ARN=acs:ram::1234567890123456:role/gpu-spot-autoscaler",
		"ALIBABA_CLOUD_OIDC_PROVIDER_ARN=acs:ram::1234567890123456:oidc-provider/ack-rrsa",
		"ALIBABA_CLOUD_OIDC_TOKEN_FILE=" + token,
		"SSL_CERT_FILE=" + s.Cloud.CAFile(),
	}, "--sts-endpoint="+s.Cloud.STSEndpoint())
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitRunning(pod)
	assert.NotEmpty(t, s.requests("AssumeRoleWithOIDC"))
}
