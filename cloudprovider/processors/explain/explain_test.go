package explain

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtest "github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupset"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// offering is a node group with one kind of node.
type offering struct {
	cloudprovider.NodeGroup
	id       string
	gpus     string
	obstacle *reasons.Reason
	onDemand time.Duration
}

func (o *offering) Id() string                { return o.id }
func (o *offering) Exist() bool               { return true }
func (o *offering) Obstacle() *reasons.Reason { return o.obstacle }
func (o *offering) TemplateNodeInfo() (*framework.NodeInfo, error) {
	return framework.NewTestNodeInfo(testutil.NewNode(o.id, "cpu", "8", "memory", "32Gi", "pods", "64", api.ResourceGPU, o.gpus)), nil
}

type offerings []*offering

func (o offerings) NodeGroups() (groups []cloudprovider.NodeGroup) {
	for _, each := range o {
		groups = append(groups, each)
	}
	return groups
}
func (o offerings) MarketPrice(string) (float64, bool) { return 4.01, true }
func (o offerings) BuysForCPUPods(string) bool         { return false }
func (o offerings) OnDemandAfter(id string) (time.Duration, bool) {
	for _, each := range o {
		if each.id == id && each.onDemand > 0 {
			return each.onDemand, true
		}
	}
	return 0, false
}

var tooDear = &reasons.Reason{Code: reasons.PriceCap, Message: "price cap 0.01 < price 4.01 CNY per hour", Mend: "Raise the cap.", Excess: 4}

type world struct {
	of         offerings
	skipped    *reasons.Skipped
	judgements *Judgements
	problems   []*reasons.Reason
	deadlines  *spotfirst.Deadlines
	idle       *spotfirst.Idle
}

func (w *world) explain(t *testing.T, pod *apiv1.Pod) *Explanation {
	t.Helper()
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	require.NoError(t, pods.Add(pod))
	handle, err := framework.NewTestFrameworkHandle()
	require.NoError(t, err)
	none := func() cache.Indexer { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}) }
	found, err := New(Config{
		Provider: w.of, Policy: spotfirst.NewPolicy(spotfirst.Config{Offerings: w.of, Clock: clock.RealClock{}, Deadlines: w.deadlines, Idle: w.idle}), Skipped: w.skipped, Judgements: w.judgements,
		Problems: func() []*reasons.Reason { return w.problems }, Currency: func() string { return "CNY" },
		Pods: corelisters.NewPodLister(pods), Nodes: corelisters.NewNodeLister(none()), DaemonSets: appslisters.NewDaemonSetLister(none()),
		Handle: handle, Parallelism: 1, LeastPriority: -10, Clock: clock.RealClock{},
	}).Explain(pod.Namespace, "p")
	require.NoError(t, err)
	return found
}

func newWorld(of ...*offering) *world {
	return &world{of: of, skipped: &reasons.Skipped{}, judgements: NewJudgements(clock.RealClock{})}
}

// codesOf returns the codes of the pod's reasons, and after them those of its first offering.
func codesOf(x *Explanation) (codes []reasons.Code) {
	for _, reason := range x.Reasons {
		codes = append(codes, reason.Code)
	}
	if len(x.Offerings) > 0 {
		for _, reason := range x.Offerings[0].Reasons {
			codes = append(codes, reason.Code)
		}
	}
	return codes
}

func TestAPodIsToldTheReasonForWhichItWaits(t *testing.T) {
	one := testutil.Requesting(api.ResourceGPU, "1")
	spot := func(obstacle *reasons.Reason) *world {
		return newWorld(&offering{id: "spot", gpus: "1", obstacle: obstacle})
	}
	holding := func(code reasons.Code) *world {
		w := spot(nil)
		w.skipped.Replace(map[types.UID]*reasons.Reason{testutil.NewPod("p").UID: reasons.New(code, "Mend it.", "it is %s", code)})
		return w
	}
	judged := func(reason status.Reasons) *world {
		w := spot(nil)
		w.judgements.set(testutil.NewPod("p"), map[string]*reasons.Reason{"spot": fromCore(w.of[0], reason)})
		return w
	}
	gated := func(pod *apiv1.Pod) {
		pod.Spec.SchedulingGates = []apiv1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	}
	bought := spot(nil)
	bought.judgements.bought([]*apiv1.Pod{testutil.NewPod("p")}, []nodegroupset.ScaleUpInfo{{Group: bought.of[0], NewSize: 1, MaxSize: 9}})
	broken := newWorld()
	broken.problems = []*reasons.Reason{reasons.New(reasons.PoolProblem, "Correct the tag; it is read again in the next loop.", "pools asg-1 tags: bad")}
	for name, tc := range map[string]struct {
		world   *world
		pod     *apiv1.Pod
		code    reasons.Code
		summary string
		step    string
	}{
		"price cap":           {spot(tooDear), testutil.NewPod("p", one), reasons.PriceCap, "It fits 1 of 1 offerings, and none of them can be bought now: price cap 0.01 < price 4.01 CNY per hour (spot).", "Raise the cap."},
		"fits nowhere":        {spot(nil), testutil.NewPod("p", testutil.Requesting(api.ResourceGPU, "8")), reasons.DoesNotFit, "It fits none of the 1 offerings: Insufficient nvidia.com/gpu.", "add a pool whose nodes fit it"},
		"neither":             {spot(tooDear), testutil.NewPod("p", testutil.Requesting(api.ResourceGPU, "8")), reasons.DoesNotFit, "It fits none of the 1 offerings: Insufficient nvidia.com/gpu.", "add a pool"},
		"a CPU pod":           {spot(nil), testutil.NewPod("p", testutil.WithoutGPU), reasons.GPUPodsOnly, "bought only for pods that ask for a GPU", api.TagBuyForCPUPods},
		"waits for spot":      {newWorld(&offering{id: "od", gpus: "1", onDemand: time.Hour}), createdNow(testutil.NewPod("p", one)), reasons.WaitsForSpot, "on-demand, for which the pod waits until", "shorten " + api.TagOnDemandAfter},
		"spot only":           {newWorld(&offering{id: "od", gpus: "1", onDemand: time.Hour}), testutil.NewPod("p", one, testutil.Annotated(api.AnnotationOnDemandAfter, "never")), reasons.SpotOnly, "never to have on-demand", "Change "},
		"spot only capacity":  {newWorld(&offering{id: "od", gpus: "1", onDemand: time.Hour}), testutil.NewPod("p", one, testutil.Annotated(api.AnnotationCapacity, "spot-only")), reasons.SpotOnly, "never to have on-demand", "Change "},
		"on demand only":      {spot(nil), testutil.NewPod("p", one, testutil.Annotated(api.AnnotationCapacity, "on-demand")), reasons.OnDemandOnly, "to have on-demand instances only", "Change " + api.AnnotationCapacity},
		"deadline":            {spot(nil), testutil.NewPod("p", one, testutil.Annotated(api.AnnotationDeadline, time.Now().Add(time.Minute).Format(time.RFC3339)), testutil.Annotated(api.AnnotationWork, "1h")), reasons.DeadlineClose, "too close for a spot instance", "Move the deadline"},
		"deadline and value":  {spot(nil), testutil.NewPod("p", one, testutil.Annotated(api.AnnotationDeadline, time.Now().Add(time.Minute).Format(time.RFC3339)), testutil.Annotated(api.AnnotationWork, "1h"), testutil.Annotated(api.AnnotationValueOfTime, "8")), reasons.DeadlineClose, "too close for a spot instance", "remove its annotation " + api.AnnotationValueOfTime},
		"settling":            {holding(reasons.Settling), testutil.NewPod("p", one), reasons.Settling, "It is settling.", "Mend it."},
		"incomplete gang":     {holding(reasons.GangIncomplete), testutil.NewPod("p", one), reasons.GangIncomplete, "It is gang-incomplete.", "Mend it."},
		"gang does not fit":   {holding(reasons.GangDoesNotFit), testutil.NewPod("p", one), reasons.GangDoesNotFit, "It is gang-does-not-fit.", "Mend it."},
		"maximum wait over":   {holding(reasons.MaximumWaitOver), testutil.NewPod("p", one), reasons.MaximumWaitOver, "It is maximum-wait-over.", "Mend it."},
		"has a place":         {holding(reasons.HasPlace), testutil.NewPod("p", one), reasons.HasPlace, "It is has-place.", "Mend it."},
		"backoff":             {judged(orchestrator.BackoffReason), testutil.NewPod("p", one), reasons.Backoff, "in backoff after failed scale-up", "Wait"},
		"not all at once":     {judged(orchestrator.AllOrNothingReason), testutil.NewPod("p", one), reasons.NotAtOnce, "no room for all pods of the gang at once", "Raise the maximum"},
		"limits":              {judged(orchestrator.NewMaxResourceLimitReached([]string{"cpu"})), testutil.NewPod("p", one), reasons.ClusterLimit, "max cluster cpu limit reached", "--cores-total"},
		"bought":              {bought, testutil.NewPod("p", one), reasons.Bought, "An instance was bought for it", "joined the cluster"},
		"not judged":          {spot(nil), testutil.NewPod("p", one), reasons.NotJudged, "An instance of spot can be bought for it.", "next loop"},
		"no pools":            {newWorld(), testutil.NewPod("p", one), reasons.NoPools, "There is no offering to buy from.", "Tag a scaling group"},
		"a broken pool":       {broken, testutil.NewPod("p", one), reasons.NoPools, "There is no offering to buy from.", "Correct the tag"},
		"gated":               {spot(nil), testutil.NewPod("p", one, gated), reasons.Gated, "kueue.x-k8s.io/admission", "queue of the job"},
		"low priority":        {spot(nil), testutil.NewPod("p", one, testutil.OfPriority(-11)), reasons.LowPriority, "priority -11", "PriorityClass"},
		"on a node":           {spot(nil), testutil.NewPod("p", one, testutil.OnNode("n")), reasons.HasNode, "on node n", ""},
		"ended":               {spot(nil), testutil.NewPod("p", one, testutil.InPhase(apiv1.PodSucceeded)), reasons.Ended, "has ended", ""},
		"of a DaemonSet":      {spot(nil), testutil.NewPod("p", one, testutil.OwnedBy("DaemonSet")), reasons.DaemonSetPod, "pods of DaemonSets", ""},
		"of another name":     {spot(nil), testutil.NewPod("q", one), reasons.NotFound, "There is no such pod.", ""},
		"nearest comes first": {newWorld(&offering{id: "a-small", gpus: "0"}, &offering{id: "b-dear", gpus: "1", obstacle: tooDear}), testutil.NewPod("p", one), reasons.PriceCap, "It fits 1 of 2 offerings", "Raise the cap."},
	} {
		t.Run(name, func(t *testing.T) {
			x := tc.world.explain(t, tc.pod)
			assert.Contains(t, codesOf(x), tc.code)
			assert.Contains(t, x.Summary, tc.summary)
			assert.Contains(t, x.Step, tc.step)
			var text strings.Builder
			require.NoError(t, x.WriteText(&text))
			assert.Contains(t, text.String(), x.Summary)
			assert.NotContains(t, text.String(), "max node group size", "a price is no size")
		})
	}
}

// chooser chooses for a job of which nothing runs.
type chooser struct{ choice deadline.Choice }

func (c chooser) Choose(_ *deadline.Offers, job deadline.Job) deadline.Choice {
	if job.Idle {
		return c.choice
	}
	return deadline.Spot
}
func (chooser) Better(*deadline.Offers, deadline.Job) ([]pricing.Offering, bool) { return nil, false }
func (chooser) Spot(*deadline.Offers, *float64) []deadline.Priced                { return nil }
func (chooser) Price(pricing.Offering) (float64, bool)                           { return 0, false }

type noSellers struct{}

func (noSellers) NodeGroups() []cloudprovider.NodeGroup { return nil }
func (noSellers) Sold(string) (pricing.Offering, float64, time.Duration, *apiv1.Node) {
	return pricing.Offering{}, 0, 0, nil
}

func TestAPodIsToldWhatWaitingForSpotToLastIs(t *testing.T) {
	for choice, want := range map[deadline.Choice]*reasons.Reason{
		deadline.Wait:     reasons.New(reasons.WaitsToLast, api.AnnotationValueOfTime, "spot has just come back, and the job has time to wait until it has lasted"),
		deadline.Learning: reasons.New(reasons.Settling, "next loop", "what costs least until the deadline of the pod is not known yet"),
	} {
		x := explainChoice(t, choice)
		assert.Contains(t, codesOf(x), want.Code)
		assert.Contains(t, x.Summary, want.Message)
		assert.Contains(t, x.Step, want.Mend)
	}
}

// explainChoice explains a pod with a deadline for which that is chosen.
func explainChoice(t *testing.T, choice deadline.Choice) *Explanation {
	t.Helper()
	pod := testutil.NewPod("p", testutil.Requesting(api.ResourceGPU, "1"),
		testutil.Annotated(api.AnnotationDeadline, time.Now().Add(48*time.Hour).Format(time.RFC3339)), testutil.Annotated(api.AnnotationWork, "24h"))
	w := newWorld(&offering{id: "spot", gpus: "1"})
	w.deadlines, w.idle = spotfirst.NewDeadlines(noSellers{}, chooser{choice}, clock.RealClock{}), spotfirst.NewIdle(func(*apiv1.Pod) string { return "" }, func(*apiv1.Pod) bool { return false })
	ctx, _, _ := testutil.NewContext(nil, nil)
	_, err := w.idle.After(pods.NewCombinedPodListProcessor(nil)).Process(ctx, []*apiv1.Pod{pod})
	require.NoError(t, err)
	return w.explain(t, pod)
}

func TestWhatAnOldLoopFoundDoesNotCount(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Now())
	w := newWorld(&offering{id: "spot", gpus: "1"})
	w.judgements = NewJudgements(clk)
	pod := testutil.NewPod("p", testutil.Requesting(api.ResourceGPU, "1"))
	w.judgements.set(pod, map[string]*reasons.Reason{
		"":     reasons.New(reasons.ClusterLimit, "Raise it.", "the cluster is full"),
		"spot": reasons.New(reasons.DoesNotFit, "Mend it.", "it has no GPUs"),
	})
	assert.Equal(t, []reasons.Code{reasons.ClusterLimit, reasons.DoesNotFit}, codesOf(w.explain(t, pod)))
	clk.SetTime(clk.Now().Add(judgementAge + time.Second))
	assert.Equal(t, []reasons.Code{reasons.NotJudged}, codesOf(w.explain(t, pod)))
}

func createdNow(pod *apiv1.Pod) *apiv1.Pod {
	pod.CreationTimestamp = metav1.Now()
	return pod
}

func TestTheEventOfAPodSaysTheSameInALine(t *testing.T) {
	dearer := *tooDear
	dearer.Message, dearer.Mend, dearer.Excess = "price cap 0.01 < price 9 CNY per hour", "Raise it further.", 9
	for name, tc := range map[string]struct {
		of   offerings
		gpus string
		want string
	}{
		"the nearest of several caps, and its step": {
			offerings{{id: "a", gpus: "1", obstacle: &dearer}, {id: "b", gpus: "1", obstacle: tooDear}}, "1",
			"pod didn't trigger scale-up: 2 price cap 0.01 < price 4.01 CNY per hour (the nearest of them). Raise the cap.",
		},
		"the step of the one that the pod fits": {
			offerings{{id: "a", gpus: "8", obstacle: &dearer}, {id: "b", gpus: "1", obstacle: tooDear}}, "8",
			"pod didn't trigger scale-up: 2 price cap 0.01 < price 4.01 CNY per hour (the nearest of them). Raise it further.",
		},
		"no step for a pod that fits none": {
			offerings{{id: "b", gpus: "1", obstacle: tooDear}}, "8", "pod didn't trigger scale-up: 1 price cap 0.01 < price 4.01 CNY per hour",
		},
		"a maximum that is none by now": {offerings{{id: "b", gpus: "1"}}, "1", "pod didn't trigger scale-up: 1 no room when the loop looked, but there is by now"},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := record.NewFakeRecorder(1)
			ctx := &cacontext.AutoscalingContext{ClusterSnapshot: testsnapshot.NewTestSnapshotOrDie(t)}
			ctx.Recorder = recorder
			skipped := map[string]status.Reasons{}
			templates := map[string]*framework.NodeInfo{}
			for _, each := range tc.of {
				skipped[each.id] = orchestrator.MaxLimitReachedReason
				templates[each.id], _ = each.TemplateNodeInfo()
			}
			NewEvents(status.NewDefaultScaleUpStatusProcessor(), func(id string) *framework.NodeInfo { return templates[id] }, NewJudgements(clock.RealClock{})).Process(ctx, &status.ScaleUpStatus{
				Result: status.ScaleUpNoOptionsAvailable, ConsideredNodeGroups: tc.of.NodeGroups(),
				PodsRemainUnschedulable: []status.NoScaleUpInfo{{Pod: testutil.NewPod("p", testutil.Requesting(api.ResourceGPU, tc.gpus)), SkippedNodeGroups: skipped}},
			})
			require.Len(t, recorder.Events, 1)
			assert.Equal(t, "Normal NotTriggerScaleUp "+tc.want, <-recorder.Events)
		})
	}
}

func TestPodsThatWaitAreListedByTheirAgeWithWhatTheyWaitFor(t *testing.T) {
	w := newWorld(&offering{id: "spot", gpus: "1"})
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	add := func(name string, age time.Duration, change ...testutil.PodOption) *apiv1.Pod {
		pod := testutil.NewPod(name, change...)
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		require.NoError(t, pods.Add(pod))
		return pod
	}
	add("on-a-node", time.Hour, testutil.OnNode("n"))
	add("unknown", time.Second)
	w.judgements.set(add("dear", 2*time.Minute), map[string]*reasons.Reason{"a": tooDear, "b": reasons.New(reasons.Backoff, "", "in backoff")})
	w.judgements.set(add("nowhere", time.Minute), map[string]*reasons.Reason{})
	w.judgements.bought([]*apiv1.Pod{add("bought", 3*time.Minute)}, []nodegroupset.ScaleUpInfo{{Group: w.of[0], NewSize: 1, MaxSize: 9}})
	w.skipped.Replace(map[types.UID]*reasons.Reason{add("held", 4*time.Minute).UID: reasons.New(reasons.Settling, "", "more may come")})

	found, total, err := New(Config{Pods: corelisters.NewPodLister(pods), Skipped: w.skipped, Judgements: w.judgements, LeastPriority: -10}).Pending()
	require.NoError(t, err)
	assert.Equal(t, 5, total)
	said := ""
	for _, pod := range found {
		said += pod.Name + ": " + pod.Reason + "\n"
	}
	assert.Equal(t, "held: settling\nbought: bought\ndear: backoff\nnowhere: no-pools\nunknown: not-judged\n", said)
	assert.Contains(t, found[2].Message, "1 price cap 0.01 < price 4.01", "as its Event")
}

func TestGPUPodsThatWaitAreCountedByWhatTheyWaitFor(t *testing.T) {
	w := newWorld(&offering{id: "spot", gpus: "1"})
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	add := func(name string, change ...testutil.PodOption) *apiv1.Pod {
		pod := testutil.NewPod(name, change...)
		require.NoError(t, pods.Add(pod))
		return pod
	}
	dear := map[string]*reasons.Reason{"a": tooDear}
	w.judgements.set(add("dear"), dear)
	w.judgements.set(add("dear-too"), dear)
	w.judgements.set(add("of-cpus", testutil.WithoutGPU), dear)
	w.judgements.bought([]*apiv1.Pod{add("bought")}, []nodegroupset.ScaleUpInfo{{Group: w.of[0], NewSize: 1, MaxSize: 9}})
	add("on-a-node", testutil.OnNode("n"))
	registry := prometheus.NewRegistry()
	RegisterMetrics(registry)
	ctx, lose := context.WithCancel(t.Context())
	New(Config{Pods: corelisters.NewPodLister(pods), Skipped: w.skipped, Judgements: w.judgements, LeastPriority: -10}).Publish(ctx)

	require.NoError(t, promtest.GatherAndCompare(registry, strings.NewReader(`
# HELP gpu_spot_pending_pods Pods that request GPUs and are on no node, by the code of the reason for which they wait, as explain names it; bought: an instance was bought, and its node is to come.
# TYPE gpu_spot_pending_pods gauge
gpu_spot_pending_pods{reason="bought"} 1
gpu_spot_pending_pods{reason="price-cap"} 2
`)))
	lose()
	assert.Eventually(t, func() bool { n, err := promtest.GatherAndCount(registry); return err == nil && n == 0 }, time.Minute, time.Millisecond,
		"a process that does not lead tells nothing")
}

func TestOfManyPodsThatWaitOnlyTheOldestAreListed(t *testing.T) {
	w := newWorld()
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for i := range mostPending + 7 {
		require.NoError(t, pods.Add(testutil.NewPod(fmt.Sprint("p", i))))
	}
	found, total, err := New(Config{Pods: corelisters.NewPodLister(pods), Skipped: w.skipped, Judgements: w.judgements, LeastPriority: -10}).Pending()
	require.NoError(t, err)
	assert.Len(t, found, mostPending)
	assert.Equal(t, mostPending+7, total)
}
