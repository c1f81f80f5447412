package processors

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
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	podlist "k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/clustersnapshot/testsnapshot"
	"k8s.io/utils/ptr"
)

func ownedBy(kind string) podOption {
	return func(pod *apiv1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: "owner", Controller: ptr.To(true)}}
	}
}

func inPhase(phase apiv1.PodPhase) podOption {
	return func(pod *apiv1.Pod) { pod.Status.Phase = phase }
}

func leaving(pod *apiv1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(epoch)) }

// evacuationOf has a loop look at the pods, of which those on the node "doomed" leave.
func evacuationOf(t *testing.T, pods ...*apiv1.Pod) []*apiv1.Pod {
	t.Helper()
	nodes := []*apiv1.Node{newNode("doomed"), newNode("sound")}
	ctx, _, _ := newContext(pods, nodes)
	ctx.ClusterSnapshot = testsnapshot.NewTestSnapshotOrDie(t)
	var sound []*apiv1.Pod
	for _, pod := range pods {
		if pod.Spec.NodeName == "sound" {
			sound = append(sound, pod)
		}
	}
	require.NoError(t, ctx.ClusterSnapshot.SetClusterState(nodes, sound, nil))
	e := NewEvacuees(podlist.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "doomed" })
	evacuees, err := e.Process(ctx, nil)
	require.NoError(t, err)
	return evacuees
}

func TestEvacuees(t *testing.T) {
	running := inPhase(apiv1.PodRunning)
	for name, test := range map[string]struct {
		pod  *apiv1.Pod
		want bool
	}{
		"a worker on a doomed node counts as pending": {newPod("pod", onNode("doomed"), running, ownedBy("TrainingJob")), true},
		"also one that has not started":               {newPod("pod", onNode("doomed"), ownedBy("Job")), true},
		"one on another node does not":                {newPod("pod", onNode("sound"), running, ownedBy("Job")), false},
		"but one that is on its way out does":         {newPod("pod", onNode("doomed"), running, ownedBy("Job"), leaving), true},
		"nor one that has ended":                      {newPod("pod", onNode("doomed"), inPhase(apiv1.PodSucceeded), ownedBy("Job")), false},
		"nor one that nobody will make anew":          {newPod("pod", onNode("doomed"), running), false},
		"nor one that belongs to the machine":         {newPod("pod", onNode("doomed"), running, ownedBy("DaemonSet")), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := newContext([]*apiv1.Pod{test.pod}, []*apiv1.Node{newNode("doomed"), newNode("sound")})
			e := NewEvacuees(podlist.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "doomed" })
			got, err := e.Process(ctx, newPods(1, "pending"))
			require.NoError(t, err)
			want := []string{"pending-0"}
			if test.want {
				want = append(want, "pod")
			}
			assert.Equal(t, want, names(got))
			for _, pod := range got {
				assert.Empty(t, pod.Spec.NodeName)
			}
		})
	}
}

func TestEvacueesThatHaveTheirSuccessorDoNotCount(t *testing.T) {
	later := func(pod *apiv1.Pod) { pod.CreationTimestamp = metav1.NewTime(epoch.Add(time.Minute)) }
	told := func(pod *apiv1.Pod) { // half a minute after all pods were made, with grace until a minute after
		pod.DeletionTimestamp = ptr.To(metav1.NewTime(epoch.Add(time.Minute)))
		pod.DeletionGracePeriodSeconds = ptr.To[int64](30)
	}
	owned := ownedBy("ReplicaSet")
	all := []*apiv1.Pod{
		newPod("going-1", onNode("doomed"), owned, told), newPod("going-2", onNode("doomed"), owned, told),
		newPod("going-3", onNode("doomed"), owned, told), newPod("stays", onNode("sound"), owned),
		newPod("moved", onNode("sound"), owned, later), newPod("waits", owned, later),
	}
	ctx, _, _ := newContext(all, []*apiv1.Node{newNode("doomed"), newNode("sound")})
	e := NewEvacuees(podlist.NewDefaultPodListProcessor(), func(node *apiv1.Node) bool { return node.Name == "doomed" })
	got, err := e.Process(ctx, all[5:])
	require.NoError(t, err)
	assert.Equal(t, []string{"waits", "going-3"}, names(got), "one of three has no successor yet")
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

func TestADoomedNodeIsSettledOnceAllItsPodsHaveAPlace(t *testing.T) {
	owned := ownedBy("TrainingJob")
	all := []*apiv1.Pod{
		newPod("worker-1", onNode("doomed-1"), owned), newPod("worker-2", onNode("doomed-1"), owned),
		newPod("worker-3", onNode("doomed-2"), owned), newPod("agent", onNode("doomed-3"), ownedBy("DaemonSet")),
	}
	nodes := []*apiv1.Node{newNode("doomed-1"), newNode("doomed-2"), newNode("doomed-3"), newNode("sound")}
	for name, test := range map[string]struct {
		chain   placing
		settled []string
	}{
		"none of them has": {placing{fails: []string{"worker-1", "worker-2", "worker-3"}}, []string{"doomed-3"}},
		"one has not":      {placing{fails: []string{"worker-2"}}, []string{"doomed-2", "doomed-3"}},
		"all have, whatever becomes of other pods": {placing{fails: []string{"pending-0"}}, []string{"doomed-1", "doomed-2", "doomed-3"}},
		"nothing is known after an error":          {placing{err: errors.New("broken")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, _, _ := newContext(all, nodes)
			e := NewEvacuees(&test.chain, func(node *apiv1.Node) bool { return strings.HasPrefix(node.Name, "doomed") })
			for _, node := range nodes {
				assert.False(t, e.Settled(node.Name), "no loop has looked yet")
			}
			_, err := e.Process(ctx, newPods(1, "pending"))
			require.Equal(t, test.chain.err, err)
			var settled []string
			for _, node := range nodes {
				if e.Settled(node.Name) {
					settled = append(settled, node.Name)
				}
			}
			assert.Equal(t, test.settled, settled)
		})
	}
}

func TestSettledFollowsTheLoops(t *testing.T) {
	chain, doomed := &placing{}, false
	ctx, _, _ := newContext([]*apiv1.Pod{newPod("worker", onNode("node"), ownedBy("Job"))}, []*apiv1.Node{newNode("node")})
	e := NewEvacuees(chain, func(*apiv1.Node) bool { return doomed })
	look := func() bool {
		_, err := e.Process(ctx, nil)
		require.NoError(t, err)
		return e.Settled("node")
	}
	assert.False(t, look(), "it is not doomed")
	doomed, chain.fails = true, []string{"worker"}
	assert.False(t, look(), "nothing was bought yet")
	chain.fails = nil
	assert.True(t, look(), "it is on its way")
	chain.fails = []string{"worker"}
	assert.False(t, look(), "it did not come")
}

func TestSettledMayBeAskedWhileALoopRuns(t *testing.T) {
	ctx, _, _ := newContext([]*apiv1.Pod{newPod("worker", onNode("node"), ownedBy("Job"))}, []*apiv1.Node{newNode("node")})
	e := NewEvacuees(&placing{}, func(*apiv1.Node) bool { return true })
	var drains sync.WaitGroup
	drains.Go(func() {
		for range 100 {
			e.Settled("node")
		}
	})
	for range 100 {
		_, err := e.Process(ctx, nil)
		require.NoError(t, err)
	}
	drains.Wait()
	assert.True(t, e.Settled("node"))
}
