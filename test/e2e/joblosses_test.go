package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

// TestJobsLoseNoMoreThanTheirNodes tells of what a reclaim could cost a job beside the nodes that it loses.
func TestJobsLoseNoMoreThanTheirNodes(t *testing.T) {
	parts := []struct {
		pool string
		run  func(*jobSuite)
	}{
		{"late", scaleInThatComesTooLateCostsNoOtherWorker},
		{"outlived", scaleInDoesNotOutliveTheWorkersItNames},
		{"sweep", acknowledgementOfOnePodIsNoOthers},
		{"told", documentedCommandIsToldBeforeItIsSuspended},
		{"queued", jobOfKueueIsEndedByKueue},
		{"yielding", jobWhoseQuotaIsTakenIsNotBoughtFor},
		{"queuedset", jobSetOfKueueLosesNoRestart},
		{"queuedray", rayJobOfKueueIsEndedByKueue},
		{"queuedtas", jobWithATopologyComesBackOnNodesThatAreReady},
	}
	var pools []string
	for _, part := range parts {
		pools = append(pools, part.pool)
	}
	s := newSharedJobSuite(t, pools...)
	t.Run("parts", func(t *testing.T) {
		for _, part := range parts {
			t.Run(part.pool, func(t *testing.T) { part.run(s.subtest(t)) })
		}
	})
	requireNothingLeft(s)
}

// TestSuspendedJobLosesNoRetryWhileTheJobControllerIsBusy stops the controller, which in a big reclaim comes to a Job too late.
func TestSuspendedJobLosesNoRetryWhileTheJobControllerIsBusy(t *testing.T) {
	rig.Long(t)
	s := newJobSuite(t, "waiting")
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: waiting}
spec: {completionMode: Indexed, parallelism: 2, completions: 2, backoffLimit: 0, template: ` + gpuTemplate("waiting") + `}
`)
	workers := s.awaitRunningPods("job-name=waiting", 2)
	require.NoError(t, s.Cluster.Pause(t.Context(), cluster.ControllerManager))
	t.Cleanup(func() { assert.NoError(t, s.Cluster.Resume(context.Background(), cluster.ControllerManager)) })
	reclaiming := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("Job", "waiting", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	require.NoError(t, s.Cluster.Resume(t.Context(), cluster.ControllerManager))
	s.awaitJobEvent("Job", "waiting", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=waiting", 2))
	s.awaitNotHeld(batchJobs, "waiting")
	assert.Nil(t, s.field(batchJobs, "waiting", "status.failed"), "nothing was counted as a failure")
}

// acknowledgementOfOnePodIsNoOthers is about the pods of a Job that share no work: one that has saved its own says nothing
// of the others.
func acknowledgementOfOnePodIsNoOthers(s *jobSuite) {
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  parallelism: 2
  completions: 2
  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}
  template: ` + gpuTemplate("sweep", `metadata: {annotations: {gpu-spot.autoscaling/await-checkpoint: "true"}}`) + `
`)
	pods := s.awaitRunningPods("job-name=sweep", 2)
	quick := s.reclaimNodesOf(pods[0])
	slow := s.reclaimNodesOf(pods[1])
	acknowledgeWhenAsked(s, pods[0])
	s.awaitGone(quick)
	requirePodsStayUntil(s, slow, slow.deadline.Add(-25*time.Second))
	acknowledgeWhenAsked(s, pods[1])
	s.awaitGone(slow)
	s.requireOtherNodes(quick, s.awaitRunningPods("job-name=sweep", 2))
	assert.Nil(s.t, s.field(batchJobs, "sweep", "status.failed"))
}

// acknowledgeWhenAsked waits until the pod has a request for a checkpoint, and acknowledges it.
func acknowledgeWhenAsked(s *jobSuite, pod corev1.Pod) {
	s.t.Helper()
	var id string
	s.eventually(pod.Name+" is asked", func(ctx context.Context) (bool, error) {
		is, err := s.pod(ctx, pod.Name)
		if is == nil || err != nil {
			return false, err
		}
		id = is.Annotations["gpu-spot.autoscaling/checkpoint-request"]
		return id != "", nil
	})
	acknowledge(s, pod, id)
}

// requirePodsStayUntil fails if one of the pods is deleted before that time.
func requirePodsStayUntil(s *jobSuite, d reclaimedPods, until time.Time) {
	s.t.Helper()
	rig.Eventually(s.t, time.Until(until)+soon, "the pods have their time", func(ctx context.Context) (bool, error) {
		for _, was := range d.pods {
			pod, err := s.pod(ctx, was.Name)
			if err != nil {
				return false, err
			}
			if time.Now().Before(until) {
				require.NotNil(s.t, pod, "%s is gone", was.Name)
				require.Nil(s.t, pod.DeletionTimestamp, "%s is deleted %s before the release", was.Name, time.Until(d.deadline))
			}
		}
		return !time.Now().Before(until), nil
	})
}
