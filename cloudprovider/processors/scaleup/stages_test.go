package scaleup

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// stages stands for core's orchestrator: it asks which groups it may look at, and buys of the first that suits.
type stages struct {
	processors *caprocessors.AutoscalingProcessors
	groups     []cloudprovider.NodeGroup
	infos      map[string]*framework.NodeInfo
	// suits are the groups that take any pod; helps are the pods it then buys for, all if nil.
	suits string
	helps []*apiv1.Pod
	fails bool
	// shown is how many groups each call was shown, seen how often each was.
	shown []int
	seen  map[string]int
}

func (o *stages) Initialize(_ *cacontext.AutoscalingContext, processors *caprocessors.AutoscalingProcessors,
	_ *clusterstate.ClusterStateRegistry, _ estimator.EstimatorBuilder, _ taints.TaintConfig) {
	o.processors = processors
}

func (o *stages) ScaleUp(pods []*apiv1.Pod, _ []*apiv1.Node, _ []*appsv1.DaemonSet, _ map[string]*framework.NodeInfo,
	_ bool) (*status.ScaleUpStatus, errors.AutoscalerError) {
	groups, _, err := o.processors.NodeGroupListProcessor.Process(nil, o.groups, o.infos, pods)
	if err != nil || o.fails {
		return &status.ScaleUpStatus{Result: status.ScaleUpError}, errors.NewAutoscalerError(errors.InternalError, "failed")
	}
	o.shown = append(o.shown, len(groups))
	result := &status.ScaleUpStatus{Result: status.ScaleUpNoOptionsAvailable, ConsideredNodeGroups: groups}
	why := map[string]status.Reasons{}
	for _, group := range groups {
		o.seen[group.Id()]++
		why[group.Id()] = nil
		if group.Id() == o.suits {
			result.Result = status.ScaleUpSuccessful
		}
	}
	for _, pod := range pods {
		if result.Result != status.ScaleUpSuccessful || o.helps != nil && !slices.Contains(o.helps, pod) {
			result.PodsRemainUnschedulable = append(result.PodsRemainUnschedulable, status.NoScaleUpInfo{Pod: pod, RejectedNodeGroups: why})
		}
	}
	return result, nil
}

func (o *stages) ScaleUpToNodeGroupMinSize([]*apiv1.Node, map[string]*framework.NodeInfo) (*status.ScaleUpStatus, errors.AutoscalerError) {
	return nil, nil
}

// newStaged is over as many offerings as said, "0000" being the cheapest.
func newStaged(offerings int, change ...func(*SearchConfig)) (*Search, *stages) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	core := &stages{infos: map[string]*framework.NodeInfo{}, seen: map[string]int{}}
	perHour := prices{}
	for i := range offerings {
		id := fmt.Sprintf("%04d", i)
		provider.AddNodeGroup(id, 0, 100, 0)
		core.groups = append(core.groups, provider.GetNodeGroup(id))
		core.infos[id] = framework.NewTestNodeInfo(testutil.NewNode(id, "cpu", "8", "memory", "64Gi", "pods", "64", api.ResourceGPU, "1"))
		perHour[id] = float64(1 + i)
	}
	slices.Reverse(core.groups)
	config := SearchConfig{
		Offerings: perHour, ByPrice: true, MaxBinpackingTime: time.Minute, Clock: testingclock.NewFakePassiveClock(testutil.Epoch),
	}
	for _, change := range change {
		change(&config)
	}
	search := NewSearch(core, config)
	ctx, _, _ := testutil.NewContext(nil, nil)
	search.Initialize(ctx, &caprocessors.AutoscalingProcessors{NodeGroupListProcessor: search, BinpackingLimiter: search}, nil, nil, taints.TaintConfig{})
	return search, core
}

func TestStagesGrowUntilThereIsSomethingToBuy(t *testing.T) {
	for name, test := range map[string]struct {
		offerings int
		suits     string
		shown     []int
	}{
		"the best offerings are enough":                {offerings: 1000, suits: "0015", shown: []int{16}},
		"more are shown where none of them suits":      {offerings: 1000, suits: "0016", shown: []int{16, 48}},
		"in the end all are":                           {offerings: 1000, suits: "0999", shown: []int{16, 48, 192, 744}},
		"nothing is shown twice where nothing suits":   {offerings: 66, shown: []int{16, 48, 2}},
		"a stage that has just shown all was the last": {offerings: 64, shown: []int{16, 48}},
		"few offerings are one stage":                  {offerings: 5, shown: []int{5}},
		"no offerings are one stage too":               {shown: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			o, core := newStaged(test.offerings)
			core.suits = test.suits
			result, err := o.ScaleUp(testutil.NewPods(2, "p"), nil, nil, nil, false)
			require.Nil(t, err)
			assert.Equal(t, test.shown, core.shown)
			for id, times := range core.seen {
				assert.Equal(t, 1, times, id)
			}
			assert.Equal(t, test.suits != "", result.Result == status.ScaleUpSuccessful)
		})
	}
}

func TestPodsThatNoStageHelpsAreToldTheReasonsOfAll(t *testing.T) {
	o, core := newStaged(130)
	result, err := o.ScaleUp(testutil.NewPods(2, "p"), nil, nil, nil, false)
	require.Nil(t, err)
	require.Len(t, result.PodsRemainUnschedulable, 2)
	for _, left := range result.PodsRemainUnschedulable {
		assert.ElementsMatch(t, slices.Collect(maps.Keys(core.infos)), slices.Collect(maps.Keys(left.RejectedNodeGroups)))
	}
	assert.Len(t, result.ConsideredNodeGroups, 130)
}

func TestPodsLeftOutByAStageAwaitTheOthers(t *testing.T) {
	o, core := newStaged(130)
	pods := testutil.NewPods(2, "p")
	core.suits, core.helps = "0000", pods[:1]
	result, err := o.ScaleUp(pods, nil, nil, nil, false)
	require.Nil(t, err)
	assert.Empty(t, result.PodsRemainUnschedulable)
	assert.Equal(t, []string{"p-1"}, testutil.Names(result.PodsAwaitEvaluation))
}

func TestErrorEndsTheStages(t *testing.T) {
	o, core := newStaged(130)
	core.fails = true
	_, err := o.ScaleUp(testutil.NewPods(1, "p"), nil, nil, nil, false)
	assert.NotNil(t, err)
}

func TestWithoutOrderByPriceThereIsOneStage(t *testing.T) {
	o, core := newStaged(130, func(config *SearchConfig) { config.ByPrice = false })
	_, err := o.ScaleUp(testutil.NewPods(1, "p"), nil, nil, nil, false)
	require.Nil(t, err)
	assert.Equal(t, []int{130}, core.shown)
}

func TestNothingIsBoughtForPodsOfWhichMoreArriveDuringTheEvaluation(t *testing.T) {
	for _, byPrice := range []bool{true, false} {
		t.Run(fmt.Sprintf("by price %t", byPrice), func(t *testing.T) {
			offerings := catalogue{"cpu": {price: 1, max: 9, node: testutil.NewNode("cpu", "cpu", "8", "memory", "32Gi", "pods", "64")}}
			for i := range 40 { // more than one stage
				id := fmt.Sprintf("gpu-%02d", i)
				offerings[id] = offer(id, float64(4+i), "1")
			}
			core := newRealCore(t, offerings, missing{}, byPrice)
			asked := 0
			core.reopen = func(pods []*apiv1.Pod) []*apiv1.Pod {
				asked++
				if processors.RequestsGPU(pods[0]) {
					return nil
				}
				return pods
			}
			training, batch := testutil.NewPods(3, "train"), testutil.NewPods(1, "batch", testutil.WithoutGPU, fourCPUs)
			_, result := core.loop(slices.Concat(training, batch))
			assert.Equal(t, map[string]int{"cpu": 1}, core.bought, "others do not wait for them")
			assert.Equal(t, 2, asked, "no further stage is evaluated")
			assert.Equal(t, status.ScaleUpSuccessful, result.Result)
			assert.ElementsMatch(t, training, result.PodsAwaitEvaluation)
			for _, event := range core.events(result) {
				assert.Contains(t, event, "TriggeredScaleUp")
			}

			core.reopen = nil
			_, result = core.loop(training)
			assert.Equal(t, status.ScaleUpSuccessful, result.Result)
			assert.Equal(t, 3, core.bought["gpu-00"])
		})
	}
}

func TestPodsOfOtherDemandsAreBoughtForWhileSomeAreDeferredAgain(t *testing.T) {
	core := newRealCore(t, catalogue{"one": offer("one", 4, "1"), "eight": offer("eight", 90, "8")}, missing{}, true)
	settling, settled := testutil.NewPods(2, "settling", testutil.Requesting("nvidia.com/gpu", "8")), testutil.NewPods(3, "settled")
	core.reopen = func(pods []*apiv1.Pod) []*apiv1.Pod { return without(pods, settling) }
	_, result := core.loop(slices.Concat(settling, settled))
	assert.Equal(t, map[string]int{"one": 3}, core.bought)
	assert.ElementsMatch(t, settled, result.PodsTriggeredScaleUp)
	assert.Subset(t, result.PodsAwaitEvaluation, settling)
}

func TestProvisioningRequestIsNotRefusedForTheSakeOfOtherPods(t *testing.T) {
	core := newRealCore(t, catalogue{"one": offer("one", 4, "1")}, missing{}, true)
	core.reopen = func([]*apiv1.Pod) []*apiv1.Pod { return nil }
	core.ctx.ProvisioningRequestScaleUpMode = true // as their orchestrator sets it before it calls core's
	_, result := core.loop(testutil.NewPods(3, "p"))
	assert.Equal(t, status.ScaleUpSuccessful, result.Result)
	assert.Equal(t, 3, core.bought["one"])
}
