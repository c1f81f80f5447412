package alisim_test

import (
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
)

// attributes are those of the account, by name.
func (s *sim) attributes(names ...string) map[string]string {
	s.t.Helper()
	r := ecs.CreateDescribeAccountAttributesRequest()
	if len(names) > 0 {
		r.AttributeName = &names
	}
	resp, err := s.ecs.DescribeAccountAttributes(r)
	require.NoError(s.t, err)
	found := map[string]string{}
	for _, item := range resp.AccountAttributeItems.AccountAttributeItem {
		found[item.AttributeName] = item.AttributeValues.ValueItem[0].Value
	}
	return found
}

func TestTheQuotaOfSpotVCPUsIsShownAndHolds(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Quota.SpotVCPUs, w.Pools[0].Instances = 24, 2 })
	assert.Equal(t, map[string]string{"max-spot-instance-vcpu-count": "24", "used-spot-instance-vcpu-count": "16"}, s.attributes())
	assert.Equal(t, map[string]string{"used-spot-instance-vcpu-count": "16"}, s.attributes("used-spot-instance-vcpu-count", "max-security-groups"))
	a := s.buy(spotGroup, 2)
	assert.Equal(t, []any{"Warning", 1, "QuotaExceed.ElasticQuota"}, []any{a.StatusCode, a.CreatedCapacity, a.ErrorCode})
	assert.Equal(t, "24", s.attributes()["used-spot-instance-vcpu-count"])
	assert.Equal(t, 1, s.buy(onDemandGroup, 1).CreatedCapacity, "on-demand instances do not count")
}

func TestALaunchThatIsOnlyCheckedCreatesNothing(t *testing.T) {
	s := start(t)
	r := ecs.CreateRunInstancesRequest()
	r.ImageId, r.InstanceType, r.VSwitchId, r.SecurityGroupId, r.SpotStrategy = "m-1", small, vswA, "sg-1", alisim.SpotAsPriceGo
	r.DryRun = requests.NewBoolean(true)
	_, err := s.ecs.RunInstances(r)
	assert.Equal(t, "DryRunOperation", codeOf(t, err))
	r = ecs.CreateRunInstancesRequest()
	r.InstanceType, r.VSwitchId, r.SecurityGroupId, r.DryRun = small, vswA, "sg-1", requests.NewBoolean(true)
	_, err = s.ecs.RunInstances(r)
	assert.Equal(t, "MissingImageId", codeOf(t, err), "it is checked")
	assert.Empty(t, s.machines(nil))
}
