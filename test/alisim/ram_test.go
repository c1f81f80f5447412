package alisim_test

import (
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/sts"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/ram"
)

// underPolicy has all keys of the world be of users with the policy.
func underPolicy(t *testing.T, statements string) func(*alisim.World) {
	policy, err := ram.Parse([]byte(`{"Version": "1", "Statement": [` + statements + `]}`))
	require.NoError(t, err)
	return func(w *alisim.World) { w.RAMPolicy = policy }
}

func TestAPolicyAllowsItsActionsAndNoOthers(t *testing.T) {
	s := start(t, underPolicy(t, `{"Effect": "Allow", "Action": ["ess:DescribeScalingGroups", "ecs:DescribeInstances"], "Resource": "*"}`))
	_, err := s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	assert.NoError(t, err)
	_, err = s.ecs.DescribeInstances(ecs.CreateDescribeInstancesRequest())
	assert.NoError(t, err)
	_, err = s.ess.DescribeScalingInstances(ess.CreateDescribeScalingInstancesRequest())
	assert.Equal(t, "Forbidden.RAM", codeOf(t, err))
	_, err = s.sts.GetCallerIdentity(sts.CreateGetCallerIdentityRequest())
	assert.NoError(t, err, "that needs no permission")
	assert.Equal(t, []string{"ecs:DescribeInstances", "ess:DescribeScalingGroups"}, s.PermissionsUsed())
}

func TestNoPolicyLimitsAdministrators(t *testing.T) {
	administrator := alisim.AccessKey{ID: "LTAIadministrator", Secret: "secret"}
	s := start(t, underPolicy(t, `{"Effect": "Allow", "Action": "ess:DescribeScalingGroups", "Resource": "*"}`), func(w *alisim.World) {
		w.Administrators = []alisim.AccessKey{administrator}
	})
	_, err := s.scale(spotGroup, 1)
	assert.Equal(t, "Forbidden.RAM", codeOf(t, err))
	s.connect(administrator)
	_, err = s.scale(spotGroup, 1)
	assert.NoError(t, err)
	assert.Empty(t, s.PermissionsUsed(), "the policy need not allow what only they do")
}

func TestAKeyMayHaveAPolicyOfItsOwn(t *testing.T) {
	policy, err := ram.Parse([]byte(`{"Version": "1", "Statement": [{"Effect": "Allow", "Action": "ess:DescribeScalingGroups", "Resource": "*"}]}`))
	require.NoError(t, err)
	reader := alisim.AccessKey{ID: "LTAIreader", Secret: "secret", RAMPolicy: policy}
	s := start(t, underPolicy(t, `{"Effect": "Allow", "Action": "ess:*", "Resource": "*"}`), func(w *alisim.World) {
		w.Credentials = []alisim.AccessKey{{ID: "LTAIwriter", Secret: "secret"}, reader}
	})
	s.connect(reader)
	_, err = s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	assert.NoError(t, err)
	_, err = s.scale(spotGroup, 1)
	assert.Equal(t, "Forbidden.RAM", codeOf(t, err))
	assert.Empty(t, s.PermissionsUsed(), "of the policy that holds for the others")
	s.connect(s.AccessKey())
	_, err = s.scale(spotGroup, 1)
	assert.NoError(t, err)
}

func TestAConditionOnATagHoldsForTheGroupThatIsNamed(t *testing.T) {
	s := start(t, underPolicy(t, `{"Effect": "Allow", "Action": "ess:ScaleWithAdjustment", "Resource": "*",
		"Condition": {"StringEquals": {"acs:ResourceTag/k8s.io/cluster-autoscaler/a": "owned"}}}`))
	_, err := s.scale(spotGroup, 1)
	assert.Equal(t, "Forbidden.RAM", codeOf(t, err), "it has another tag")
	assert.Empty(t, s.PermissionsUsed())
	require.NoError(t, s.SetGroupTags(spotGroup, map[string]string{"k8s.io/cluster-autoscaler/a": "owned"}))
	_, err = s.scale(spotGroup, 1)
	assert.NoError(t, err)
	_, err = s.scale(onDemandGroup, 1)
	assert.Equal(t, "Forbidden.RAM", codeOf(t, err), "the other group is not tagged")
	assert.Equal(t, []string{"ess:ScaleWithAdjustment"}, s.PermissionsUsed())
}
