package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// TestJobsLoseNoMoreThanTheirNodes tells of what a reclaim could cost a job beside the nodes that it loses.
func TestJobsLoseNoMoreThanTheirNodes(t *testing.T) {
	parts := []struct {
		pool string
		tell func(*jobStory)
	}{
		{"late", scaleInThatComesTooLateCostsNoOtherWorker},
		{"outlived", scaleInDoesNotOutliveTheWorkersItNames},
		{"sweep", acknowledgementOfOnePodIsNoOthers},
		{"told", documentedCommandIsToldBeforeItIsSuspended},
		{"queued", jobOfKueueIsEndedByKueue},
	}
	var pools []string
	for _, part := range parts {
		pools = append(pools, part.pool)
	}
	s := tellOfJobs(t, pools...)
	t.Run("parts", func(t *testing.T) {
		for _, part := range parts {
			t.Run(part.pool, func(t *testing.T) { part.tell(s.in(t)) })
		}
	})
	s.nothingIsLeft()
}

// acknowledgementOfOnePodIsNoOthers is about the pods of a Job that share no work: one that has saved its own says nothing
// of the others.
func acknowledgementOfOnePodIsNoOthers(s *jobStory) {
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
	pods := s.whole("job-name=sweep", 2)
	quick := s.reclaimUnder(pods[0])
	slow := s.reclaimUnder(pods[1])
	s.acknowledge(pods[0])
	s.left(quick)
	s.staysUntil(slow, slow.deadline.Add(-25*time.Second))
	s.acknowledge(pods[1])
	s.left(slow)
	s.elsewhere(quick, s.whole("job-name=sweep", 2))
	assert.Nil(s.t, s.field(batchJobs, "sweep", "status.failed"))
}

// jobOfKueueIsEndedByKueue: each pod that is evicted of it would count as failed, and to suspend it would be undone.
func jobOfKueueIsEndedByKueue(s *jobStory) {
	s.play(standin.NewKueue)
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: queued, labels: {` + standin.LabelQueue + `: gpu}}
spec: {suspend: true, completionMode: Indexed, parallelism: 3, completions: 3, backoffLimit: 0, template: ` + gpuTemplate("queued") + `}
`)
	doomed := s.reclaimUnder(s.whole("job-name=queued", 3)[:2]...)
	s.noted("Job", "queued", "SpotJobSuspended", 1)
	s.left(doomed)
	s.noted("Job", "queued", "SpotJobResumed", 1)
	s.elsewhere(doomed, s.whole("job-name=queued", 3))
	s.released(batchJobs, "queued")
	assert.Nil(s.t, s.field(batchJobs, "queued", "status.failed"))
	workloads, err := s.objects.Resource(standin.Workloads).Namespace(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	require.Len(s.t, workloads.Items, 1)
	active, _, _ := unstructured.NestedBool(workloads.Items[0].Object, "spec", "active")
	assert.True(s.t, active)
}

// acknowledge says for the pod that its work is saved, once it is asked.
func (s *jobStory) acknowledge(pod corev1.Pod) {
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
	body := fmt.Appendf(nil, `{"metadata":{"annotations":{"gpu-spot.autoscaling/checkpoint-acknowledged":%q}}}`, id)
	_, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(s.t.Context(), pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	require.NoError(s.t, err)
}

// staysUntil fails when one of the pods is told to go before.
func (s *jobStory) staysUntil(d doomed, until time.Time) {
	s.t.Helper()
	rig.Eventually(s.t, time.Until(until)+soon, "the pods have their time", func(ctx context.Context) (bool, error) {
		for _, was := range d.pods {
			pod, err := s.pod(ctx, was.Name)
			if err != nil {
				return false, err
			}
			if time.Now().Before(until) {
				require.NotNil(s.t, pod, "%s is gone", was.Name)
				require.Nil(s.t, pod.DeletionTimestamp, "%s is told to go %s before the release", was.Name, time.Until(d.deadline))
			}
		}
		return !time.Now().Before(until), nil
	})
}
