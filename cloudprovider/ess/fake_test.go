package ess

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/problems/problemstest"
	"gpu-spot-autoscaler/pricing"
)

const (
	a10  = "ecs.gn7i-c8g1.2xlarge"
	v100 = "ecs.gn6v-c8g1.2xlarge"
)

// basis is what a pool's targeting was decided by. Operators see these values in the metric gpu_spot_pool_targeting, so they are
// written down here once more.
type basis string

const (
	byNothing  basis = "none"
	byTag      basis = "tag"
	byOffering basis = "one_offering"
	byPlan     basis = "plan"
	byDelivery basis = "delivery"
	byRefusal  basis = "refusal"
)

// fakeCloud is a cloud whose answers the test decides. Activities end when the test ends them.
type fakeCloud struct {
	mu             sync.Mutex
	groups         map[string]alicloud.ScalingGroup
	configurations map[string]alicloud.ScalingConfiguration
	instances      map[string]alicloud.ScalingInstance
	activities     map[string]alicloud.Activity
	scales         map[string]string // activity by client token
	scaleCalls     []alicloud.ScaleRequest
	planCalls      []alicloud.ScaleRequest
	removeCalls    []alicloud.RemoveRequest
	calls          int
	born           int

	listErr error
	// scaleErrs and removeErrs are returned by the next calls, in order; lost says that the work was done all the same.
	scaleErrs  []error
	removeErrs []error
	lost       bool
	// takes is how long calls for a scaling group take.
	takes map[string]time.Duration
	// activitiesErr is what listings of a group's activities return.
	activitiesErr error
	// unreadable is the group whose activities cannot be listed; empty stands for all.
	unreadable string
	// alone: a group runs one activity at a time.
	alone bool
	// capacityChange: purchases are answered without an activity.
	capacityChange bool
	// removalTakes is how long removed instances stay in their group as Removing. A group without a desired capacity is busy
	// meanwhile.
	removalTakes time.Duration
	busyUntil    time.Time
	// refuses says which purchases and plans are refused.
	refuses func(alicloud.ScaleRequest) error
	// plans answers requests for plans. buysPlans: the cloud does not know plans, and buys instead.
	plans     func(alicloud.ScaleRequest) (alicloud.Plan, error)
	buysPlans bool
	// unremovable are instances because of which a whole removal is refused.
	unremovable map[string]error
	// removing: removed instances stay in their group as Removing, and the activity goes on.
	removing bool
	// answerTakes is how long a removal is not answered.
	answerTakes time.Duration
	// hidden are left out of the lists of all instances, hiddenByESS out of that of ESS.
	hidden, hiddenByESS []string
	// beforeListing, if set, is called before each list of all instances. lookedFor are the instances asked for by their ids.
	beforeListing func()
	lookedFor     []string

	// launched are instances that RunInstances created, by id, launches the requests for them. attached are those that ESS accepted
	// to attach, deleted those that were released without ESS.
	launched          map[string]alicloud.Instance
	launches          []alicloud.LaunchRequest
	attached, deleted []string
	// launchErrs and attachErr are like scaleErrs. answers are what RunInstances has answered, by token.
	launchErrs []error
	attachErr  error
	// launchesErr is what listings of launched instances return. unlistable is the pool of which they do; empty stands for all.
	launchesErr error
	unlistable  string
	// lostFrom: of the calls of RunInstances only so many are refused, and those after that are carried out though their answer is
	// an error; 0 leaves it to lost.
	lostFrom int
	// unattachable are instances because of which a whole call is refused. unlisted are not found by their ids either.
	unattachable map[string]error
	unlisted     []string
	answers      map[string][]string
	// launchRoom is how many instances RunInstances has left; nil for any number.
	launchRoom *int
}

func newFakeCloud(groups ...alicloud.ScalingGroup) *fakeCloud {
	f := &fakeCloud{
		groups: map[string]alicloud.ScalingGroup{}, instances: map[string]alicloud.ScalingInstance{},
		activities: map[string]alicloud.Activity{}, scales: map[string]string{},
		launched: map[string]alicloud.Instance{}, answers: map[string][]string{},
		configurations: map[string]alicloud.ScalingConfiguration{
			"two-types": {ID: "two-types", InstanceTypes: []string{a10, v100}, SpotStrategy: alicloud.SpotAsPriceGo},
			"one-type":  {ID: "one-type", InstanceTypes: []string{a10}, SpotStrategy: alicloud.SpotAsPriceGo},
		},
	}
	for _, group := range groups {
		f.groups[group.ID] = group
	}
	return f
}

func spotGroup(id string) alicloud.ScalingGroup {
	return alicloud.ScalingGroup{
		ID: id, MaxSize: 10, LifecycleState: "Active", ActiveScalingConfigurationID: "two-types",
		VSwitchIDs: []string{"vsw-a", "vsw-b"},
		Tags:       map[string]string{api.TagEnabled: "true", api.TagCluster + "test": "owned"},
	}
}

func (f *fakeCloud) ScalingGroups(_ context.Context, filter alicloud.GroupFilter) ([]alicloud.ScalingGroup, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	var found []alicloud.ScalingGroup
	for _, group := range f.groups {
		if len(filter.IDs) == 0 || slices.Contains(filter.IDs, group.ID) {
			found = append(found, group)
		}
	}
	return found, f.listErr
}

func (f *fakeCloud) ScalingInstances(_ context.Context, filter alicloud.InstanceFilter) ([]alicloud.ScalingInstance, error) {
	if f.beforeListing != nil && len(filter.IDs) == 0 {
		f.beforeListing()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.lookedFor = append(f.lookedFor, filter.IDs...)
	var found []alicloud.ScalingInstance
	for id, instance := range f.instances {
		if len(filter.IDs) > 0 && !slices.Contains(filter.IDs, id) || len(filter.IDs) == 0 && slices.Contains(slices.Concat(f.hidden, f.hiddenByESS), id) {
			continue
		}
		found = append(found, instance)
	}
	return found, nil
}

func (f *fakeCloud) ScalingConfigurations(_ context.Context, ids []string) ([]alicloud.ScalingConfiguration, error) {
	var found []alicloud.ScalingConfiguration
	for _, id := range ids {
		if configuration, ok := f.configurations[id]; ok {
			found = append(found, configuration)
		}
	}
	return found, nil
}

func (f *fakeCloud) Activities(_ context.Context, ids []string) ([]alicloud.Activity, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	var found []alicloud.Activity
	for _, id := range ids {
		if activity, ok := f.activities[id]; ok {
			found = append(found, activity)
		}
	}
	return found, nil
}

func (f *fakeCloud) ActivitiesInProgress(ctx context.Context, groupID string) ([]alicloud.Activity, error) {
	activities, err := f.GroupActivities(ctx, groupID, time.Time{})
	return slices.DeleteFunc(activities, alicloud.Activity.Done), err
}

func (f *fakeCloud) GroupActivities(_ context.Context, groupID string, _ time.Time) ([]alicloud.Activity, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []alicloud.Activity
	for _, activity := range f.activities {
		if activity.ScalingGroupID == groupID {
			found = append(found, activity)
		}
	}
	if f.unreadable != "" && f.unreadable != groupID {
		return found, nil
	}
	return found, f.activitiesErr
}

func (f *fakeCloud) InstanceTypes(_ context.Context, ids []string) ([]alicloud.InstanceType, error) {
	known := map[string]alicloud.InstanceType{
		a10:  {ID: a10, VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64"},
		v100: {ID: v100, VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "NVIDIA V100", GPUMemoryGiB: 16, Arch: "amd64"},

		fourA10: {ID: fourA10, VCPU: 128, MemoryGiB: 752, GPUs: 4, GPUModel: "NVIDIA A10", GPUMemoryGiB: 24, Arch: "amd64"},
		plain:   {ID: plain, VCPU: 16, MemoryGiB: 32, Arch: "amd64"},
	}
	var found []alicloud.InstanceType
	for _, id := range ids {
		if shape, ok := known[id]; ok {
			found = append(found, shape)
		}
	}
	return found, nil
}

func (f *fakeCloud) VSwitches(_ context.Context, ids []string) ([]alicloud.VSwitch, error) {
	var found []alicloud.VSwitch
	for _, id := range ids {
		if zone, ok := zoneOfVSwitch[id]; ok {
			found = append(found, alicloud.VSwitch{ID: id, ZoneID: zone})
		}
	}
	return found, nil
}

func next(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

func (f *fakeCloud) Scale(_ context.Context, request alicloud.ScaleRequest) (alicloud.Scaling, error) {
	time.Sleep(f.takes[request.ScalingGroupID])
	f.mu.Lock()
	defer f.mu.Unlock()
	f.scaleCalls = append(f.scaleCalls, request)
	if f.refuses != nil {
		if err := f.refuses(request); err != nil {
			return alicloud.Scaling{}, err
		}
	}
	err := next(&f.scaleErrs)
	if err != nil && !f.lost {
		return alicloud.Scaling{}, err
	}
	if id, again := f.scales[request.ClientToken]; again {
		return alicloud.Scaling{ActivityID: id}, err
	}
	if f.capacityChange {
		return alicloud.Scaling{CapacityChange: true}, err
	}
	if f.alone && f.busy(request.ScalingGroupID) {
		return alicloud.Scaling{}, errBusy
	}
	id := fmt.Sprintf("asa-%d", len(f.activities))
	f.scales[request.ClientToken] = id
	f.activities[id] = alicloud.Activity{ID: id, ScalingGroupID: request.ScalingGroupID, Status: alicloud.ActivityInProgress,
		Metadata: request.Metadata, Adding: request.Delta, Started: time.Now()}
	return alicloud.Scaling{ActivityID: id}, err
}

// PlanScale plans what is asked for, unless the test sets another answer.
func (f *fakeCloud) PlanScale(ctx context.Context, request alicloud.ScaleRequest) (alicloud.Plan, error) {
	f.mu.Lock()
	f.planCalls = append(f.planCalls, request)
	f.mu.Unlock()
	if f.buysPlans {
		scaling, err := f.Scale(ctx, request)
		return alicloud.Plan{Scaling: scaling}, err
	}
	if f.refuses != nil {
		if err := f.refuses(request); err != nil {
			return alicloud.Plan{}, err
		}
	}
	if f.plans != nil {
		return f.plans(request)
	}
	return planFor(request.InstanceType, zoneOfVSwitch[request.VSwitchIDs[0]]), nil
}

// planFor returns a plan of one instance.
func planFor(instanceType, zone string) alicloud.Plan {
	return alicloud.Plan{Answered: true, Allocations: []alicloud.Allocation{
		{InstanceType: instanceType, ZoneID: zone, SpotStrategy: alicloud.SpotAsPriceGo, Amount: 1},
	}}
}

var zoneOfVSwitch = map[string]string{"vsw-a": "zone-a", "vsw-b": "zone-b"}

func (f *fakeCloud) busy(groupID string) bool {
	for _, activity := range f.activities {
		if activity.ScalingGroupID == groupID && !activity.Done() {
			return true
		}
	}
	return false
}

func (f *fakeCloud) Remove(ctx context.Context, request alicloud.RemoveRequest) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-time.After(f.answerTakes):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.removeCalls = append(f.removeCalls, request)
	if err := next(&f.removeErrs); err != nil {
		return "", err
	}
	if time.Now().Before(f.busyUntil) {
		return "", errBusy
	}
	for _, id := range request.InstanceIDs {
		if err := f.unremovable[id]; err != nil {
			return "", err
		}
	}
	activityID := fmt.Sprintf("asa-remove-%d", len(f.removeCalls))
	if !f.removing && f.removalTakes == 0 {
		for _, id := range request.InstanceIDs {
			delete(f.instances, id)
			delete(f.launched, id)
		}
		return activityID, nil
	}
	for _, id := range request.InstanceIDs {
		instance := f.instances[id]
		instance.LifecycleState = alicloud.LifecycleRemoving
		f.instances[id] = instance
	}
	f.activities[activityID] = alicloud.Activity{ID: activityID, ScalingGroupID: request.ScalingGroupID, Status: alicloud.ActivityInProgress}
	if f.removalTakes > 0 {
		if f.groups[request.ScalingGroupID].DesiredCapacity == nil {
			f.busyUntil = time.Now().Add(f.removalTakes)
		}
		time.AfterFunc(f.removalTakes, func() {
			f.endAs(activityID, alicloud.ActivitySuccessful)
			f.release(request.InstanceIDs...)
		})
	}
	return activityID, nil
}

// setState sets the lifecycle state of the instances.
func (f *fakeCloud) setState(state string, ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		instance := f.instances[id]
		instance.LifecycleState = state
		f.instances[id] = instance
	}
}

// release deletes the instances.
func (f *fakeCloud) release(ids ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.instances, id)
	}
}

// endAs ends the activity with the status and nothing created.
func (f *fakeCloud) endAs(activityID, status string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	activity := f.activities[activityID]
	activity.Status = status
	f.activities[activityID] = activity
}

// launch puts n instances of the type and zone into the group, as the work of the activity.
func (f *fakeCloud) launch(n int, groupID, activityID, instanceType, zone string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for range n {
		f.born++
		id := fmt.Sprintf("i-%04d", f.born)
		f.instances[id] = alicloud.ScalingInstance{ID: id, ScalingGroupID: groupID, ScalingActivityID: activityID,
			LifecycleState: alicloud.LifecycleInService, InstanceType: instanceType, ZoneID: zone,
			SpotStrategy: alicloud.SpotAsPriceGo, Created: time.Now()}
		ids = append(ids, id)
	}
	return ids
}

// end ends the activity with what it created and the error code, if any.
func (f *fakeCloud) end(activityID, code string, created ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	activity := f.activities[activityID]
	activity.Status, activity.ErrorCode, activity.CreatedInstances = alicloud.ActivitySuccessful, code, created
	activity.Ended = time.Now()
	if code != "" {
		activity.Status = alicloud.ActivityFailed
	}
	f.activities[activityID] = activity
}

type fixedPrices map[pricing.Offering]float64

func (fixedPrices) Currency() string                                  { return "CNY" }
func (fixedPrices) SetOfferings([]pricing.Offering, sets.Set[string]) {}
func (f fixedPrices) Price(offering pricing.Offering) (float64, bool) {
	price, ok := f[offering]
	return price, ok
}

func (f fixedPrices) FreshPrice(offering pricing.Offering) (float64, bool) { return f.Price(offering) }

func (f fixedPrices) Known() map[pricing.Offering]float64 { return f }

// fixture is a provider over a fakeCloud.
type fixture struct {
	*testing.T
	cloud    *fakeCloud
	events   *problemstest.Events
	provider *Provider
	// reclaiming are the instances with a reclaim notice.
	reclaiming sets.Set[string]
}

func newFixture(t *testing.T, cloud *fakeCloud, change ...func(*Config)) *fixture {
	f := &fixture{T: t, cloud: cloud, events: &problemstest.Events{}, reclaiming: sets.New[string]()}
	config := Config{
		Cloud: cloud, Events: f.events, Clock: clock.RealClock{}, ClusterName: "test", Region: "cn-test",
		Prices:     fixedPrices{{InstanceType: a10, Zone: "zone-a", Spot: true}: 3, {InstanceType: v100, Zone: "zone-a", Spot: true}: 5},
		Reclaiming: func() sets.Set[string] { return f.reclaiming },
	}
	for _, c := range change {
		c(&config)
	}
	var err error
	f.provider, err = New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.provider.Cleanup()) })
	return f
}

func (f *fixture) refresh() {
	f.Helper()
	require.NoError(f, f.provider.Refresh())
}

// loop is the beginning of a loop of core.
func (f *fixture) loop(nodes ...*apiv1.Node) {
	f.Helper()
	f.provider.BeginLoop(nodes)
	f.refresh()
}

func (f *fixture) group(id string) *NodeGroup {
	f.Helper()
	for _, group := range f.provider.NodeGroups() {
		if group.Id() == id {
			return group.(*NodeGroup)
		}
	}
	require.Failf(f, "no such node group", "%s", id)
	return nil
}

func (f *fixture) target(id string) int {
	f.Helper()
	size, err := f.group(id).TargetSize()
	require.NoError(f, err)
	return size
}

func (f *fixture) groupIDs() (ids []string) {
	for _, group := range f.provider.NodeGroups() {
		ids = append(ids, group.Id())
	}
	return ids
}

func nodeOf(instanceID string) *apiv1.Node {
	return &apiv1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: instanceID},
		Spec:       apiv1.NodeSpec{ProviderID: "cn-test." + instanceID},
	}
}

func nodesOf(instanceIDs ...string) (nodes []*apiv1.Node) {
	for _, id := range instanceIDs {
		nodes = append(nodes, nodeOf(id))
	}
	return nodes
}

// purchases are those that are not over.
func (f *fixture) purchases() []snapshot.Purchase { return f.provider.store.Last().Purchases }

// metric is the value of a metric with these labels, in order of their names; 0 where there is none.
func metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			values := []string{}
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// failedNodes returns the fake Nodes that core makes of failed instances.
func (f *fixture) failedNodes(groupID string) (nodes []*apiv1.Node) {
	instances, err := f.group(groupID).Nodes()
	require.NoError(f, err)
	for _, instance := range instances {
		if instance.Status.ErrorInfo != nil {
			nodes = append(nodes, &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: instance.Id}, Spec: apiv1.NodeSpec{ProviderID: instance.Id}})
		}
	}
	return nodes
}
