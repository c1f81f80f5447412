package standin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

const elastic = `
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: job}
spec:
  restartPolicy: OnFailure
  backoffLimit: 1
  etReplicaSpecs:
    launcher: {template: {spec: {containers: [{name: et}]}}}
    worker:
      replicas: 3
      restartPolicy: Always
      template: {metadata: {annotations: {a: b}}, spec: {containers: [{name: et}]}}
`

// runningJob is the job above with its launcher and workers 0 to 2.
func runningJob(t *testing.T) *fixture {
	t.Helper()
	w := newFixture(t, etKinds)
	w.submit(TrainingJobs, elastic)
	w.round(1)
	require.Equal(t, []string{"job-worker-0", "job-worker-1", "job-worker-2"}, w.names(), "the workers come first")
	w.round(2)
	require.Equal(t, []string{"job-launcher", "job-worker-0", "job-worker-1", "job-worker-2"}, w.names())
	require.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	return w
}

func (w *fixture) hostfile() string { return w.all()["job-launcher"].Annotations[AnnotationHostfile] }

func TestETLauncherWaitsForAllWorkers(t *testing.T) {
	w := newFixture(t, etKinds)
	w.submit(TrainingJobs, elastic)
	w.hold = true
	w.round(3)
	assert.Equal(t, []string{"job-worker-0", "job-worker-1", "job-worker-2"}, w.names())
	assert.Equal(t, phaseCreated, w.at(TrainingJobs, "job", "status.phase"))
}

func TestETPodsAreLabelledAndOwned(t *testing.T) {
	pod := runningJob(t).all()["job-worker-1"]
	assert.Equal(t, map[string]string{"group-name": "kai.alibabacloud.com", "training-job-name": "job", "training-job-role": "worker", "replica-index": "1"}, pod.Labels)
	assert.Equal(t, "b", pod.Annotations["a"])
	assert.Equal(t, corev1.RestartPolicyNever, pod.Spec.RestartPolicy)
	owner := metav1.GetControllerOf(pod)
	require.NotNil(t, owner)
	assert.Equal(t, "TrainingJob", owner.Kind)
	assert.Equal(t, "job", owner.Name)
}

func TestETLostWorkersComeAgainUnderNewIndexes(t *testing.T) {
	w := runningJob(t)
	w.lose("job-worker-0")
	w.end("job-worker-1", corev1.PodFailed, 1)
	w.round(2)
	assert.Subset(t, w.names(), []string{"job-launcher", "job-worker-2", "job-worker-3", "job-worker-4"})
	assert.NotContains(t, w.names(), "job-worker-0")
	assert.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.Equal(t, "job-worker-3 job-worker-4 job-worker-2", w.hostfile())
}

func TestETWorkersThatNeverRestartDoNot(t *testing.T) {
	w := newFixture(t, etKinds)
	w.submit(TrainingJobs, elastic)
	w.patch(TrainingJobs, "job", `{"spec":{"etReplicaSpecs":{"worker":{"restartPolicy":"Never"}}}}`)
	w.round(3)
	w.lose("job-worker-0")
	w.round(3)
	assert.Equal(t, []string{"job-launcher", "job-worker-1", "job-worker-2"}, w.names())
}

func TestETLaunchersEndIsTheJobs(t *testing.T) {
	w := runningJob(t)
	w.end("job-launcher", corev1.PodSucceeded, 0)
	w.round(2)
	assert.Equal(t, phaseSucceeded, w.at(TrainingJobs, "job", "status.phase"))
	assert.Equal(t, []string{"job-launcher"}, w.names())
}

func TestETLauncherLostSpendsTheBackoffLimit(t *testing.T) {
	w := runningJob(t)
	w.lose("job-launcher")
	w.round(1)
	require.Equal(t, phaseFailed, w.at(TrainingJobs, "job", "status.phase"))
	require.True(t, w.condition(TrainingJobs, "job", phaseFailed))
	// Times are kept by the second: another one shows whether the first was kept.
	const firstEnd = "2026-11-01T00:00:00Z"
	require.NotEmpty(t, w.at(TrainingJobs, "job", "status.completionTime"))
	w.patch(TrainingJobs, "job", `{"status":{"completionTime":"`+firstEnd+`"}}`)
	w.round(4)
	require.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.EqualValues(t, 1, w.at(TrainingJobs, "job", "status.restartCount"))
	assert.False(t, w.condition(TrainingJobs, "job", phaseFailed))
	assert.Equal(t, firstEnd, w.at(TrainingJobs, "job", "status.completionTime"))
	w.end("job-launcher", corev1.PodFailed, 1)
	w.round(4)
	assert.Equal(t, phaseFailed, w.at(TrainingJobs, "job", "status.phase"))
	assert.True(t, w.condition(TrainingJobs, "job", phaseFailed))
	assert.Equal(t, firstEnd, w.at(TrainingJobs, "job", "status.completionTime"), "as the operator keeps it")
	assert.Equal(t, []string{"job-launcher"}, w.names())
}

func TestETScaleInTakesTheNamedPods(t *testing.T) {
	w := runningJob(t)
	w.submit(ScaleIns, `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleIn, metadata: {name: in}, spec: {selector: {name: job}, toDelete: {podNames: [job-worker-0, job-worker-9]}}}`)
	w.round(2) // it is given its owner first
	require.Equal(t, phaseScaling, w.at(TrainingJobs, "job", "status.phase"))
	w.round(4)
	assert.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.Equal(t, scaleSucceeded, w.at(ScaleIns, "in", "status.phase"))
	assert.Equal(t, []string{"job-launcher", "job-worker-1", "job-worker-2"}, w.names(), "and they do not come again")
	assert.Equal(t, "job-worker-1 job-worker-2", w.hostfile())
}

const scaleIn = `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleIn, metadata: {name: in}, spec: {selector: {name: job}, toDelete: {podNames: [job-worker-0, job-worker-1]}}}`

func TestETScaleInOfWorkersThatAreGoneDeletesAllWorkers(t *testing.T) {
	w := runningJob(t)
	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"`+AnnotationBusy+`":""}}}`)
	w.submit(ScaleIns, scaleIn)
	w.round(3)
	require.Nil(t, w.at(ScaleIns, "in", "status.toDeletePods"))
	w.lose("job-worker-0", "job-worker-1")
	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"`+AnnotationBusy+`":null}},"spec":{"etReplicaSpecs":{"worker":{"restartPolicy":"Never"}}}}`)
	w.round(4)
	assert.Equal(t, []string{"job-launcher"}, w.names(), "the one that nobody named too")
	assert.Equal(t, scaleSucceeded, w.at(ScaleIns, "in", "status.phase"))
}

func TestETScaleInThatHasBegunKeepsToItsPods(t *testing.T) {
	w := runningJob(t)
	w.submit(ScaleIns, scaleIn)
	w.round(1)
	w.patch(ScaleIns, "in", `{"status":{"toDeletePods":["job-worker-0","job-worker-1"]}}`)
	w.lose("job-worker-0", "job-worker-1")
	w.round(4)
	assert.Contains(t, w.names(), "job-worker-2")
	assert.Equal(t, scaleSucceeded, w.at(ScaleIns, "in", "status.phase"))
}

func TestETScalerThatIsGoneIsDone(t *testing.T) {
	w := runningJob(t)
	w.submit(ScaleIns, scaleIn)
	for w.at(TrainingJobs, "job", "status.phase") != phaseScaling {
		w.round(1)
	}
	require.NoError(t, w.objects.Resource(ScaleIns).Namespace("default").Delete(t.Context(), "in", metav1.DeleteOptions{}))
	w.round(2)
	assert.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.Len(t, w.names(), 4)
}

func TestETScalerOutlivesTheLifeItWasMadeFor(t *testing.T) {
	w := runningJob(t)
	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"`+AnnotationBusy+`":""}}}`)
	w.submit(ScaleIns, scaleIn)
	w.round(2)
	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"`+AnnotationBusy+`":null,"job-supervisor.kube-ai.io/job-suspended":"true"}}}`)
	w.round(2)
	require.Empty(t, w.names())
	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"job-supervisor.kube-ai.io/job-suspended":null}},"status":{"phase":"","conditions":[]}}`)
	w.round(8)
	assert.Equal(t, []string{"job-launcher", "job-worker-2"}, w.names(), "healthy workers of the same names are gone")
}

func TestETScaleOutWithAnOwnerOfOthersNeverEnds(t *testing.T) {
	w := runningJob(t)
	w.refuseIncompleteStatus()
	w.hold = true
	uid := w.at(TrainingJobs, "job", "metadata.uid").(string)
	w.submit(ScaleOuts, `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: out, ownerReferences: [{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, name: job, uid: `+uid+`, controller: true}]}, spec: {selector: {name: job}, timeout: 0, toAdd: {count: 1}}}`)
	w.round(8)
	assert.Equal(t, phaseScaling, w.at(TrainingJobs, "job", "status.phase"))
	assert.False(t, w.condition(ScaleOuts, "out", phaseScaling))
}

// refuseIncompleteStatus has the API server refuse what the definitions of the scalers do.
func (w *fixture) refuseIncompleteStatus() {
	w.objects.(*dynamicfake.FakeDynamicClient).PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		object := action.(clienttesting.UpdateAction).GetObject().(*unstructured.Unstructured)
		status, _, _ := unstructured.NestedMap(object.Object, "status")
		if action.GetSubresource() == "status" && (status["conditions"] == nil || status["replicaStatuses"] == nil) {
			return true, nil, apierrors.NewInvalid(object.GroupVersionKind().GroupKind(), object.GetName(), nil)
		}
		return false, nil, nil
	})
}

func TestETScaleOutAddsWorkers(t *testing.T) {
	w := runningJob(t)
	w.submit(ScaleOuts, `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: out}, spec: {selector: {name: job}, timeout: 300, toAdd: {count: 2}}}`)
	w.round(5)
	assert.Equal(t, scaleSucceeded, w.at(ScaleOuts, "out", "status.phase"))
	assert.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.Equal(t, "job-worker-0 job-worker-1 job-worker-2 job-worker-3 job-worker-4", w.hostfile())
	assert.Equal(t, "out", w.all()["job-worker-3"].Labels["scaleout-name"])
}

func TestETScaleOutThatIsLateIsUndone(t *testing.T) {
	w := runningJob(t)
	w.hold = true
	w.submit(ScaleOuts, `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: out}, spec: {selector: {name: job}, timeout: 0, toAdd: {count: 1}}}`)
	w.round(6)
	assert.Equal(t, scaleFailed, w.at(ScaleOuts, "out", "status.phase"))
	assert.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.NotContains(t, w.names(), "job-worker-3")
}

func TestETScalersOfNoJobAreLeftAlone(t *testing.T) {
	w := runningJob(t)
	w.submit(ScaleIns, `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleIn, metadata: {name: in}, spec: {selector: {name: other}, toDelete: {podNames: [job-worker-0]}}}`)
	w.round(3)
	assert.Nil(t, w.at(ScaleIns, "in", "status"))
	assert.Contains(t, w.names(), "job-worker-0")
}

func TestETSuspendedJobLosesAllPodsAndNothingIsCounted(t *testing.T) {
	w := runningJob(t)
	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"job-supervisor.kube-ai.io/job-suspended":"true"}}}`)
	w.round(2)
	assert.Equal(t, phaseSuspended, w.at(TrainingJobs, "job", "status.phase"))
	assert.Empty(t, w.names())
	assert.EqualValues(t, 0, w.at(TrainingJobs, "job", "status.restartCount"))

	w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"job-supervisor.kube-ai.io/job-suspended":null}}}`)
	w.round(2)
	assert.Empty(t, w.names(), "to take the annotation off is not enough")

	w.patch(TrainingJobs, "job", `{"spec":{"etReplicaSpecs":{"worker":{"replicas":2}}},"status":{"phase":"","conditions":[]}}`)
	w.round(4)
	assert.Equal(t, phaseRunning, w.at(TrainingJobs, "job", "status.phase"))
	assert.Equal(t, []string{"job-launcher", "job-worker-0", "job-worker-1"}, w.names())
	assert.EqualValues(t, 0, w.at(TrainingJobs, "job", "status.restartCount"))
}

func TestETHostfileIsThatOfBeforeUnlessItIsDeleted(t *testing.T) {
	for name, remove := range map[string]bool{"stale": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			w := runningJob(t)
			w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"job-supervisor.kube-ai.io/job-suspended":"true"}}}`)
			w.round(2)
			if remove {
				require.NoError(t, w.CoreV1().ConfigMaps("default").Delete(t.Context(), "job-config", metav1.DeleteOptions{}))
			}
			w.patch(TrainingJobs, "job", `{"metadata":{"annotations":{"job-supervisor.kube-ai.io/job-suspended":null}},"spec":{"etReplicaSpecs":{"worker":{"replicas":2}}},"status":{"phase":"","conditions":[]}}`)
			w.round(2)
			expected := "job-worker-0 job-worker-1 job-worker-2"
			if remove {
				expected = "job-worker-0 job-worker-1"
			}
			assert.Equal(t, expected, w.hostfile())
		})
	}
}
