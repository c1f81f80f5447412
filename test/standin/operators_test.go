package standin

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const dl = `
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: job}
spec:
  replicaSpecs:
    dlrover-master: {template: {spec: {containers: [{name: main}]}}}
    worker: {replicas: 2, template: {spec: {containers: [{name: main}]}}}
`

func TestAnOperatorTriesAgainWhereAWebhookDoesNotAnswerYet(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New(`failed calling webhook "mpod.kb.io": connect: connection refused`))
	assert.True(t, Transient(fmt.Errorf("job: %w", refused)))
	assert.False(t, Transient(apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "pod", nil)))
}

func TestDLRoverLaunchesLostRanksAnew(t *testing.T) {
	w := newFixture(t, dlroverKinds)
	w.submit(ElasticJobs, dl)
	w.round(2)
	require.Equal(t, []string{"elasticjob-job-dlrover-master", "job-edljob-worker-0", "job-edljob-worker-1"}, w.names())
	require.Equal(t, phaseRunning, w.at(ElasticJobs, "job", "status.phase"))
	for range 5 { // more often than a failure would be forgiven
		w.lose(w.rank("0"))
		w.round(1)
	}
	pod := w.all()[w.rank("0")]
	assert.Equal(t, "job-edljob-worker-6", pod.Name)
	assert.Equal(t, "5", pod.Labels[LabelRelaunchCount])
	assert.Equal(t, phaseRunning, w.at(ElasticJobs, "job", "status.phase"))

	w.end("job-edljob-worker-6", corev1.PodFailed, 1)
	w.round(2)
	assert.Equal(t, phaseFailed, w.at(ElasticJobs, "job", "status.phase"), "now that it counts")
}

// rank is the name of the worker that has it.
func (w *fixture) rank(rank string) string {
	for name, pod := range w.all() {
		if pod.Labels[labelDLRoverRank] == rank && pod.Labels[labelDLRoverType] == roleWorker && !ended(pod) {
			return name
		}
	}
	w.t.Fatalf("nobody has rank %s", rank)
	return ""
}

func TestDLRoverMakesNoPodsWhileSuspended(t *testing.T) {
	w := newFixture(t, dlroverKinds)
	w.submit(ElasticJobs, dl)
	w.round(2)
	w.patch(ElasticJobs, "job", `{"spec":{"suspend":true}}`)
	w.round(1)
	assert.Len(t, w.names(), 3, "those that are there stay")
	w.lose("job-edljob-worker-0", "job-edljob-worker-1")
	w.round(3)
	assert.Equal(t, []string{"elasticjob-job-dlrover-master"}, w.names())
	w.patch(ElasticJobs, "job", `{"spec":{"suspend":false}}`)
	w.round(2)
	assert.Equal(t, []string{"elasticjob-job-dlrover-master", "job-edljob-worker-2", "job-edljob-worker-3"}, w.names())
}

const ai = `
apiVersion: kongming.cce.baiudbce.com/v1
kind: AITrainingJob
metadata: {name: job}
spec:
  replicaSpecs:
    trainer:
      replicas: 2
      restartLimit: 1
      faultTolerantPolicy: [{exitCodes: "137,143", restartPolicy: ExitCode, restartScope: Pod}]
      template: {spec: {containers: [{name: aitj-0}]}}
`

func TestAITrainingToleratesTheCodesOfItsPolicyUpToTheLimit(t *testing.T) {
	w := newFixture(t, aiKinds)
	w.submit(AITrainingJobs, ai)
	w.round(2)
	require.Equal(t, []string{"job-trainer-0", "job-trainer-1"}, w.names())
	require.Equal(t, phaseRunning, w.at(AITrainingJobs, "job", "status.phase"))
	w.end("job-trainer-1", corev1.PodFailed, 143)
	w.round(3)
	assert.Equal(t, corev1.PodRunning, w.all()["job-trainer-1"].Status.Phase)
	assert.EqualValues(t, 1, w.at(AITrainingJobs, "job", "status.RestartCount.trainer"))
	w.end("job-trainer-1", corev1.PodFailed, 143)
	w.round(3)
	assert.Equal(t, phaseFailed, w.at(AITrainingJobs, "job", "status.phase"))
	assert.Empty(t, w.names())
}

func TestAITrainingCountsAPodThatIsEvictedAsEndedBySIGTERM(t *testing.T) {
	for name, test := range map[string]struct{ codes, phase string }{
		"tolerated": {"137,143", phaseRunning}, "not tolerated": {"137,129", phaseFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t, aiKinds)
			w.submit(AITrainingJobs, strings.Replace(ai, "137,143", test.codes, 1))
			w.round(2)
			w.terminate("job-trainer-0")
			w.round(1)
			require.Equal(t, phaseRunning, w.at(AITrainingJobs, "job", "status.phase"), "it has its grace period")
			w.end("job-trainer-0", corev1.PodFailed, 143) // its last status, just before it is gone
			w.round(1)
			w.lose("job-trainer-0")
			w.round(3)
			assert.Equal(t, test.phase, w.at(AITrainingJobs, "job", "status.phase"))
			if test.phase == phaseRunning {
				assert.Len(t, w.names(), 2)
				assert.EqualValues(t, 1, w.at(AITrainingJobs, "job", "status.RestartCount.trainer"))
			}
		})
	}
}

func TestAITrainingFailsByACodeThatNoPolicyNames(t *testing.T) {
	w := newFixture(t, aiKinds)
	w.submit(AITrainingJobs, ai)
	w.round(2)
	w.end("job-trainer-1", corev1.PodFailed, 1)
	w.round(2)
	assert.Equal(t, phaseFailed, w.at(AITrainingJobs, "job", "status.phase"))
}

const vcjob = `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: job}
spec:
  minAvailable: 2
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - {name: worker, replicas: 2, template: {spec: {containers: [{name: train}]}}}
`

func (w *fixture) command(name, action string) {
	w.t.Helper()
	w.submit(VolcanoCommands, "{apiVersion: bus.volcano.sh/v1alpha1, kind: Command, metadata: {name: "+name+"}, action: "+action+
		", target: {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: job, uid: uid-1}}")
}

func TestVolcanoPolicyRestartsAllForOneLostPodOnce(t *testing.T) {
	w := newFixture(t, volcanoKinds)
	w.submit(VolcanoJobs, vcjob)
	w.round(3)
	require.Equal(t, []string{"job-worker-0", "job-worker-1"}, w.names())
	require.Equal(t, phaseRunning, w.at(VolcanoJobs, "job", "status.state.phase"))
	before := w.all()["job-worker-1"].UID
	w.lose("job-worker-0")
	w.round(5)
	assert.Equal(t, phaseRunning, w.at(VolcanoJobs, "job", "status.state.phase"))
	assert.NotEqual(t, before, w.all()["job-worker-1"].UID)
	assert.EqualValues(t, 1, w.at(VolcanoJobs, "job", "status.retryCount"))
}

func TestVolcanoWithoutPolicyMakesTheLostPodAgain(t *testing.T) {
	w := newFixture(t, volcanoKinds)
	w.submit(VolcanoJobs, vcjob)
	w.patch(VolcanoJobs, "job", `{"spec":{"policies":null}}`)
	w.round(3)
	before := w.all()["job-worker-1"].UID
	w.lose("job-worker-0")
	w.round(3)
	assert.Equal(t, []string{"job-worker-0", "job-worker-1"}, w.names())
	assert.Equal(t, before, w.all()["job-worker-1"].UID)
	assert.Nil(t, w.at(VolcanoJobs, "job", "status.retryCount"))
}

func TestVolcanoPolicyEndsTheJobForOneLostPod(t *testing.T) {
	for action, phase := range map[string]string{actionTerminate: volcanoTerminated, actionComplete: volcanoCompleted, actionAbort: volcanoAborted} {
		t.Run(action, func(t *testing.T) {
			w := newFixture(t, volcanoKinds)
			w.submit(VolcanoJobs, strings.Replace(vcjob, "{event: PodEvicted, action: RestartJob}", "{events: [TaskFailed, PodEvicted], action: "+action+"}", 1))
			w.round(3)
			require.Len(t, w.names(), 2)
			w.lose("job-worker-0")
			w.round(3)
			assert.Equal(t, phase, w.at(VolcanoJobs, "job", "status.state.phase"))
			assert.Empty(t, w.names(), "the others are killed, and none comes again")
			w.command("resume", actionResume)
			w.round(5)
			if action == actionAbort {
				assert.Equal(t, phaseRunning, w.at(VolcanoJobs, "job", "status.state.phase"))
			} else {
				assert.Equal(t, phase, w.at(VolcanoJobs, "job", "status.state.phase"), "it has ended")
				assert.Empty(t, w.names())
			}
		})
	}
}

func TestVolcanoPoliciesDoNotConcernPodsThatAnAbortKills(t *testing.T) {
	w := newFixture(t, volcanoKinds)
	w.submit(VolcanoJobs, strings.Replace(vcjob, "RestartJob", actionTerminate, 1))
	w.round(3)
	w.command("abort", actionAbort)
	w.round(3)
	require.Equal(t, volcanoAborted, w.at(VolcanoJobs, "job", "status.state.phase"))
	w.command("resume", actionResume)
	w.round(5)
	assert.Equal(t, phaseRunning, w.at(VolcanoJobs, "job", "status.state.phase"))
}

func TestVolcanoCommandsAbortAndResumeAndResumingIsARetry(t *testing.T) {
	w := newFixture(t, volcanoKinds)
	w.submit(VolcanoJobs, vcjob)
	w.round(3)
	for _, retries := range []int{1, 2} {
		w.command("abort", actionAbort)
		w.round(3)
		require.Equal(t, volcanoAborted, w.at(VolcanoJobs, "job", "status.state.phase"))
		require.Empty(t, w.names())
		w.command("resume", actionResume)
		w.round(5)
		require.Equal(t, phaseRunning, w.at(VolcanoJobs, "job", "status.state.phase"))
		require.EqualValues(t, retries, w.at(VolcanoJobs, "job", "status.retryCount"))
	}
	w.command("abort", actionAbort)
	w.round(3)
	w.command("resume", actionResume)
	w.round(5)
	assert.Equal(t, phaseFailed, w.at(VolcanoJobs, "job", "status.state.phase"), "three, and no more")
}
