package drill

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"gpu-spot-autoscaler/cloudprovider/api"
)

func newObserver() *Observer {
	return &Observer{
		nodes: map[string]*Node{}, pods: map[types.UID]*Pod{}, byJob: map[string][]*Pod{},
		requests: make(chan request, 10), asked: map[string]string{},
	}
}

func node(name string, tainted bool) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "region.i-" + name}}
	if tainted {
		node.Spec.Taints = []corev1.Taint{{Key: api.TaintReclaim, Value: "1", Effect: corev1.TaintEffectNoSchedule}}
	}
	return node
}

// change is what a pod that runs on node a of job j is made of.
type change func(*corev1.Pod)

func running(changes ...change) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p", Labels: map[string]string{LabelJob: "j"}, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: "a"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func warned(pod *corev1.Pod) {
	pod.Annotations[api.AnnotationReclaimDeadline] = "2025-06-01T12:00:00Z"
	pod.Annotations[api.AnnotationCheckpointRequest] = "1-a"
}

func deleting(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

func TestPodIsWarnedOnlyBeforeItIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		seen   []*corev1.Pod
		warned bool
	}{
		"before":                 {[]*corev1.Pod{running(), running(warned), running(warned, deleting)}, true},
		"in the same moment":     {[]*corev1.Pod{running(), running(warned, deleting)}, false},
		"never":                  {[]*corev1.Pod{running(), running(deleting)}, false},
		"of the deadline only":   {[]*corev1.Pod{running(warned, func(p *corev1.Pod) { delete(p.Annotations, api.AnnotationCheckpointRequest) }), running(deleting)}, false},
		"and the warning is off": {[]*corev1.Pod{running(warned), running(), running(deleting)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserver()
			for _, pod := range test.seen {
				o.pod(pod, false)
			}
			pod := o.Pods()[0]
			assert.Equal(t, test.warned, !pod.Warned.IsZero())
			assert.False(t, pod.Deleting.IsZero())
			assert.True(t, pod.Ended.IsZero())
		})
	}
}

func TestPodThatVanishesWasDeleted(t *testing.T) {
	o := newObserver()
	o.pod(running(), false)
	o.pod(running(warned), true)
	pod := o.Pods()[0]
	assert.False(t, pod.Deleting.IsZero())
	assert.True(t, pod.Warned.IsZero())
	assert.False(t, pod.Ended.IsZero())
}

func TestNodeIsEmptyWhenItsLastPodHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver()
		o.node(node("a", false), false)
		o.pod(running(), false)
		other := func(pod *corev1.Pod) { pod.UID = "q" }
		o.pod(running(other), false)
		o.pod(running(func(pod *corev1.Pod) { pod.UID = "service"; pod.Labels = nil }), false)
		assert.Equal(t, 2, o.Nodes()["i-a"].Busy, "those of jobs")
		o.pod(running(func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), false)
		time.Sleep(time.Second)
		last := time.Now()
		o.pod(running(other, deleting), false)
		assert.Equal(t, 1, o.Nodes()["i-a"].Busy)
		assert.Zero(t, o.Nodes()["i-a"].Emptied)
		o.pod(running(other), true)
		time.Sleep(time.Second)
		o.pod(running(), true)
		assert.Equal(t, Node{Name: "a", InstanceID: "i-a", Emptied: last}, o.Nodes()["i-a"])
	})
}

func TestNodeIsMarkedOnceAndMayLoseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver()
		first := time.Now()
		o.node(node("a", true), false)
		time.Sleep(time.Second)
		o.node(node("a", false), false)
		gone := time.Now()
		o.node(node("a", true), true)
		assert.Equal(t, Node{Name: "a", InstanceID: "i-a", Marked: first, Tainted: true, Gone: gone}, o.Nodes()["i-a"])
		o.node(node("b", true), false)
		o.node(node("b", false), false)
		assert.False(t, o.Nodes()["i-b"].Tainted)
	})
}

func TestRunningLeavesOutReclaimingNodesAndPodsOnTheirWayOut(t *testing.T) {
	o := newObserver()
	o.node(node("a", false), false)
	o.pod(running(), false)
	assert.Equal(t, map[string]int{"j": 1}, o.Running())
	o.pod(running(deleting), false)
	assert.Empty(t, o.Running())
	o.pod(running(), false)
	o.node(node("a", true), false)
	assert.Empty(t, o.Running())
}

func TestEachRequestIsAnsweredOnceWhenItsTimeHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newObserver()
		client := fake.NewClientset(running(warned))
		go o.Answer(t.Context(), client, time.Minute)
		o.pod(running(warned), false)
		o.pod(running(warned, func(pod *corev1.Pod) { pod.UID = "q" }), false)
		word := func() string {
			pod, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			require.NoError(t, err)
			return pod.Annotations[api.AnnotationCheckpointAcknowledged]
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		assert.Empty(t, word())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, "1-a", word())
		client.ClearActions()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, client.Actions())
	})
}

func TestWorkersLookAsTheirControllerMakesThem(t *testing.T) {
	owner := &metav1.OwnerReference{UID: "uid", Kind: "Job"}
	indexed := Job{Name: "j", Kind: Indexed, Workers: 8}.worker(owner, 3, "a")
	assert.Equal(t, "3", indexed.Annotations[batchv1.JobCompletionIndexAnnotation])
	assert.Equal(t, "uid", indexed.Labels[batchv1.ControllerUidLabel])
	assert.Equal(t, []string{batchv1.JobTrackingFinalizer}, indexed.Finalizers)
	elastic := Job{Name: "j", Kind: Replicas, Workers: 8, Min: 2}.worker(owner, 3, "a")
	assert.Empty(t, elastic.Finalizers)
	assert.Equal(t, "2", elastic.Annotations[api.AnnotationMinReplicas])
	assert.Equal(t, "j", elastic.Annotations[api.AnnotationJob])
	assert.Equal(t, "j", elastic.Labels[LabelJob])
	assert.Equal(t, "a", elastic.Spec.NodeName)
}
