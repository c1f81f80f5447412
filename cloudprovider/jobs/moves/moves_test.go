package moves

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/pricing"
)

// fixture is a cluster, whose Nodes are of pools, and a market in which a move pays unless it says otherwise.
type fixture struct {
	*testing.T
	*Moves
	client *fake.Clientset
	events *record.FakeRecorder
	wakes  int

	mu     sync.Mutex
	moved  [][]string
	paysNo bool
	zone   string
	// minSize is that of the pool, and job what the job's object says, nil if there is none.
	minSize int
	job     *jobs.Job
}

func inBubble(t *testing.T, test func(f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, client: fake.NewClientset(), events: record.NewFakeRecorder(100), job: &jobs.Job{Min: 1}}
		factory := informers.NewSharedInformerFactory(f.client, 24*time.Hour)
		pods, err := podindex.New(factory.Core().V1().Pods().Informer(), f)
		require.NoError(t, err)
		f.Moves = New(Config{
			Jobs: f, Pools: f, Market: f, Pods: pods, Nodes: factory.Core().V1().Nodes().Lister(), Recorder: f.events,
			Clock: clock.RealClock{}, Wake: func() { f.wakes++ },
			Move: func(_ context.Context, nodes []*corev1.Node) {
				var names []string
				for _, node := range nodes {
					names = append(names, node.Name)
				}
				f.moved = append(f.moved, slices.Sorted(slices.Values(names)))
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		ended := make(chan struct{})
		go func() { f.Moves.Run(ctx); close(ended) }()
		defer func() { cancel(); factory.Shutdown(); <-ended }()
		test(f)
	})
}

func (f *fixture) Member(pod *corev1.Pod) jobs.Membership {
	return jobs.Membership{Ref: jobs.Ref{System: "fake", NamespacedName: types.NamespacedName{Namespace: "default", Name: pod.Labels["job"]}}}
}

func (f *fixture) UnitOf(*corev1.Pod) string { return "" }

func (f *fixture) FirstRead() <-chan struct{} {
	read := make(chan struct{})
	close(read)
	return read
}

func (f *fixture) PoolOf(node *corev1.Node) (ess.PoolStatus, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return ess.PoolStatus{ID: "asg", MoveToSpot: node.Labels["moves"] == "true", Size: 10, MinSize: f.minSize}, true
}

func (f *fixture) Get(_ context.Context, ref jobs.Ref) (jobs.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.job == nil {
		return jobs.Job{}, jobs.ErrNoObject
	}
	job := *f.job
	job.Ref = ref
	return job, nil
}

func (f *fixture) MayGiveBack(node *corev1.Node) bool { return node.Labels["protected"] == "" }

func (f *fixture) Wanted(pod *corev1.Pod) (wanted, said bool) {
	value, said := pod.Annotations[api.AnnotationMoveToSpot]
	return value == "true", said
}

func (f *fixture) Plan(job spotfirst.Job) (spotfirst.Plan, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.zone = job.Zone
	n := float64(len(job.Pods))
	plan := spotfirst.Plan{Spot: n, OnDemand: 3 * n}
	for range job.Pods {
		plan.Offerings = append(plan.Offerings, []pricing.Offering{{InstanceType: "a10", Zone: "b", Spot: true}})
	}
	return plan, !f.paysNo
}

// set changes what the fixture answers.
func (f *fixture) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fixture) plannedZone() (zone string) {
	f.set(func() { zone = f.zone })
	return zone
}

func (f *fixture) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) addNode(name string, change ...func(*corev1.Node)) {
	f.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{api.LabelPurchaseOption: api.PurchaseOnDemand}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}
	for _, f := range change {
		f(node)
	}
	_, err := f.client.CoreV1().Nodes().Create(f.Context(), node, metav1.CreateOptions{})
	require.NoError(f, err)
}

func (f *fixture) addPod(name, job, node string, change ...func(*corev1.Pod)) {
	f.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"job": job},
			Annotations: map[string]string{api.AnnotationMoveToSpot: "true", api.AnnotationAwaitCheckpoint: "true"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "train", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, f := range change {
		f(pod)
	}
	_, err := f.client.CoreV1().Pods("default").Create(f.Context(), pod, metav1.CreateOptions{})
	require.NoError(f, err)
}

func (f *fixture) place(gang podlist.StandInGang, ready int) {
	f.Fits(gang.Ref, podlist.Placement{Ready: gang.Pods[:ready], Coming: gang.Pods[ready:]})
	synctest.Wait()
}

func TestStandInsSayHowMuchOfTheWorkWillBeSaved(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{api.AnnotationWork: "24h"}}}
	c := candidate{pods: []*corev1.Pod{pod, {}}, plan: spotfirst.Plan{Saved: 10 * time.Hour, Offerings: [][]pricing.Offering{{{InstanceType: "a10"}}, {{InstanceType: "a10"}}}}}
	standIns := c.standIns()
	assert.Equal(t, map[string]string{api.AnnotationWork: "24h", api.AnnotationWorkSaved: "10h0m0s"}, standIns[0].Annotations)
	assert.NotContains(t, standIns[1].Annotations, api.AnnotationWorkSaved, "which states no work")
	assert.NotContains(t, pod.Annotations, api.AnnotationWorkSaved)
}

func TestAJobMovesWithAllItsNodesOnceSpotIsReadyForAllOfItsPods(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.addNode("a")
		f.addNode("b")
		f.addNode("spot", func(node *corev1.Node) { node.Labels = nil })
		f.addPod("train-0", "train", "a")
		f.addPod("train-1", "train", "b")
		f.addPod("train-2", "train", "spot")
		f.pass(lookEvery)
		gangs := f.Returning()
		require.Len(t, gangs, 1)
		gang := gangs[0]
		assert.True(t, IsRef(gang.Ref))
		assert.Equal(t, podlist.ExtraSpot, gang.Extra, "spot is bought, after what others need")
		assert.Equal(t, 2, gang.Min)
		require.Len(t, gang.Pods, 2)
		for _, pod := range gang.Pods {
			assert.Empty(t, pod.Spec.NodeName)
			terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			assert.Equal(t, []string{"a10"}, terms[0].MatchExpressions[0].Values, "those with which it pays")
		}
		assert.Equal(t, 1, f.wakes)
		f.pass(lookEvery)
		assert.Same(t, gang.Pods[0], f.Returning()[0].Pods[0], "they are the same from loop to loop")
		f.place(gang, 1)
		assert.Empty(t, f.moved)
		f.place(gang, 2)
		assert.Equal(t, [][]string{{"a", "b"}}, f.moved)
		offerings, moves := f.MovesTo("a")
		assert.True(t, moves)
		assert.Equal(t, []pricing.Offering{{InstanceType: "a10", Zone: "b", Spot: true}}, offerings)
		assert.Empty(t, f.Returning())
		assert.Contains(t, <-f.events.Events, ReasonMoves)
		assert.Equal(t, "", f.plannedZone(), "the pod on spot says nothing of its zone")
		f.pass(pause - lookEvery)
		assert.Empty(t, f.Returning(), "however it ended, it is left alone for a while")
		f.pass(2 * lookEvery)
		require.Len(t, f.Returning(), 1)
		f.pass(searchTime + 2*pause - 5*lookEvery)
		assert.Empty(t, f.Returning(), "for longer each time")
		f.pass(10 * lookEvery)
		assert.Len(t, f.Returning(), 1)
	})
}

func TestAJobStaysOnDemand(t *testing.T) {
	annotated := func(key, value string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Annotations[key] = value }
	}
	for name, setUp := range map[string]func(f *fixture){
		"that does not want to move": func(f *fixture) { f.addPod("p", "train", "a", annotated(api.AnnotationMoveToSpot, "false")) },
		"that will not say when its work is saved": func(f *fixture) {
			f.addPod("p", "train", "a", annotated(api.AnnotationAwaitCheckpoint, "false"))
		},
		"of which a pod waits": func(f *fixture) {
			f.addPod("p", "train", "a")
			f.addPod("q", "train", "", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending })
		},
		"that is not alone on its node": func(f *fixture) {
			f.addPod("p", "train", "a")
			f.addPod("q", "other", "a")
		},
		"whose pool would fall below its minimum": func(f *fixture) { f.set(func() { f.minSize = 10 }); f.addPod("p", "train", "a") },
		"on a node that is not to be scaled down": func(f *fixture) {
			f.addNode("b", func(node *corev1.Node) {
				node.Annotations = map[string]string{"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
			})
			f.addPod("p", "train", "b")
		},
		"whose pods are not to be evicted, whatever the pool says": func(f *fixture) {
			f.addNode("b", func(node *corev1.Node) { node.Labels["moves"] = "true" })
			f.addPod("p", "train", "b", annotated("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), func(pod *corev1.Pod) {
				delete(pod.Annotations, api.AnnotationMoveToSpot)
			})
		},
		"whose pods nobody is known to create again": func(f *fixture) { f.set(func() { f.job = nil }); f.addPod("p", "train", "a") },
		"that is suspended":                          func(f *fixture) { f.set(func() { f.job.Suspended = true }); f.addPod("p", "train", "a") },
		"in a queue of Kueue, which would let in another": func(f *fixture) {
			object := &unstructured.Unstructured{}
			object.SetLabels(map[string]string{api.LabelKueueQueue: "team"})
			f.set(func() { f.job.Object = object })
			f.addPod("p", "train", "a")
		},
		"that loses a node": func(f *fixture) {
			f.addNode("spot", func(node *corev1.Node) { node.Labels = map[string]string{api.LabelReclaiming: "true"} })
			f.addPod("p", "train", "a")
			f.addPod("q", "train", "spot")
		},
		"on a node that somebody has cordoned": func(f *fixture) {
			f.addNode("b", func(node *corev1.Node) { node.Spec.Unschedulable = true })
			f.addPod("p", "train", "b")
		},
		"on a node that has to stay": func(f *fixture) {
			f.addNode("b", func(node *corev1.Node) { node.Labels["protected"] = "true" })
			f.addPod("p", "train", "b")
		},
		"whose move came to nothing under another leader": func(f *fixture) {
			f.addNode("b", func(node *corev1.Node) {
				node.Annotations = map[string]string{api.AnnotationReclaimCancelled: time.Now().Format(time.RFC3339)}
			})
			f.addPod("p", "train", "b")
		},
		"that might come to another on-demand node": func(f *fixture) {
			f.addNode("b")
			f.addPod("p", "train", "b") // and node a is empty
		},
		"where that does not pay": func(f *fixture) { f.set(func() { f.paysNo = true }); f.addPod("p", "train", "a") },
		"with too many pods": func(f *fixture) {
			for i := range mostPods + 1 {
				f.addPod("p"+string(rune('A'+i)), "train", "a")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(f *fixture) {
				f.addNode("a")
				setUp(f)
				f.pass(lookEvery)
				assert.Empty(t, f.Returning())
			})
		})
	}
}

func TestThePoolSaysForItsJobsThatTheyMove(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.addNode("a", func(node *corev1.Node) { node.Labels["moves"] = "true" })
		f.addPod("p", "train", "a", func(pod *corev1.Pod) { delete(pod.Annotations, api.AnnotationMoveToSpot) })
		f.pass(lookEvery)
		assert.Len(t, f.Returning(), 1)
	})
}

func TestPodsThatMoveStayInTheZoneOfTheOthers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.addNode("a")
		f.addNode("spot", func(node *corev1.Node) { node.Labels = map[string]string{corev1.LabelTopologyZone: "b"} })
		f.addPod("train-0", "train", "a")
		f.addPod("train-1", "train", "spot")
		f.pass(lookEvery)
		assert.Equal(t, "b", f.plannedZone())
	})
}

func TestASearchForSpotEnds(t *testing.T) {
	inBubble(t, func(f *fixture) {
		f.addNode("a")
		f.addPod("p", "train", "a")
		f.pass(lookEvery)
		require.Len(t, f.Returning(), 1)
		f.pass(searchTime)
		assert.Empty(t, f.Returning(), "nothing came of it")
		f.pass(pause)
		require.Len(t, f.Returning(), 1)
		f.set(func() { f.paysNo = true })
		f.pass(patience / 2)
		require.Len(t, f.Returning(), 1, "that may be for a moment only")
		f.pass(patience)
		assert.Empty(t, f.Returning(), "it does not pay any more")
		f.Fits(refPrefix+"fake/default/train", podlist.Placement{})
		assert.Empty(t, f.moved)
	})
}

func TestFewSearchesAreMadeAtOnceThoseThatSaveMostFirst(t *testing.T) {
	inBubble(t, func(f *fixture) {
		for i := range mostTries + 2 {
			name := string(rune('a' + i))
			f.addNode(name)
			f.addPod(name, name, name)
		}
		f.addNode("z")
		f.addPod("z-0", "z", "z")
		f.addPod("z-1", "z", "z")
		f.pass(lookEvery)
		gangs := f.Returning()
		require.Len(t, gangs, mostTries)
		assert.True(t, slices.ContainsFunc(gangs, func(gang podlist.StandInGang) bool { return len(gang.Pods) == 2 }))
	})
}
