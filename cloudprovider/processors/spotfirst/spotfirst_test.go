package spotfirst

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	provreqv1 "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// waits are how long pods wait for each on-demand group.
type waits map[string]time.Duration

func (w waits) OnDemandAfter(groupID string) (time.Duration, bool) {
	wait, onDemand := w[groupID]
	return wait, onDemand
}

// policyAt returns a policy of these waits, so long after the creation of all pods.
func policyAt(w waits, after time.Duration) *Policy {
	return NewPolicy(Config{
		Offerings: w, Restart: 10 * time.Minute, Clock: clocktesting.NewFakePassiveClock(testutil.Epoch.Add(after)),
		HasRun: func(pod *apiv1.Pod) bool { return pod.Labels["has-run"] != "" },
	})
}

func wishing(wait string) testutil.PodOption {
	return testutil.Annotated(api.AnnotationOnDemandAfter, wait)
}

// until are the annotations of a pod whose job has a deadline so long after the epoch, and so much work; an empty text leaves one out.
func until(deadline, work string) (options []testutil.PodOption) {
	left, _ := time.ParseDuration(deadline)
	options = append(options, testutil.Annotated(api.AnnotationDeadline, testutil.Epoch.Add(left).Format(time.RFC3339)))
	if work != "" {
		options = append(options, testutil.Annotated(api.AnnotationWork, work))
	}
	return options
}

func createdAfter(d time.Duration) testutil.PodOption {
	return func(pod *apiv1.Pod) { pod.CreationTimestamp.Time = testutil.Epoch.Add(d) }
}

func TestPodsWaitForSpotAsLongAsThePoolOrTheySay(t *testing.T) {
	for name, c := range map[string]struct {
		pod   *apiv1.Pod
		group string
		after time.Duration
		want  time.Duration
	}{
		"nobody waits for spot instances":              {testutil.NewPod("p"), "spot", 0, 0},
		"a pod waits as the pool says":                 {testutil.NewPod("p"), "slow", 4 * time.Minute, 6 * time.Minute},
		"and no longer than that":                      {testutil.NewPod("p"), "slow", 10 * time.Minute, 0},
		"a pool that says nothing is bought at once":   {testutil.NewPod("p"), "fast", 0, 0},
		"a pod may want to wait longer":                {testutil.NewPod("p", wishing("1h")), "fast", time.Minute, 59 * time.Minute},
		"or not at all":                                {testutil.NewPod("p", wishing("0s")), "slow", 0, 0},
		"or for ever":                                  {testutil.NewPod("p", wishing("never")), "fast", 1000 * time.Hour, Never},
		"for spot instances it does not wait then":     {testutil.NewPod("p", wishing("never")), "spot", 0, 0},
		"what has run already does not wait":           {testutil.NewPod("p", testutil.Labelled("has-run", "yes"), wishing("1h")), "slow", 0, 0},
		"unless it is for ever":                        {testutil.NewPod("p", testutil.Labelled("has-run", "yes"), wishing("Never")), "slow", 0, Never},
		"an annotation that cannot be read is ignored": {testutil.NewPod("p", wishing("soon")), "slow", 0, 10 * time.Minute},
		"and so is a negative one":                     {testutil.NewPod("p", wishing("-1m")), "slow", 0, 10 * time.Minute},
		// 24 h 25 min until the deadline, 24 h of work, and two restarts of 10 min.
		"a pod with a deadline waits no longer than that allows":   {testutil.NewPod("p", until("24h25m", "24h")...), "slow", 0, 5 * time.Minute},
		"nor if it wants to wait longer":                           {testutil.NewPod("p", append(until("24h25m", "24h"), wishing("1h"))...), "slow", 0, 5 * time.Minute},
		"it takes spot as long as a reclaim does not make it late": {testutil.NewPod("p", until("24h25m", "24h")...), "spot", 5 * time.Minute, 0},
		"and no longer":             {testutil.NewPod("p", until("24h25m", "24h")...), "spot", 6 * time.Minute, Never},
		"but on demand":             {testutil.NewPod("p", until("24h25m", "24h")...), "slow", 6 * time.Minute, 0},
		"unless it wants spot only": {testutil.NewPod("p", append(until("24h25m", "24h"), wishing("never"))...), "spot", 6 * time.Minute, 0},
		"with time to spare it waits as the pool says": {testutil.NewPod("p", until("100h", "24h")...), "slow", 0, 10 * time.Minute},
		"a deadline says nothing without the work":     {testutil.NewPod("p", until("1m", "")...), "spot", 0, 0},
		"a deadline that cannot be read is ignored":    {testutil.NewPod("p", testutil.Annotated(api.AnnotationDeadline, "tomorrow"), testutil.Annotated(api.AnnotationWork, "24h")), "spot", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			policy := policyAt(waits{"slow": 10 * time.Minute, "fast": 0}, c.after)
			assert.Equal(t, c.want, policy.Wait(c.group, c.pod))
			assert.Equal(t, c.want == 0, policy.Allows(c.group, []*apiv1.Pod{c.pod}))
		})
	}
}

func TestAGangHasWaitedAsLongAsItsFirstPod(t *testing.T) {
	policy := policyAt(waits{"slow": 10 * time.Minute}, 10*time.Minute)
	young := testutil.NewPod("young", createdAfter(9*time.Minute))
	assert.False(t, policy.Allows("slow", []*apiv1.Pod{young}))
	assert.True(t, policy.Allows("slow", []*apiv1.Pod{young, testutil.NewPod("old")}))
	assert.True(t, policy.Allows("slow", nil), "a pool is bought up to its minimum for nobody")
}

// buyer is an inner orchestrator that notes for whom it was called, and has options for some.
type buyer struct {
	scaleup.Orchestrator
	calls   [][]string
	options map[string]bool
	called  func()
}

func (b *buyer) ScaleUp(pods []*apiv1.Pod, _ []*apiv1.Node, _ []*appsv1.DaemonSet, _ map[string]*framework.NodeInfo,
	_ bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	b.calls = append(b.calls, testutil.Names(pods))
	if b.called != nil {
		b.called()
	}
	result := &status.ScaleUpStatus{Result: status.ScaleUpNoOptionsAvailable}
	for _, pod := range pods {
		if b.options[pod.Name] {
			result.Result = status.ScaleUpSuccessful
		} else {
			result.PodsRemainUnschedulable = append(result.PodsRemainUnschedulable, status.NoScaleUpInfo{Pod: pod})
		}
	}
	return result, nil
}

func TestAGangGetsNothingThatOneOfItsPodsMustNotHave(t *testing.T) {
	policy := policyAt(waits{"slow": 0}, time.Hour)
	assert.False(t, policy.Allows("slow", []*apiv1.Pod{testutil.NewPod("a"), testutil.NewPod("b", wishing("never"))}))
	assert.True(t, policy.Allows("spot", []*apiv1.Pod{testutil.NewPod("a"), testutil.NewPod("b", wishing("never"))}))
}

func TestPodsThatMayGetDifferentInstancesAreBoughtForApart(t *testing.T) {
	old, young := testutil.NewPod("old"), testutil.NewPod("young", createdAfter(9*time.Minute))
	spotOnly := testutil.NewPod("spot-only", wishing("never"))
	for name, c := range map[string]struct {
		waits        waits
		options      map[string]bool
		allOrNothing bool
		calls        [][]string
		awaiting     []string
		remaining    int
	}{
		"those with the least choice come first": {
			waits{"od": 5 * time.Minute}, map[string]bool{"young": true}, false, [][]string{{"young", "spot-only"}}, []string{"old"}, 1,
		},
		"then the others": {
			waits{"od": 5 * time.Minute}, map[string]bool{"old": true}, false, [][]string{{"young", "spot-only"}, {"old"}}, nil, 2,
		},
		"all remain if there is nothing to buy": {waits{"od": 5 * time.Minute}, nil, false, [][]string{{"young", "spot-only"}, {"old"}}, nil, 3},
		"pools differ": {
			waits{"od": 5 * time.Minute, "later": time.Hour, "at once": 0}, nil, false, [][]string{{"spot-only"}, {"young"}, {"old"}}, nil, 3,
		},
		"without an on-demand pool all are alike": {waits{}, nil, false, [][]string{{"old", "young", "spot-only"}}, nil, 3},
		"a gang is bought for together":           {waits{"od": 5 * time.Minute}, nil, true, [][]string{{"old", "young", "spot-only"}}, nil, 3},
	} {
		t.Run(name, func(t *testing.T) {
			inner := &buyer{options: c.options}
			o := NewOrchestrator(inner, policyAt(c.waits, 10*time.Minute))
			o.autoscaling = contextOf("spot", "od", "later", "at once")
			got, err := o.ScaleUp([]*apiv1.Pod{old, young, spotOnly}, nil, nil, nil, c.allOrNothing)
			require.NoError(t, err)
			assert.Equal(t, c.calls, inner.calls)
			assert.ElementsMatch(t, c.awaiting, testutil.Names(got.PodsAwaitEvaluation))
			assert.Len(t, got.PodsRemainUnschedulable, c.remaining)
		})
	}
}

func TestAJobWhoseDeadlineIsCloseTakesSpotIfThereIsNothingElse(t *testing.T) {
	late := testutil.NewPod("late", until("24h", "24h")...)
	policy := policyAt(waits{"od": 0}, 0)
	var allowed []bool
	inner := &buyer{options: map[string]bool{}}
	o := NewOrchestrator(inner, policy)
	o.autoscaling = contextOf("spot", "od")
	inner.called = func() {
		allowed = append(allowed, policy.Allows("spot", []*apiv1.Pod{late}))
		inner.options["late"] = len(allowed) == 2
	}
	got, err := o.ScaleUp([]*apiv1.Pod{late}, nil, nil, nil, false)
	require.NoError(t, err)
	assert.Equal(t, status.ScaleUpSuccessful, got.Result)
	assert.Equal(t, []bool{false, true}, allowed)

	allowed = nil
	got, err = o.ScaleUp([]*apiv1.Pod{late}, nil, nil, nil, true)
	require.NoError(t, err)
	assert.Equal(t, status.ScaleUpNoOptionsAvailable, got.Result, "a gang may be bought by a plan")
	assert.Equal(t, []bool{false}, allowed)
	var spot []bool
	policy.AllowSpot([]*apiv1.Pod{late}, func() { spot = append(spot, policy.Allows("spot", []*apiv1.Pod{late})) })
	assert.Equal(t, []bool{true}, spot)
	assert.False(t, policy.Allows("spot", []*apiv1.Pod{late}))
	policy.AllowSpot([]*apiv1.Pod{testutil.NewPod("p")}, func() { t.Error("there is nothing to allow") })
}

func TestAJobWhoseDeadlineIsCloseTakesSpotAlsoWhileAProvisioningRequestIsPending(t *testing.T) {
	late, request := testutil.NewPod("late", until("24h", "24h")...), testutil.NewPod("request", append(until("24h", "24h"),
		testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "request"))...)
	for name, c := range map[string]struct {
		isTurnOfRequests bool
		allowed          []bool
	}{
		"in the turn of ordinary pods":                {false, []bool{false, true}},
		"in the turn of requests nothing is repeated": {true, []bool{false}},
	} {
		t.Run(name, func(t *testing.T) {
			policy := policyAt(waits{"od": 0}, 0)
			inner := &buyer{}
			o := NewOrchestrator(inner, policy)
			o.autoscaling = contextOf("spot", "od")
			o.autoscaling.ProvisioningRequestScaleUpMode = c.isTurnOfRequests
			var allowed []bool
			inner.called = func() {
				allowed = append(allowed, policy.Allows("spot", []*apiv1.Pod{late}))
				o.autoscaling.ProvisioningRequestScaleUpMode = !c.isTurnOfRequests
			}
			_, err := o.ScaleUp([]*apiv1.Pod{late, request}, nil, nil, nil, false)
			require.NoError(t, err)
			assert.Equal(t, c.allowed, allowed)
			assert.Equal(t, !c.isTurnOfRequests, o.autoscaling.ProvisioningRequestScaleUpMode)
		})
	}
}

func TestProvisioningRequestsStayWholeAndKeepTheirTurns(t *testing.T) {
	provisioning := testutil.Annotated(provreqv1.ProvisioningRequestPodAnnotationKey, "request")
	inner := &buyer{}
	o := NewOrchestrator(inner, policyAt(waits{"od": 5 * time.Minute}, 10*time.Minute))
	o.autoscaling = contextOf("spot", "od")
	var modes []bool
	// As orchestrator.WrapperOrchestrator of core: without pods of requests it is the turn of the others, whatever the mode.
	inner.called = func() {
		modes = append(modes, o.autoscaling.ProvisioningRequestScaleUpMode)
		if !slices.Contains(inner.calls[len(inner.calls)-1], "request-0") {
			o.autoscaling.ProvisioningRequestScaleUpMode = false
		}
		o.autoscaling.ProvisioningRequestScaleUpMode = !o.autoscaling.ProvisioningRequestScaleUpMode
	}
	pods := []*apiv1.Pod{
		testutil.NewPod("request-0", provisioning), testutil.NewPod("request-1", provisioning, wishing("never")), testutil.NewPod("old"), testutil.NewPod("spot-only", wishing("never")),
	}
	for range 3 {
		_, err := o.ScaleUp(pods, nil, nil, nil, false)
		require.NoError(t, err)
	}
	assert.Equal(t, [][]string{{"request-0", "request-1", "spot-only"}, {"old"}}, inner.calls[:2])
	assert.Equal(t, []bool{false, false, true, true, false, false}, modes, "the turns alternate by the loop")
}

// contextOf returns the context of a cluster with these node groups.
func contextOf(groups ...string) *cacontext.AutoscalingContext {
	ctx, _, recorder := testutil.NewContext(nil, nil)
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	for _, id := range groups {
		provider.AddNodeGroup(id, 0, 10, 0)
	}
	ctx.CloudProvider = provider
	ctx.Recorder = recorder
	return ctx
}

func TestAnAnnotationThatCannotBeReadIsReportedOnce(t *testing.T) {
	o := NewOrchestrator(&buyer{}, policyAt(waits{}, 0))
	o.autoscaling = contextOf("spot")
	events := o.autoscaling.Recorder.(*record.FakeRecorder).Events
	for range 3 {
		_, err := o.ScaleUp([]*apiv1.Pod{testutil.NewPod("p", wishing("soon")), testutil.NewPod("q", wishing("1h"))}, nil, nil, nil, false)
		require.NoError(t, err)
	}
	require.Len(t, events, 1)
	assert.Equal(t, `Warning SpotAnnotationMalformed annotation gpu-spot.autoscaling/on-demand-after="soon" is ignored: it is not a duration such as 10m, or never`, <-events)
}
