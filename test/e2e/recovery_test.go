package e2e

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// TestJobsThatCannotRun has less capacity than its jobs want.
func TestJobsThatCannotRun(t *testing.T) {
	rig.Long(t)
	parts := []struct {
		name string
		run  func(*jobSuite)
	}{
		{"deadline", jobIsGivenUpWhenItsMaximumWaitIsOver},
		{"full", suspendedJobResumesInFull},
		{"dynamic", suspendedJobResumesWithWhatThereIsAndGrows},
	}
	var pools []string
	for _, part := range parts {
		pools = append(pools, part.name)
	}
	s := newSharedJobSuite(t, pools...)
	t.Run("parts", func(t *testing.T) {
		for _, part := range parts {
			t.Run(part.name, func(t *testing.T) { part.run(s.subtest(t)) })
		}
	})
}

// setPoolMaximum lets the job's pool have so many instances.
func setPoolMaximum(s *jobSuite, job string, n int) {
	s.t.Helper()
	tags := jobPool(job).Tags
	tags["gpu-spot.autoscaling/max-size"] = strconv.Itoa(n)
	require.NoError(s.t, s.Cloud.SetGroupTags("asg-"+job, tags))
}

// purchasesOf is how many instances of the job's pool the cloud accepted to deliver so far, purchase by purchase.
func (s *jobSuite) purchasesOf(job string) (purchases []string) {
	group, _ := s.Cloud.Group("asg-" + job)
	for _, activity := range slices.Backward(group.Activities) {
		if activity.Asked > 0 {
			purchases = append(purchases, strconv.Itoa(activity.Asked))
		}
	}
	return purchases
}

// awaitInstances waits until the job's pool has so many instances.
func awaitInstances(s *jobSuite, job string, n int) {
	s.t.Helper()
	s.eventually(strconv.Itoa(n)+" instances live in the pool "+job, func(context.Context) (bool, error) {
		return len(s.instances("asg-"+job)) == n, nil
	})
}

// patchJob changes a batch Job as its owner would.
func patchJob(s *jobSuite, name, patch string) {
	s.t.Helper()
	_, err := s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(s.t, err)
}

func jobIsGivenUpWhenItsMaximumWaitIsOver(s *jobSuite) {
	setPoolMaximum(s, "deadline", 2)
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: deadline, annotations: {gpu-spot.autoscaling/max-wait: 40s}}
spec: {completionMode: Indexed, parallelism: 4, completions: 4, template: ` + gpuTemplate("deadline") + `}
`)
	awaitInstances(s, "deadline", 2)
	s.awaitJobEvent("Job", "deadline", "SpotJobTimedOut", 1)
	s.awaitField(batchJobs, "deadline", "spec.suspend", true)
	s.awaitEvent("SpotNodeGivenBack", "job/default/deadline")
	awaitInstances(s, "deadline", 0)
	purchases := s.purchasesOf("deadline")

	setPoolMaximum(s, "deadline", 4)
	rig.Always(s.t, 10*time.Second, "nothing is bought for it any more", func(context.Context) (bool, error) {
		return len(s.purchasesOf("deadline")) == len(purchases), nil
	})
	patchJob(s, "deadline", `{"metadata": {"annotations": {"gpu-spot.autoscaling/max-wait": null}}, "spec": {"suspend": false}}`)
	s.awaitRunningPods("job-name=deadline", 4)
	s.awaitNotHeld(batchJobs, "deadline")
	assert.Equal(s.t, false, s.field(batchJobs, "deadline", "spec.suspend"), "its owner wins")
}

func suspendedJobResumesInFull(s *jobSuite) {
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: full}
spec: {completionMode: Indexed, parallelism: 3, completions: 3, backoffLimit: 0, template: ` + gpuTemplate("full") + `}
`)
	pods := s.awaitRunningPods("job-name=full", 3)
	before := len(s.purchasesOf("full"))
	setPoolMaximum(s, "full", 2)
	reclaiming := s.reclaimNodesOf(pods[0])
	s.awaitJobEvent("Job", "full", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	awaitInstances(s, "full", 0) // what is left is of no use to it
	assert.Len(s.t, s.purchasesOf("full"), before, "nor is what could be bought")
	assert.Equal(s.t, true, s.field(batchJobs, "full", "spec.suspend"))

	setPoolMaximum(s, "full", 3)
	s.awaitRunningPods("job-name=full", 3)
	s.awaitNotHeld(batchJobs, "full")
	s.awaitJobEvent("Job", "full", "SpotJobResumed", 1)
	assert.Equal(s.t, []string{"3"}, s.purchasesOf("full")[before:], "all of it, at once")
	assert.Nil(s.t, s.field(batchJobs, "full", "status.failed"))
}

func suspendedJobResumesWithWhatThereIsAndGrows(s *jobSuite) {
	s.runOperator(standin.NewETOperator)
	s.submit(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: dynamic, annotations: {gpu-spot.autoscaling/recovery: dynamic}}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: ` + systemTemplate("horovodrun -np 4 --min-np 2 --max-np 4 --host-discovery-script /etc/edl/discover_hosts.sh python train.py") + `}
    worker: {replicas: 4, minReplicas: 2, maxReplicas: 4, restartPolicy: Always, template: ` + gpuTemplate("dynamic") + `}
`)
	const workersOf = "training-job-name=dynamic,training-job-role=worker"
	workers := s.awaitRunningPods(workersOf, 4)
	s.awaitField(standin.TrainingJobs, "dynamic", "status.phase", "Running")
	setPoolMaximum(s, "dynamic", 2)
	reclaiming := s.reclaimNodesOf(workers[:3]...)
	s.awaitJobEvent("TrainingJob", "dynamic", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("TrainingJob", "dynamic", "SpotJobResumed", 1)
	s.awaitRunningPods(workersOf, 2)
	s.awaitField(standin.TrainingJobs, "dynamic", "status.phase", "Running")

	setPoolMaximum(s, "dynamic", 4)
	s.awaitRunningPods(workersOf, 4)
	s.awaitNotHeld(standin.TrainingJobs, "dynamic")
	s.awaitJobEvent("TrainingJob", "dynamic", "SpotJobGrown", 1)
}

func TestReclaimOfMostNodesDoesNotStopTheAutoscaler(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 20)))
	s.RunAutoscaler(t, "--reclaim-notice-period=40s", "--reclaim-poll-interval=1s")
	deployGPUPods(s, "serve", 10)
	all := func(ctx context.Context) (bool, error) {
		pods, err := runningReplicas(ctx, s, "serve")
		return len(pods) == 10, err
	}
	s.eventually("all replicas run", all)
	reclaiming := map[string]bool{}
	for _, instance := range s.instances("asg-1")[:6] {
		require.NoError(t, s.Cloud.Reclaim(instance.ID))
		reclaiming[instance.ID] = true
	}
	s.eventually("the six are gone", func(ctx context.Context) (bool, error) {
		for id := range reclaiming {
			if node, err := s.node(ctx, id); node != nil || err != nil {
				return false, err
			}
		}
		return true, nil
	})
	s.eventually("all replicas run again", all)
	bought, tokens := 0, map[string]bool{}
	for _, request := range s.requests("ScaleWithAdjustment") {
		if token := request.Parameters["ClientToken"]; tokens[token] {
			continue // it was refused before, because the scaling group was busy
		} else {
			tokens[token] = true
		}
		n, err := strconv.Atoi(request.Parameters["AdjustmentValue"])
		require.NoError(t, err)
		bought += n
	}
	assert.Equal(t, 16, bought, "ten, and one replacement for each reclaim")
}
