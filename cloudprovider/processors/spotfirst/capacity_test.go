package spotfirst

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func taking(capacity string) testutil.PodOption {
	return testutil.Annotated(api.AnnotationCapacity, capacity)
}

func TestPodsHaveTheCapacityThatTheyAskFor(t *testing.T) {
	const at = 6 * time.Minute // with 24h25m until the deadline, and 24 h of work, no spot may be had then
	late := until("24h25m", "24h")
	for name, c := range map[string]struct {
		pod      *apiv1.Pod
		spot, od time.Duration
	}{
		"the default is spot first":        {testutil.NewPod("p"), 0, 4 * time.Minute},
		"and can be said":                  {testutil.NewPod("p", taking("spot-then-on-demand")), 0, 4 * time.Minute},
		"with another wait":                {testutil.NewPod("p", taking("spot-then-on-demand"), wishing("1h")), 0, 54 * time.Minute},
		"or for ever":                      {testutil.NewPod("p", taking("spot-then-on-demand"), wishing("never")), 0, Never},
		"spot only":                        {testutil.NewPod("p", taking("spot-only")), 0, Never},
		"wins over a wait":                 {testutil.NewPod("p", taking("spot-only"), wishing("0s")), 0, Never},
		"and over a deadline":              {testutil.NewPod("p", append(late, taking("spot-only"))...), 0, Never},
		"on demand is bought at once":      {testutil.NewPod("p", taking("on-demand")), Never, 0},
		"whatever the pod waits":           {testutil.NewPod("p", taking("on-demand"), wishing("1h")), Never, 0},
		"also if it waits for ever":        {testutil.NewPod("p", taking("on-demand"), wishing("never")), Never, 0},
		"and with a deadline":              {testutil.NewPod("p", append(until("100h", "24h"), taking("on-demand"))...), Never, 0},
		"for what has run already":         {testutil.NewPod("p", taking("on-demand"), testutil.Labelled("has-run", "yes")), Never, 0},
		"what nobody knows is the default": {testutil.NewPod("p", taking("spot")), 0, 4 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			policy := policyAt(waits{"od": 10 * time.Minute}, at)
			assert.Equal(t, c.spot, policy.Wait("spot", c.pod))
			assert.Equal(t, c.od, policy.Wait("od", c.pod))
			assert.Equal(t, c.od == Never, policy.SpotOnly(c.pod))
			assert.Equal(t, c.spot == Never, policy.OnDemandOnly(c.pod))
		})
	}
}

func TestThereIsNoSpotForAPodOfOnDemandOnlyWhoseDeadlineIsClose(t *testing.T) {
	late := testutil.NewPod("late", append(until("24h", "24h"), taking("on-demand"))...)
	policyAt(waits{"od": 0}, 0).AllowSpot([]*apiv1.Pod{late}, func() { t.Error("it is to have none") })
}

func TestPodsOnDemandDoNotHastenThoseThatAreBoughtForWithThem(t *testing.T) {
	policy := policyAt(waits{"od": 10 * time.Minute}, time.Minute)
	master, worker := testutil.NewPod("master", taking("on-demand")), testutil.NewPod("worker")
	assert.True(t, policy.Allows("od", []*apiv1.Pod{master}))
	assert.False(t, policy.Allows("od", []*apiv1.Pod{master, worker}))
	assert.False(t, policy.Allows("spot", []*apiv1.Pod{master, worker}), "the master has none")
	assert.True(t, policyAt(waits{"od": 10 * time.Minute}, 10*time.Minute).Allows("od", []*apiv1.Pod{master, worker}))
	onDemand, others := policy.Apart([]*apiv1.Pod{worker, master})
	assert.Equal(t, []string{"master"}, testutil.Names(onDemand))
	assert.Equal(t, []string{"worker"}, testutil.Names(others))
}

func TestPodsOnDemandAreBoughtForFirst(t *testing.T) {
	inner := &buyer{}
	o := NewOrchestrator(inner, policyAt(waits{"od": 5 * time.Minute, "other": time.Minute}, time.Minute))
	o.autoscaling = contextOf("spot", "od", "other")
	pods := []*apiv1.Pod{testutil.NewPod("any", wishing("0s")), testutil.NewPod("never", taking("spot-only")), testutil.NewPod("od", taking("on-demand"))}
	_, err := o.ScaleUp(pods, nil, nil, nil, false)
	require.NoError(t, err)
	assert.Equal(t, [][]string{{"od"}, {"never"}, {"any"}}, inner.calls, "the others fill what they leave")
	choices := o.policy.Choices(contextOf("spot", "od").CloudProvider.NodeGroups())
	assert.Greater(t, choices(pods[2]), choices(pods[1]), "and they are placed before those that wait for spot")
	assert.Greater(t, choices(pods[0]), choices(pods[2]))
}

func TestWhatIsWrongWithAnnotationsIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		want        string
	}{
		"nothing":                   {map[string]string{api.AnnotationCapacity: "spot-only", api.AnnotationValueOfTime: "0"}, ""},
		"a floor of on-demand only": {map[string]string{api.AnnotationCapacity: "on-demand", api.AnnotationOnDemandFloor: "2"}, ""},
		"on demand wins":            {map[string]string{api.AnnotationCapacity: "on-demand", api.AnnotationOnDemandAfter: "never", api.AnnotationOnDemandFloor: "2"}, ""},
		"no floor at all":           {map[string]string{api.AnnotationCapacity: "spot-only", api.AnnotationOnDemandFloor: "0"}, ""},
		"a capacity": {map[string]string{api.AnnotationCapacity: "Spot"},
			`annotation gpu-spot.autoscaling/capacity="Spot" is ignored: it is not spot-only, spot-then-on-demand, or on-demand`},
		"a floor": {map[string]string{api.AnnotationOnDemandFloor: "-1"},
			`annotation gpu-spot.autoscaling/on-demand-floor="-1" is ignored: it is not a number such as 2, or a share such as 25%`},
		"a floor of spot only": {map[string]string{api.AnnotationCapacity: "spot-only", api.AnnotationOnDemandFloor: "25%"},
			`annotation gpu-spot.autoscaling/on-demand-floor="25%" is ignored: it is not possible for a pod that takes spot only`},
		"a floor of never": {map[string]string{api.AnnotationOnDemandAfter: "never", api.AnnotationOnDemandFloor: "1"},
			`annotation gpu-spot.autoscaling/on-demand-floor="1" is ignored: it is not possible for a pod that takes spot only`},
		"a value of time": {map[string]string{api.AnnotationValueOfTime: "NaN"},
			`annotation gpu-spot.autoscaling/value-of-time="NaN" is ignored: it is not money per instance-hour from 0 to 1000000`},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(c.annotations)
			if c.want == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, c.want)
			}
		})
	}
}

func TestWhoIsOfTheFloorIsOnDemandUntilItIsReached(t *testing.T) {
	policy := policyAt(waits{"od": 10 * time.Minute}, 0)
	policy.config.Floors = NewFloors(nil, nil)
	first, second := testutil.NewPod("first"), testutil.NewPod("second", until("24h", "24h")...)
	assert.False(t, policy.OnDemandOnly(first), "before the first loop")
	chosen := sets.New[types.UID](first.UID, second.UID)
	policy.config.Floors.chosen.uids.Store(&chosen)
	assert.Equal(t, Never, policy.Wait("spot", first))
	assert.Zero(t, policy.Wait("od", first))
	policy.AllowSpot([]*apiv1.Pod{second}, func() { t.Error("there is no spot for the floor") })
}
