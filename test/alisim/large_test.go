package alisim_test

import (
	"fmt"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
)

// largeWorld has a thousand pools of ten instances each, and no limits.
func largeWorld() alisim.World {
	w := testWorld()
	w.Pools, w.RateLimits = nil, map[string]int{"*": 0}
	for i := range w.VSwitches {
		w.VSwitches[i].AvailableIPs = 20000
	}
	for n := range 1000 {
		p := spotPool()
		p.ID, p.Instances = fmt.Sprintf("asg-%04d", n), 10
		w.Pools = append(w.Pools, p)
	}
	return w
}

func TestALargeWorldIsListedWhole(t *testing.T) {
	s := startWorld(t, largeWorld(), alisim.Options{})
	groups, members, machines := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for n := 1; len(groups) < 1000; n++ {
		r := ess.CreateDescribeScalingGroupsRequest()
		r.PageNumber, r.PageSize = requests.NewInteger(n), requests.NewInteger(50)
		r.Tag = &[]ess.DescribeScalingGroupsTag{{Key: "team", Value: "vision"}}
		resp, err := s.ess.DescribeScalingGroups(r)
		require.NoError(t, err)
		require.Equal(t, 1000, resp.TotalCount)
		require.Len(t, resp.ScalingGroups.ScalingGroup, 50)
		for _, g := range resp.ScalingGroups.ScalingGroup {
			groups[g.ScalingGroupId] = true
		}
	}
	for n := 1; len(members) < 10000; n++ {
		for _, i := range s.memberPage(n).ScalingInstances.ScalingInstance {
			members[i.InstanceId] = true
		}
		require.LessOrEqual(t, n, 200)
	}
	for next := ""; len(machines) < 10000; {
		r := ecs.CreateDescribeInstancesRequest()
		r.MaxResults, r.NextToken = requests.NewInteger(100), next
		resp, err := s.ecs.DescribeInstances(r)
		require.NoError(t, err)
		for _, i := range resp.Instances.Instance {
			machines[i.InstanceId] = true
		}
		next = resp.NextToken
		require.Equal(t, len(machines) == 10000, next == "")
	}
}

func (s *sim) memberPage(number int) *ess.DescribeScalingInstancesResponse {
	r := ess.CreateDescribeScalingInstancesRequest()
	r.PageNumber, r.PageSize = requests.NewInteger(number), requests.NewInteger(50)
	resp, err := s.ess.DescribeScalingInstances(r)
	require.NoError(s.t, err)
	return resp
}

// BenchmarkPageOfALargeWorld includes the SDK and the loopback.
func BenchmarkPageOfALargeWorld(b *testing.B) {
	s := startWorld(b, largeWorld(), alisim.Options{})
	n := 0
	for b.Loop() {
		n = n%200 + 1
		s.memberPage(n)
	}
}
