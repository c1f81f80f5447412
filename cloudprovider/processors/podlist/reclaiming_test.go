package podlist

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	podlist "k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/pricing"
)

func leaving(pod *apiv1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(testutil.Epoch)) }

// podsToMoveOf has a loop look at the pods, of which those on the node "reclaiming" leave.
func podsToMoveOf(t *testing.T, pods ...*apiv1.Pod) []*apiv1.Pod {
	t.Helper()
	nodes := []*apiv1.Node{testutil.NewNode("reclaiming"), testutil.NewNode("healthy")}
	ctx, _, _ := testutil.NewContext(pods, nodes)
	ctx.ClusterSnapshot = testsnapshot.NewTestSnapshotOrDie(t)
	var healthy []*apiv1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName == "healthy" {
			healthy = append(healthy, pod)
		}
	}
	require.NoError(t, ctx.ClusterSnapshot.SetClusterState(nodes, healthy, nil))
	r := NewReclaimingPods(podlist.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "reclaiming" }, &AddedPods{}, clock.RealClock{}, nil)
	added, err := r.Process(ctx, nil)
	require.NoError(t, err)
	return added
}

func TestPodsOfReclaimingNodes(t *testing.T) {
	running := testutil.InPhase(apiv1.PodRunning)
	for name, test := range map[string]struct {
		pod  *apiv1.Pod
		want bool
	}{
		"a worker on a reclaiming node counts as pending": {testutil.NewPod("pod", testutil.OnNode("reclaiming"), running, testutil.OwnedBy("TrainingJob")), true},
		"also one that has not started":                   {testutil.NewPod("pod", testutil.OnNode("reclaiming"), testutil.OwnedBy("Job")), true},
		"one on another node does not":                    {testutil.NewPod("pod", testutil.OnNode("healthy"), running, testutil.OwnedBy("Job")), false},
		"but one that is on its way out does":             {testutil.NewPod("pod", testutil.OnNode("reclaiming"), running, testutil.OwnedBy("Job"), leaving), true},
		"nor one that has ended":                          {testutil.NewPod("pod", testutil.OnNode("reclaiming"), testutil.InPhase(apiv1.PodSucceeded), testutil.OwnedBy("Job")), false},
		"nor one that nobody will make anew":              {testutil.NewPod("pod", testutil.OnNode("reclaiming"), running), false},
		"nor one that belongs to the machine":             {testutil.NewPod("pod", testutil.OnNode("reclaiming"), running, testutil.OwnedBy("DaemonSet")), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := testutil.NewContext([]*apiv1.Pod{test.pod}, []*apiv1.Node{testutil.NewNode("reclaiming"), testutil.NewNode("healthy")})
			r := NewReclaimingPods(podlist.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "reclaiming" }, &AddedPods{}, clock.RealClock{}, nil)
			got, err := r.Process(ctx, testutil.NewPods(1, "pending"))
			require.NoError(t, err)
			want := []string{"pending-0"}
			if test.want {
				want = append(want, "pod")
			}
			assert.Equal(t, want, testutil.Names(got))
			for _, pod := range got {
				assert.Empty(t, pod.Spec.NodeName)
			}
		})
	}
}

func TestPodsOfReclaimingNodesThatHaveTheirSuccessorDoNotCount(t *testing.T) {
	later := func(pod *apiv1.Pod) { pod.CreationTimestamp = metav1.NewTime(testutil.Epoch.Add(time.Minute)) }
	told := func(pod *apiv1.Pod) { // half a minute after all pods were made, with grace until a minute after
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(testutil.Epoch.Add(time.Minute)))
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
	}
	owned := testutil.OwnedBy("ReplicaSet")
	all := []*apiv1.Pod{
		testutil.NewPod("going-1", testutil.OnNode("reclaiming"), owned, told), testutil.NewPod("going-2", testutil.OnNode("reclaiming"), owned, told),
		testutil.NewPod("going-3", testutil.OnNode("reclaiming"), owned, told), testutil.NewPod("stays", testutil.OnNode("healthy"), owned),
		testutil.NewPod("moved", testutil.OnNode("healthy"), owned, later), testutil.NewPod("waits", owned, later),
	}
	ctx, _, _ := testutil.NewContext(all, []*apiv1.Node{testutil.NewNode("reclaiming"), testutil.NewNode("healthy")})
	r := NewReclaimingPods(podlist.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "reclaiming" }, &AddedPods{}, clock.RealClock{}, nil)
	got, err := r.Process(ctx, all[5:])
	require.NoError(t, err)
	assert.Equal(t, []string{"waits", "going-3"}, testutil.Names(got), "one of three has no successor yet")
	assert.Nil(t, got[1].DeletionTimestamp)
	assert.NotNil(t, all[2].DeletionTimestamp, "the lister's own is left alone")
}

// placing is a chain that finds a place for all pods but the named ones.
type placing struct {
	fails []string
	err   error
}

func (p *placing) Process(_ *cacontext.AutoscalingContext, pods []*apiv1.Pod) (left []*apiv1.Pod, err error) {
	for _, pod := range pods {
		if slices.Contains(p.fails, pod.Name) {
			left = append(left, pod)
		}
	}
	return left, p.err
}

func (p *placing) CleanUp() {}

func TestAllPodsOfAReclaimingNodeArePlaced(t *testing.T) {
	owned := testutil.OwnedBy("TrainingJob")
	all := []*apiv1.Pod{
		testutil.NewPod("worker-1", testutil.OnNode("reclaiming-1"), owned), testutil.NewPod("worker-2", testutil.OnNode("reclaiming-1"), owned),
		testutil.NewPod("worker-3", testutil.OnNode("reclaiming-2"), owned), testutil.NewPod("agent", testutil.OnNode("reclaiming-3"), testutil.OwnedBy("DaemonSet")),
	}
	nodes := []*apiv1.Node{testutil.NewNode("reclaiming-1"), testutil.NewNode("reclaiming-2"), testutil.NewNode("reclaiming-3"), testutil.NewNode("healthy")}
	for name, test := range map[string]struct {
		chain  placing
		placed []string
	}{
		"none of them has": {placing{fails: []string{"worker-1", "worker-2", "worker-3"}}, []string{"reclaiming-3"}},
		"one has not":      {placing{fails: []string{"worker-2"}}, []string{"reclaiming-2", "reclaiming-3"}},
		"all have, whatever becomes of other pods": {placing{fails: []string{"pending-0"}}, []string{"reclaiming-1", "reclaiming-2", "reclaiming-3"}},
		"nothing is known after an error":          {placing{err: errors.New("broken")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := testutil.NewContext(all, nodes)
			r := NewReclaimingPods(&test.chain, func(node *apiv1.Node) bool { return strings.HasPrefix(node.Name, "reclaiming") }, &AddedPods{}, clock.RealClock{}, nil)
			for _, node := range nodes {
				assert.False(t, r.AllPlaced(node.Name), "no loop has looked yet")
			}
			_, err := r.Process(ctx, testutil.NewPods(1, "pending"))
			require.Equal(t, test.chain.err, err)
			var placed []string
			for _, node := range nodes {
				if r.AllPlaced(node.Name) {
					placed = append(placed, node.Name)
				}
			}
			assert.Equal(t, test.placed, placed)
		})
	}
}

// placingOn is an inner processor that places each pod on the node of its name's ending, if there is one.
type placingOn struct{ on map[string]string }

func (s placingOn) Process(ctx *cacontext.AutoscalingContext, pods []*apiv1.Pod) (left []*apiv1.Pod, err error) {
	for _, pod := range pods {
		node := s.on[pod.Name]
		if node == "" {
			left = append(left, pod)
		} else if err := ctx.ClusterSnapshot.ForceAddPod(pod, node); err != nil {
			return nil, err
		}
	}
	return left, nil
}

func (placingOn) CleanUp() {}

func TestAReplacementIsReadyWhenAllPodsHaveAPlaceOnReadyNodes(t *testing.T) {
	owned := testutil.OwnedBy("Job")
	expendable := func(pod *apiv1.Pod) { pod.Spec.Priority = ptr.To[int32](-20) }
	pods := []*apiv1.Pod{
		testutil.NewPod("one", testutil.OnNode("reclaiming"), owned), testutil.NewPod("two", testutil.OnNode("reclaiming"), owned),
		testutil.NewPod("filler", testutil.OnNode("reclaiming"), owned, expendable), // for which core buys nothing
	}
	ready := func(name string, status apiv1.ConditionStatus) *apiv1.Node {
		node := testutil.NewNode(name)
		node.Status.Conditions = []apiv1.NodeCondition{{Type: apiv1.NodeReady, Status: status}}
		return node
	}
	upcoming := ready("upcoming", apiv1.ConditionTrue)
	upcoming.Annotations = map[string]string{core.NodeUpcomingAnnotation: "true"}
	for name, test := range map[string]struct {
		on   map[string]string
		want bool
	}{
		"both on a ready node":          {map[string]string{"one": "ready", "two": "ready"}, true},
		"one on a node that is coming":  {map[string]string{"one": "ready", "two": "upcoming"}, false},
		"one on a node that starts":     {map[string]string{"one": "ready", "two": "unready"}, false},
		"one without a place":           {map[string]string{"one": "ready"}, false},
		"both on a node that is coming": {map[string]string{"one": "upcoming", "two": "upcoming"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := testutil.NewContext(pods, []*apiv1.Node{testutil.NewNode("reclaiming")})
			ctx.ExpendablePodsPriorityCutoff = -10
			ctx.ClusterSnapshot = testsnapshot.NewTestSnapshotOrDie(t)
			for _, node := range []*apiv1.Node{ready("ready", apiv1.ConditionTrue), ready("unready", apiv1.ConditionFalse), upcoming} {
				require.NoError(t, ctx.ClusterSnapshot.AddNodeInfo(framework.NewTestNodeInfo(node.DeepCopy())))
			}
			r := NewReclaimingPods(placingOn{test.on}, func(node *apiv1.Node) bool { return node.Name == "reclaiming" }, &AddedPods{}, clock.RealClock{}, nil)
			assert.False(t, r.AllReady("reclaiming"), "no loop has looked yet")
			_, err := r.Process(ctx, nil)
			require.NoError(t, err)
			assert.Equal(t, test.want, r.AllReady("reclaiming"))
			assert.False(t, r.AllReady("ready"), "it is not reclaiming")
		})
	}
}

func TestAllPlacedFollowsTheLoops(t *testing.T) {
	chain, reclaiming := &placing{}, false
	ctx, _, _ := testutil.NewContext([]*apiv1.Pod{testutil.NewPod("worker", testutil.OnNode("node"), testutil.OwnedBy("Job"))}, []*apiv1.Node{testutil.NewNode("node")})
	r := NewReclaimingPods(chain, func(*apiv1.Node) bool { return reclaiming }, &AddedPods{}, clock.RealClock{}, nil)
	look := func() bool {
		_, err := r.Process(ctx, nil)
		require.NoError(t, err)
		return r.AllPlaced("node")
	}
	assert.False(t, look(), "it is not reclaiming")
	reclaiming, chain.fails = true, []string{"worker"}
	assert.False(t, look(), "nothing was bought yet")
	chain.fails = nil
	assert.True(t, look(), "it is on its way")
	chain.fails = []string{"worker"}
	assert.False(t, look(), "it did not come")
}

func TestAllPlacedMayBeCalledWhileALoopRuns(t *testing.T) {
	ctx, _, _ := testutil.NewContext([]*apiv1.Pod{testutil.NewPod("worker", testutil.OnNode("node"), testutil.OwnedBy("Job"))}, []*apiv1.Node{testutil.NewNode("node")})
	r := NewReclaimingPods(&placing{}, func(*apiv1.Node) bool { return true }, &AddedPods{}, clock.RealClock{}, nil)
	var drains sync.WaitGroup
	drains.Go(func() {
		for range 100 {
			r.AllPlaced("node")
		}
	})
	for range 100 {
		_, err := r.Process(ctx, nil)
		require.NoError(t, err)
	}
	drains.Wait()
	assert.True(t, r.AllPlaced("node"))
}

// destinations are spot offerings by node.
type destinations map[string][]pricing.Offering

func (d destinations) MovesTo(node string) ([]pricing.Offering, bool) {
	offerings, moves := d[node]
	return offerings, moves
}

func TestPodsOfANodeThatMovesTakeSpotOfThePlanOnlyUntilAnotherNoticeTakesItsPlace(t *testing.T) {
	node := &apiv1.Node{}
	node.Name = "on-demand"
	planned := []pricing.Offering{{InstanceType: "a10", Zone: "a", Spot: true}}
	r := NewReclaimingPods(nil, nil, nil, clock.RealClock{}, destinations{"on-demand": planned})
	source := func(source string) { node.Annotations = map[string]string{api.AnnotationReclaimSource: source} }

	offerings, moves := r.movesTo(node)
	assert.True(t, moves, "before its marks are seen")
	assert.Equal(t, planned, offerings)
	source("fault")
	_, moves = r.movesTo(node)
	assert.False(t, moves, "its pods may get on-demand instances")
	source(api.ReclaimSourceMove)
	r.moves = nil
	offerings, moves = r.movesTo(node)
	assert.True(t, moves, "a former leader began with it")
	assert.Empty(t, offerings)

	pod := testutil.NewPod("p")
	copies := onSpotOnly([]*apiv1.Pod{pod}, map[types.UID]string{pod.UID: "on-demand"}, destinations{"on-demand": planned})
	assert.Equal(t, api.OnDemandNever, copies[0].Annotations[api.AnnotationOnDemandAfter])
	assert.NotNil(t, copies[0].Spec.Affinity)
}
