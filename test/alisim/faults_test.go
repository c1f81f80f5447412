package alisim_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

func TestFaultsRefuse(t *testing.T) {
	for _, test := range []struct {
		name   string
		fault  alisim.Fault
		status int
		code   string
	}{
		{"with the code and status named", alisim.Fault{Kind: alisim.FaultError, Code: "ServiceUnavailable", Status: 503}, 503, "ServiceUnavailable"},
		{"with an internal error", alisim.Fault{Kind: alisim.FaultError}, 500, "InternalError"},
		{"as throttled", alisim.Fault{Kind: alisim.FaultThrottle}, 400, "Throttling.User"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t)
			test.fault.Action, test.fault.Times = "ScaleWithAdjustment", 2
			require.NoError(t, s.Fault(test.fault))
			for range 2 {
				status, body := s.raw(http.MethodPost, s.signed(http.MethodPost, versionESS, "ScaleWithAdjustment", set("ScalingGroupId", spotGroup),
					set("AdjustmentType", "TotalCapacity"), set("AdjustmentValue", "1")), false)
				assert.Equal(t, test.status, status)
				assert.Equal(t, test.code, body["Code"])
			}
			_, err := s.ecs.DescribeInstances(ecs.CreateDescribeInstancesRequest())
			assert.NoError(t, err, "other actions are not hit")
			_, err = s.scale(spotGroup, 1)
			assert.NoError(t, err, "two times are two times")
			assert.Empty(t, s.Faults())
		})
	}
}

func TestAReplyIsLostAfterTheWorkWasDone(t *testing.T) {
	s := start(t)
	require.NoError(t, s.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply, Times: 1}))
	_, err := s.scale(spotGroup, 2, token("once"))
	require.Error(t, err)
	_, err = s.scale(spotGroup, 2, token("once"))
	require.NoError(t, err)
	s.settle()
	assert.Len(t, s.members(spotGroup), 2, "the token kept the second request from buying again")
	requests := s.Requests("ScaleWithAdjustment")
	require.Len(t, requests, 2)
	assert.Equal(t, []string{"-", ""}, []string{requests[0].Code, requests[1].Code})
	assert.Equal(t, spotGroup, requests[0].Parameters["ScalingGroupId"])
	assert.NotContains(t, requests[0].Parameters, "Signature")
}

func TestABodyThatIsNoJSON(t *testing.T) {
	s := start(t)
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultNotJSON, Times: 1}))
	_, err := s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	require.Error(t, err)
	assert.Empty(t, codeOf(t, err), "an SDK error without a code")
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultNotJSON, Status: 200, Times: 1}))
	_, err = s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	assert.ErrorContains(t, err, "JsonUnmarshalError")
}

func TestAPartialFill(t *testing.T) {
	s := start(t)
	require.NoError(t, s.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultPartialFill, Count: 3, Code: "QuotaExceed.AfterpayInstance", Times: 1}))
	a := s.buy(spotGroup, 8)
	assert.Equal(t, []any{"Warning", 3, "QuotaExceed.AfterpayInstance"}, []any{a.StatusCode, a.CreatedCapacity, a.ErrorCode})
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultPartialFill, Times: 1}))
	a = s.buy(spotGroup, 2)
	assert.Equal(t, []any{"Failed", 0, "OperationDenied.NoStock"}, []any{a.StatusCode, a.CreatedCapacity, a.ErrorCode})
}

func TestAFaultMayBeOfOneGroup(t *testing.T) {
	s := start(t)
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultError, ScalingGroupID: spotGroup}))
	_, err := s.scale(spotGroup, 1)
	assert.Equal(t, "InternalError", codeOf(t, err))
	_, err = s.scale(onDemandGroup, 1)
	assert.NoError(t, err)
	r := ess.CreateDescribeScalingGroupsRequest()
	r.ScalingGroupId = &[]string{onDemandGroup, spotGroup}
	_, err = s.ess.DescribeScalingGroups(r)
	assert.Error(t, err, "in a list, too")
	s.ClearFaults()
	_, err = s.scale(spotGroup, 1)
	assert.NoError(t, err)
}

func TestLatencyHoldsTheAnswerBack(t *testing.T) {
	s := start(t)
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultLatency, Latency: 3 * time.Second}))
	require.NoError(t, s.Fault(alisim.Fault{Kind: alisim.FaultThrottle}))
	answered := make(chan error, 1)
	go func() {
		_, err := s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
		answered <- err
	}()
	require.Eventually(t, func() bool {
		s.clock.Step(time.Second)
		return len(answered) == 1
	}, 10*time.Second, 5*time.Millisecond)
	assert.Equal(t, "Throttling.User", codeOf(t, <-answered), "faults of different kinds add up")
}

func TestFaultsAreChecked(t *testing.T) {
	s := start(t)
	assert.ErrorContains(t, s.Fault(alisim.Fault{Kind: "gremlins"}), "gremlins")
	assert.ErrorContains(t, s.Fault(alisim.Fault{Kind: alisim.FaultError, Action: "Scale"}), "Scale")
	for _, kind := range protocol.FaultKinds {
		assert.NoError(t, s.Fault(alisim.Fault{Kind: kind}))
	}
}

func (s *sim) post(path, body string) answer {
	s.t.Helper()
	resp, err := http.Post("http://"+s.Endpoint()+path, "application/json", strings.NewReader(body))
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text := new(strings.Builder)
	_, err = io.Copy(text, resp.Body)
	require.NoError(s.t, err)
	return answer{resp.StatusCode, text.String()}
}
