package dryrun

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
)

// account is a scaling group with one instance. Other calls than those that are answered here fail the test.
type account struct{ Reads }

func (account) ScalingGroups(context.Context, alicloud.GroupFilter) ([]alicloud.ScalingGroup, error) {
	return []alicloud.ScalingGroup{{ID: "asg-1", TotalCapacity: 1, ActiveScalingConfigurationID: "asc-1", VSwitchIDs: []string{"vsw-a", "vsw-b"}}}, nil
}

func (account) ScalingConfigurations(context.Context, []string) ([]alicloud.ScalingConfiguration, error) {
	return []alicloud.ScalingConfiguration{{ID: "asc-1", InstanceTypes: []string{"ecs.a", "ecs.b"}, SpotStrategy: alicloud.SpotAsPriceGo}}, nil
}

func (account) VSwitches(context.Context, []string) ([]alicloud.VSwitch, error) {
	return []alicloud.VSwitch{{ID: "vsw-a", ZoneID: "a"}, {ID: "vsw-b", ZoneID: "b"}}, nil
}

func (account) ScalingInstances(_ context.Context, filter alicloud.InstanceFilter) ([]alicloud.ScalingInstance, error) {
	return []alicloud.ScalingInstance{{ID: "i-1", ScalingGroupID: "asg-1", LifecycleState: alicloud.LifecycleInService}}, nil
}

func (account) LaunchedInstances(context.Context, string, string) ([]alicloud.Instance, error) {
	return nil, nil
}

func (account) GroupActivities(context.Context, string, time.Time) ([]alicloud.Activity, error) {
	return nil, nil
}

// newCloud returns a Cloud that has read the account.
func newCloud(t *testing.T) (*Cloud, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	c := New(account{}, clk, 10*time.Minute)
	_, err := c.ScalingGroups(t.Context(), alicloud.GroupFilter{})
	require.NoError(t, err)
	_, err = c.ScalingConfigurations(t.Context(), nil)
	require.NoError(t, err)
	_, err = c.VSwitches(t.Context(), nil)
	require.NoError(t, err)
	return c, clk
}

func instances(t *testing.T, c *Cloud) []alicloud.ScalingInstance {
	t.Helper()
	found, err := c.ScalingInstances(t.Context(), alicloud.InstanceFilter{})
	require.NoError(t, err)
	return found
}

func TestAPurchaseIsListedAsIfItHadBeenMade(t *testing.T) {
	c, clk := newCloud(t)
	request := alicloud.ScaleRequest{
		ScalingGroupID: "asg-1", Delta: 2, ClientToken: "t", Metadata: "note", InstanceType: "ecs.b", VSwitchIDs: []string{"vsw-b"}, SpotStrategy: alicloud.SpotAsPriceGo,
	}
	scaling, err := c.Scale(t.Context(), request)
	require.NoError(t, err)
	again, err := c.Scale(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, scaling, again, "the same ClientToken")

	groups, err := c.ScalingGroups(t.Context(), alicloud.GroupFilter{})
	require.NoError(t, err)
	assert.Equal(t, 3, groups[0].TotalCapacity)
	listed := instances(t, c)
	require.Len(t, listed, 3)
	assert.Equal(t, alicloud.ScalingInstance{
		ID: listed[1].ID, ScalingGroupID: "asg-1", ScalingActivityID: scaling.ActivityID, LifecycleState: alicloud.LifecycleInService,
		InstanceType: "ecs.b", ZoneID: "b", SpotStrategy: alicloud.SpotAsPriceGo, Created: clk.Now(),
	}, listed[1])
	byID, err := c.ScalingInstances(t.Context(), alicloud.InstanceFilter{IDs: []string{listed[1].ID}})
	require.NoError(t, err)
	assert.Len(t, byID, 1)
	onECS, err := c.Instances(t.Context(), []string{listed[1].ID})
	require.NoError(t, err)
	assert.Equal(t, alicloud.StatusRunning, onECS[0].Status)
	activities, err := c.GroupActivities(t.Context(), "asg-1", clk.Now().Add(-time.Hour))
	require.NoError(t, err)
	require.Len(t, activities, 1)
	assert.Equal(t, "note", activities[0].Metadata)
	assert.Equal(t, []string{listed[1].ID, listed[2].ID}, sorted(activities[0].CreatedInstances))
	assert.Len(t, c.Decisions(), 1)

	clk.Step(10*time.Minute + time.Second)
	assert.Len(t, instances(t, c), 1, "what was decided counts for ten minutes")
}

func TestAPurchaseThatNamesNothingIsOfWhatTheGroupHasFirst(t *testing.T) {
	c, _ := newCloud(t)
	plan, err := c.PlanScale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 3})
	require.NoError(t, err)
	assert.Equal(t, alicloud.Plan{Answered: true, Allocations: []alicloud.Allocation{{InstanceType: "ecs.a", ZoneID: "a", SpotStrategy: alicloud.SpotAsPriceGo, Amount: 3}}}, plan)
	assert.Empty(t, c.Decisions(), "a plan is no decision")
}

func TestWhatWouldBeRemovedIsBeingRemovedAndDecidedOnce(t *testing.T) {
	c, clk := newCloud(t)
	for range 2 {
		_, err := c.Remove(t.Context(), alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{"i-1"}})
		require.NoError(t, err)
	}
	assert.Equal(t, alicloud.LifecycleRemoving, instances(t, c)[0].LifecycleState)
	require.Len(t, c.Decisions(), 1)
	assert.Equal(t, Decision{Time: clk.Now(), Action: "RemoveInstances", Pool: "asg-1", Count: 1, Instances: []string{"i-1"}}, c.Decisions()[0])

	clk.Step(10*time.Minute + time.Second)
	assert.Equal(t, alicloud.LifecycleInService, instances(t, c)[0].LifecycleState, "it is still there, and may be decided about again")
}

func TestAnInstanceThatWouldHaveBeenBoughtIsRemovedWithoutADecision(t *testing.T) {
	c, _ := newCloud(t)
	_, err := c.Scale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 1, ClientToken: "t"})
	require.NoError(t, err)
	_, err = c.Remove(t.Context(), alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{instances(t, c)[1].ID}})
	require.NoError(t, err)
	assert.Len(t, instances(t, c), 1)
	assert.Len(t, c.Decisions(), 1, "the purchase alone")
}

func TestInstancesOfRunInstancesJoinTheirGroupWhenTheyAreAttached(t *testing.T) {
	c, _ := newCloud(t)
	launch := alicloud.LaunchRequest{Amount: 2, ClientToken: "t", InstanceType: "ecs.a", ZoneID: "a", Tags: map[string]string{api.TagInstancePool: "asg-1"}}
	ids, err := c.Launch(t.Context(), launch)
	require.NoError(t, err)
	again, err := c.Launch(t.Context(), launch)
	require.NoError(t, err)
	assert.Equal(t, ids, again)
	launched, err := c.LaunchedInstances(t.Context(), api.TagInstancePool, "asg-1")
	require.NoError(t, err)
	assert.Len(t, launched, 2)
	assert.Equal(t, "asg-1", c.Decisions()[0].Pool, "by the tag of its instances")
	assert.Len(t, instances(t, c), 1, "they are in no group yet")

	_, err = c.Attach(t.Context(), alicloud.AttachRequest{ScalingGroupID: "asg-1", InstanceIDs: ids, ClientToken: "a"})
	require.NoError(t, err)
	assert.Len(t, instances(t, c), 3)
	require.NoError(t, c.Delete(t.Context(), ids[:1], "d"))
	assert.Len(t, instances(t, c), 2)
}

func TestOnlyTheLastDecisionsAreKept(t *testing.T) {
	c, _ := newCloud(t)
	for i := range mostDecisions + 1 {
		_, err := c.Scale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: i + 1, ClientToken: string(rune('a' + i))})
		require.NoError(t, err)
	}
	decisions := c.Decisions()
	require.Len(t, decisions, mostDecisions)
	assert.Equal(t, 2, decisions[0].Count)
}

func sorted(ids []string) []string {
	slices.Sort(ids)
	return ids
}
