package podlist

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/core/podlistprocessor"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupset"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/scheduling"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// supervisor is a Supervision that says what the test says.
type supervisor struct {
	abandoned []string
	gangs     []StandInGang
	found     map[string]Placement
}

func (s *supervisor) Abandoned(pod *apiv1.Pod) bool { return slices.Contains(s.abandoned, pod.Name) }
func (s *supervisor) Returning() []StandInGang      { return slices.Clone(s.gangs) }
func (s *supervisor) Fits(ref string, found Placement) {
	if s.found == nil {
		s.found = map[string]Placement{}
	}
	s.found[ref] = found
}

// supervisedLoop is what a Deferral is in the binary, over a simulation of the nodes.
func supervisedLoop(t *testing.T, s *supervisor, nodes ...*apiv1.Node) (*Deferral, *cacontext.AutoscalingContext) {
	ctx, _, _ := testutil.NewContext(nil, nodes)
	ctx.AutoscalingOptions = config.AutoscalingOptions{ExpendablePodsPriorityCutoff: -10}
	ctx.ClusterSnapshot = testsnapshot.NewTestSnapshotOrDie(t)
	ctx.DebuggingSnapshotter = debuggingsnapshot.NewDebuggingSnapshotter(false)
	require.NoError(t, ctx.ClusterSnapshot.SetClusterState(nodes, nil, nil))
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	deferral := NewDeferral(Config{Inner: podlistprocessor.NewFilterOutSchedulablePodListProcessor(scheduling.ScheduleAnywhere), Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second, Supervision: s})
	return deferral, ctx
}

// nodeFor has room for so many pods of one GPU.
func nodeFor(name, gpus string, options ...func(*apiv1.Node)) *apiv1.Node {
	node := testutil.NewNode(name, "nvidia.com/gpu", gpus, "cpu", "8", "memory", "8Gi", "pods", "20")
	for _, option := range options {
		option(node)
	}
	return node
}

func upcoming(node *apiv1.Node) {
	node.Annotations = map[string]string{core.NodeUpcomingAnnotation: "true"}
}
func cordoned(node *apiv1.Node) { node.Spec.Unschedulable = true }
func notReady(node *apiv1.Node) { node.Status.Conditions[0].Status = apiv1.ConditionFalse }
func beingRemoved(node *apiv1.Node) {
	node.Spec.Taints = []apiv1.Taint{{Key: taints.ToBeDeletedTaint, Effect: apiv1.TaintEffectNoSchedule}}
}
func tolerant(pod *apiv1.Pod) {
	pod.Spec.Tolerations = []apiv1.Toleration{{Operator: apiv1.TolerationOpExists}}
}

func TestReturningGangs(t *testing.T) {
	for name, test := range map[string]struct {
		nodes   []*apiv1.Node
		gang    StandInGang
		pending []*apiv1.Pod
		// ready and coming are how many pods fit, bought how many there is to buy for, all or nothing for so many.
		ready, coming, bought, together int
		// kept is how many pods of the gang stay in the simulation, which keeps their nodes from scale-down.
		kept int
	}{
		"all of it fits what is there": {
			nodes: []*apiv1.Node{nodeFor("node", "4")}, gang: StandInGang{Pods: testutil.NewPods(4, "worker"), Min: 4}, ready: 4, kept: 4},
		"some of it fits what is on its way": {
			nodes: []*apiv1.Node{nodeFor("node", "2"), nodeFor("new", "2", upcoming)},
			gang:  StandInGang{Pods: testutil.NewPods(4, "worker"), Min: 4}, ready: 2, coming: 2, kept: 4},
		"a node that is not ready is as good as on its way": {
			nodes: []*apiv1.Node{nodeFor("node", "2", notReady)},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", tolerant), Min: 2}, coming: 2, kept: 2},
		"what is missing is bought in one piece, and what is there is not kept for it": {
			nodes: []*apiv1.Node{nodeFor("node", "3")},
			gang:  StandInGang{Pods: testutil.NewPods(4, "worker"), Min: 4}, ready: 3, bought: 1, together: 1},
		"with no room at all, the whole gang is": {
			gang: StandInGang{Pods: testutil.NewPods(4, "worker"), Min: 4}, bought: 4, together: 4},
		"a gang that can do with less is kept what it needs": {
			nodes: []*apiv1.Node{nodeFor("node", "2")},
			gang:  StandInGang{Pods: testutil.NewPods(4, "worker"), Min: 2}, ready: 2, kept: 2},
		"a cordoned node takes nobody, though its pods tolerate all": {
			nodes: []*apiv1.Node{nodeFor("node", "2", cordoned)},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", tolerant), Min: 2}, bought: 2, together: 2},
		"nor does one that is being removed, so that the whole gang is bought": {
			nodes: []*apiv1.Node{nodeFor("node", "1", beingRemoved)},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", tolerant), Min: 2}, bought: 2, together: 2},
		"but what is on its way takes it, and nothing is bought twice": {
			nodes: []*apiv1.Node{nodeFor("a", "2", beingRemoved), nodeFor("new", "2", upcoming)},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", tolerant), Min: 2}, coming: 2, kept: 2},
		"what is there is not safe while a node that is being removed would take them": {
			nodes: []*apiv1.Node{nodeFor("a", "2", beingRemoved), nodeFor("node", "2")},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", tolerant), Min: 2}, coming: 2, kept: 2},
		"unless it is of another kind": {
			nodes: []*apiv1.Node{nodeFor("a", "0", beingRemoved), nodeFor("node", "2")},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", tolerant), Min: 2}, ready: 2, kept: 2},
		"or they tolerate nothing": {
			nodes: []*apiv1.Node{nodeFor("a", "2", beingRemoved), nodeFor("node", "2")},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker"), Min: 2}, ready: 2, kept: 2},
		"who is there goes first, whatever the priority of who returns": {
			nodes:   []*apiv1.Node{nodeFor("node", "2")},
			gang:    StandInGang{Pods: testutil.NewPods(1, "worker", func(pod *apiv1.Pod) { pod.Spec.Priority = ptr.To[int32](1000) }), Min: 1},
			pending: testutil.NewPods(2, "pending"),
		},
		"the gang that the template declares does not count": {
			nodes: []*apiv1.Node{nodeFor("node", "2")},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", testutil.InGang("job", 8)), Min: 1}, ready: 2, kept: 2},
		"pods that the job does without take ready nodes only, if nothing is bought for them": {
			nodes: []*apiv1.Node{nodeFor("node", "2"), nodeFor("new", "2", upcoming)},
			gang:  StandInGang{Pods: testutil.NewPods(6, "worker"), Min: 1, Extra: ExtraFree}, ready: 2, kept: 2},
		"pods for which core buys nothing are not taken in": {
			nodes: []*apiv1.Node{nodeFor("node", "2")},
			gang:  StandInGang{Pods: testutil.NewPods(2, "worker", func(pod *apiv1.Pod) { pod.Spec.Priority = ptr.To[int32](-11) }), Min: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			test.gang.Ref = "job"
			s := &supervisor{gangs: []StandInGang{test.gang}}
			deferral, ctx := supervisedLoop(t, s, test.nodes...)
			before := test.gang.Pods[0].DeepCopy()
			_, _, recorder := testutil.NewContext(nil, nil)
			ctx.Recorder = recorder
			deferral.BeginLoop()
			left, err := deferral.Process(ctx, test.pending)
			require.NoError(t, err)
			assert.Empty(t, recorder.Events, "nobody complains about pods that do not exist")

			assert.Len(t, s.found["job"].Ready, test.ready)
			assert.Subset(t, test.gang.Pods, s.found["job"].Ready)
			assert.Len(t, s.found["job"].Coming, test.coming)
			assert.Len(t, left, test.bought)
			for _, pod := range left {
				_, together := deferral.Missing(pod)
				assert.Equal(t, test.together, together)
			}
			kept := 0
			infos, err := ctx.ClusterSnapshot.ListNodeInfos()
			require.NoError(t, err)
			for _, info := range infos {
				for _, pod := range info.Pods() {
					if IsStandIn(pod.Pod) {
						kept++
					}
				}
			}
			assert.Equal(t, test.kept, kept)
			assert.Equal(t, before, test.gang.Pods[0], "the gang's own pods are left alone")
		})
	}
}

func TestGangsThatReturnAreToldApart(t *testing.T) {
	s := &supervisor{gangs: []StandInGang{
		{Ref: "big", Pods: testutil.NewPods(3, "worker"), Min: 3}, {Ref: "small", Pods: testutil.NewPods(1, "worker"), Min: 1},
	}}
	deferral, ctx := supervisedLoop(t, s, nodeFor("node", "1"), nodeFor("new", "3", upcoming))
	deferral.BeginLoop()
	left, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, left)
	for ref, pods := range map[string]int{"big": 3, "small": 1} {
		assert.Equal(t, pods, len(s.found[ref].Ready)+len(s.found[ref].Coming), ref)
	}
}

func TestAGangReturnsInTheLoopAfterItsPodsHaveGone(t *testing.T) {
	s := &supervisor{}
	deferral, ctx := supervisedLoop(t, s)
	deferral.BeginLoop() // and core lists the pods, those of the gang among them
	s.gangs = []StandInGang{{Ref: "job", Pods: testutil.NewPods(2, "worker"), Min: 2}}
	left, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, left, "they may have the place of those that return")
	assert.NotZero(t, deferral.NextWake(), "the next loop follows at once")

	deferral.BeginLoop()
	s.gangs = []StandInGang{{Ref: "job", Pods: testutil.NewPods(2, "worker"), Min: 2}}
	left, err = deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, left, "it had others in between")

	deferral.BeginLoop()
	left, err = deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Len(t, left, 2)
	assert.Zero(t, deferral.NextWake())
}

func TestAbandonedPodsAreNotBoughtFor(t *testing.T) {
	s := &supervisor{abandoned: []string{"late-0", "late-1"}}
	deferral, ctx := supervisedLoop(t, s)
	late := testutil.NewPods(2, "late")
	deferral.arrivals.Note(late[1]) // like one that the scheduler has said it cannot place
	deferral.arrivals.Note(testutil.NewPod("other", testutil.InGang("other", 2)))
	left, err := deferral.Process(ctx, append(testutil.NewPods(2, "early", testutil.InGang("gang", 2)), late[0]))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"early-0", "early-1"}, testutil.Names(left))
}

func TestPodsThatReturnGetNoEvents(t *testing.T) {
	s := &supervisor{gangs: []StandInGang{{Ref: "job", Pods: testutil.NewPods(2, "worker"), Min: 2}}}
	deferral, ctx := supervisedLoop(t, s)
	deferral.BeginLoop()
	left, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	require.Len(t, left, 2)
	result := &status.ScaleUpStatus{Result: status.ScaleUpSuccessful, ScaleUpInfos: make([]nodegroupset.ScaleUpInfo, 1), PodsTriggeredScaleUp: left}
	_, _, recorder := testutil.NewContext(nil, nil)
	ctx.Recorder = recorder
	NewStatusFilter(&status.EventingScaleUpStatusProcessor{}, IsStandIn).Process(ctx, result)
	assert.Empty(t, recorder.Events)
}

func TestNothingIsBoughtForPodsThatTheJobDoesWithoutIfTheyAreToBeOnDemand(t *testing.T) {
	pods := testutil.NewPods(4, "worker", testutil.Annotated(api.AnnotationCapacity, api.CapacityOnDemand))
	s := &supervisor{gangs: []StandInGang{{Ref: "job", Pods: pods, Min: 1, Extra: ExtraSpot}}}
	deferral, ctx := supervisedLoop(t, s, nodeFor("node", "2"))
	deferral.BeginLoop()
	_, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	deferral.settling.clock.(*testingclock.FakePassiveClock).SetTime(testutil.Epoch.Add(2 * time.Second))
	require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{nodeFor("node", "2")}, nil, nil))
	deferral.BeginLoop()
	left, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	assert.Empty(t, left)
	assert.Len(t, s.found["job"].Ready, 2, "but they take what is free")
}

func TestAStandInIsOfTheGangOfThePodThatItStandsFor(t *testing.T) {
	s := &supervisor{gangs: []StandInGang{{Ref: "job", Pods: testutil.NewPods(3, "worker", testutil.InGang("train", 4)), Min: 2}}}
	deferral, ctx := supervisedLoop(t, s)
	deferral.BeginLoop()
	left, err := deferral.Process(ctx, nil)
	require.NoError(t, err)
	require.Len(t, left, 3)
	for _, pod := range append(left, testutil.NewPod("survivor", testutil.InGang("train", 4))) {
		assert.Equal(t, "ml/train", deferral.GangOf(pod))
	}
	assert.Empty(t, deferral.GangOf(testutil.NewPod("other")))
	assert.Equal(t, "job", deferral.SupervisedJobOf(left[0]))
	assert.Empty(t, deferral.SupervisedJobOf(testutil.NewPod("survivor", testutil.InGang("train", 4))))
}

func TestWhatIsBoughtForPodsThatTheJobDoesWithout(t *testing.T) {
	for extra, want := range map[Extra]int{ExtraFree: 0, ExtraSpot: 2} {
		s := &supervisor{gangs: []StandInGang{{Ref: "job", Pods: testutil.NewPods(4, "worker"), Min: 1, Extra: extra}}}
		deferral, ctx := supervisedLoop(t, s, nodeFor("node", "2"))
		deferral.BeginLoop()
		_, err := deferral.Process(ctx, nil)
		require.NoError(t, err)
		deferral.settling.clock.(*testingclock.FakePassiveClock).SetTime(testutil.Epoch.Add(2 * time.Second))
		require.NoError(t, ctx.ClusterSnapshot.SetClusterState([]*apiv1.Node{nodeFor("node", "2")}, nil, nil))
		deferral.BeginLoop()
		left, err := deferral.Process(ctx, nil)
		require.NoError(t, err)
		assert.Len(t, left, want)
		for _, pod := range left {
			assert.Equal(t, api.OnDemandNever, pod.Annotations[api.AnnotationOnDemandAfter], "no more than spot instances")
		}
	}
}
