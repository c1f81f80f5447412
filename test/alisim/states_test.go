package alisim_test

import (
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
)

func TestInstancesAreProtectedAndPutOnStandbyByTheirActions(t *testing.T) {
	s := start(t)
	s.buy(spotGroup, 1)
	id := ids(s.members(spotGroup))[0]
	protect := func(on bool) error {
		r := ess.CreateSetInstancesProtectionRequest()
		r.ScalingGroupId, r.InstanceId, r.ProtectedFromScaleIn = spotGroup, &[]string{id}, requests.NewBoolean(on)
		_, err := s.ess.SetInstancesProtection(r)
		return err
	}
	enter := func(id string) error {
		r := ess.CreateEnterStandbyRequest()
		r.ScalingGroupId, r.InstanceId = spotGroup, &[]string{id}
		_, err := s.ess.EnterStandby(r)
		return err
	}
	exit := func() error {
		r := ess.CreateExitStandbyRequest()
		r.ScalingGroupId, r.InstanceId = spotGroup, &[]string{id}
		_, err := s.ess.ExitStandby(r)
		return err
	}
	for _, step := range []struct {
		do   func() error
		then string
	}{
		{func() error { return protect(true) }, "Protected"},
		{func() error { return protect(true) }, "Protected"},
		{func() error { return protect(false) }, "InService"},
		{func() error { return enter(id) }, "Standby"},
		{exit, "InService"},
	} {
		require.NoError(t, step.do())
		assert.Equal(t, step.then, s.members(spotGroup)[0].LifecycleState)
	}
	assert.Equal(t, "InvalidInstanceId.NotFound", codeOf(t, enter("i-nowhere")))
	require.NoError(t, protect(true))
	assert.Equal(t, "IncorrectInstanceStatus", codeOf(t, enter(id)))
}

func TestInstancesOfAGroupThatRecyclesAreStoppedWhereTheRequestSaysSo(t *testing.T) {
	for policy, recycles := range map[string]bool{"recycle": true, "release": false} {
		s := start(t, func(w *alisim.World) { w.Pools[0].ScalingPolicy = policy })
		s.buy(spotGroup, 2)
		members := ids(s.members(spotGroup))
		_, err := s.removeInstances(spotGroup, members[:1], func(r *ess.RemoveInstancesRequest) { r.RemovePolicy = "recycle" })
		require.NoError(t, err)
		s.settle()
		_, err = s.removeInstances(spotGroup, members[1:], func(r *ess.RemoveInstancesRequest) { r.RemovePolicy = "release" })
		require.NoError(t, err)
		s.settle()
		if !recycles {
			assert.Empty(t, s.members(spotGroup))
			continue
		}
		require.Len(t, s.members(spotGroup), 1)
		assert.Equal(t, "Stopped", s.members(spotGroup)[0].LifecycleState)
		assert.Equal(t, 1, s.group(spotGroup).StoppedCapacity)
		assert.Equal(t, "Stopped", s.machines(nil)[0].Status)
	}
}

func TestADryRunTellsOnlyThatItIsAllowed(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].Instances = 1 })
	r := ecs.CreateDescribeInstancesRequest()
	r.DryRun = requests.NewBoolean(true)
	_, err := s.ecs.DescribeInstances(r)
	assert.Equal(t, "DryRunOperation", codeOf(t, err))
}
