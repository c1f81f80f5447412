package intervals

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/patch/patchtest"
)

func TestInterval(t *testing.T) {
	for name, test := range map[string]struct{ checkpoint, life, want time.Duration }{
		"as in Daly's formula":             {5 * time.Minute, 24 * time.Hour, 116*time.Minute + 40*time.Second},
		"shorter, if instances live less":  {5 * time.Minute, 6 * time.Hour, 56*time.Minute + 40*time.Second},
		"shorter, if a checkpoint is fast": {10 * time.Second, 6 * time.Hour, 10*time.Minute + 50*time.Second},
		"no less than a minute":            {time.Second, 10 * time.Minute, time.Minute},
		"the life, if it is too short":     {time.Hour, 20 * time.Minute, 20 * time.Minute},
		"none, if no instance is lost":     {time.Minute, 0, 0},
	} {
		assert.Equal(t, test.want, Interval(test.checkpoint, test.life), name)
	}
}

// world is a cluster in which instances are kept for a day, but those of the Node "own" for ever.
type world struct {
	*testing.T
	client   *fake.Clientset
	recorder *record.FakeRecorder
	life     time.Duration
	adviser  *Adviser
	pods     cache.Indexer
	nodes    cache.Indexer
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, client: fake.NewClientset(), recorder: record.NewFakeRecorder(10), life: 24 * time.Hour}
	index := func() cache.Indexer { return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}) }
	w.pods, w.nodes = index(), index()
	w.adviser = New(Config{
		Member: func(pod *corev1.Pod) jobs.Membership {
			return jobs.Membership{Ref: jobs.NewRef("fake", pod.Namespace, pod.Labels["job"])}
		},
		Life: func(node *corev1.Node) time.Duration {
			if node.Name == "own" {
				return 0
			}
			return w.life
		},
		Client: w.client, Pods: corelisters.NewPodLister(w.pods), Nodes: corelisters.NewNodeLister(w.nodes), Recorder: w.recorder, Clock: clock.RealClock{},
	})
	return w
}

func (w *world) node(name string) {
	w.Helper()
	_, err := w.client.CoreV1().Nodes().Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(w, err)
}

func (w *world) pod(name, node, checkpoint string, change ...func(*corev1.Pod)) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: name, UID: types.UID(name), Labels: map[string]string{"job": "train"},
			Annotations: map[string]string{api.AnnotationCheckpointTime: checkpoint},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0." + name}}, Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(pod)
	}
	_, err := w.client.CoreV1().Pods("ml").Create(w.Context(), pod, metav1.CreateOptions{})
	require.NoError(w, err)
}

// advise has the informers see what is stored, and returns what was written.
func (w *world) advise() (writes []string) {
	w.Helper()
	pods, err := w.client.CoreV1().Pods("").List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	nodes, err := w.client.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	for i := range pods.Items {
		require.NoError(w, w.pods.Add(&pods.Items[i]))
	}
	for i := range nodes.Items {
		require.NoError(w, w.nodes.Add(&nodes.Items[i]))
	}
	w.client.ClearActions()
	require.NoError(w, w.adviser.advise(w.Context()))
	for _, action := range w.client.Actions() {
		writes = append(writes, action.GetVerb()+" "+action.GetResource().Resource)
	}
	return writes
}

func (w *world) interval(pod string) string {
	w.Helper()
	found, err := w.client.CoreV1().Pods("ml").Get(w.Context(), pod, metav1.GetOptions{})
	require.NoError(w, err)
	return found.Annotations[api.AnnotationCheckpointInterval]
}

func (w *world) onNode(name string) string {
	w.Helper()
	found, err := w.client.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
	require.NoError(w, err)
	return found.Annotations[api.AnnotationCheckpointIntervals]
}

func TestPodsAreAdvisedByTheLivesOfAllNodesOfTheirJob(t *testing.T) {
	w := newWorld(t)
	for i := range 4 {
		w.node(fmt.Sprint("node-", i))
		w.pod(fmt.Sprint(i), fmt.Sprint("node-", i), "5m")
	}
	assert.Len(t, w.advise(), 8)
	assert.Equal(t, Interval(5*time.Minute, 6*time.Hour).String(), w.interval("0"), "one of four is lost four times as often")
	assert.Equal(t, "10.0.0.0=56m40s", w.onNode("node-0"))
	assert.Empty(t, w.advise(), "nothing has changed")

	w.life = 22 * time.Hour
	assert.Empty(t, w.advise(), "nor does it change for a little")
	w.life = 10 * time.Hour
	assert.Len(t, w.advise(), 8)
	assert.Equal(t, Interval(5*time.Minute, 150*time.Minute).String(), w.interval("0"))
}

func TestWhoIsNotAdvised(t *testing.T) {
	w := newWorld(t)
	w.node("node")
	w.node("own")
	w.pod("1", "own", "5m", func(pod *corev1.Pod) { pod.Labels["job"] = "on-demand" })
	w.pod("2", "", "5m")
	w.pod("3", "node", "soon", func(pod *corev1.Pod) { pod.Labels["job"] = "odd" })
	w.pod("4", "node", "5m", func(pod *corev1.Pod) { delete(pod.Annotations, api.AnnotationCheckpointTime) })
	w.pod("5", "node", "5m", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })
	assert.Empty(t, w.advise())
	assert.Empty(t, w.advise())
	require.Len(t, w.recorder.Events, 1, "told once")
	assert.Contains(t, <-w.recorder.Events, `annotation gpu-spot.autoscaling/checkpoint-time="soon" is ignored`)
}

func TestAdviceIsTakenBackOnceNoInstanceIsLost(t *testing.T) {
	w := newWorld(t)
	w.node("node")
	w.pod("1", "node", "5m", func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })
	w.pod("2", "node", "2m", func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })
	w.advise()
	assert.Equal(t, "host="+w.interval("2"), w.onNode("node"), "pods with the address of their node have the shortest")
	w.life = 0
	w.advise()
	assert.Empty(t, w.interval("1"))
	assert.Empty(t, w.onNode("node"))
}

func TestTheNodeHasIntervalsByTheAddressesThatTheNodeAgentSees(t *testing.T) {
	w := newWorld(t)
	w.node("node")
	w.pod("1", "node", "5m", func(pod *corev1.Pod) {
		pod.Status.PodIPs = []corev1.PodIP{{IP: "::ffff:10.1.0.7"}, {IP: "FD00:0:0::5"}}
	})
	w.advise()
	interval := w.interval("1")
	assert.Equal(t, "10.1.0.7="+interval+",fd00::5="+interval, w.onNode("node"))
}

func TestAnIntervalThatTheAPIServerRefusesIsToldUnlessAnotherHasTheName(t *testing.T) {
	tooLong := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "1", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 1)})
	for name, test := range map[string]struct{ answer, want error }{
		"a value is refused":   {tooLong, tooLong},
		"another has its name": {patchtest.AnotherUID("Pod", "1"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.node("node")
			w.pod("1", "node", "5m")
			w.advise()
			w.life = time.Hour
			w.client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			require.ErrorIs(t, w.adviser.advise(t.Context()), test.want)
		})
	}
}
