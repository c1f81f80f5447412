package standin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const queuedJob = `{apiVersion: batch/v1, kind: Job, metadata: {name: job, labels: {kueue.x-k8s.io/queue-name: gpu}}, spec: {suspend: true, parallelism: 2, template: {spec: {}}}}`

// queued is the job above, admitted, with as many active pods. The Job controller is not there.
func queued(t *testing.T, active string) *fixture {
	t.Helper()
	w := newFixture(t, kueueKinds)
	w.submit(batchJobs, queuedJob)
	w.round(2)
	require.Equal(t, false, w.at(batchJobs, "job", "spec.suspend"))
	w.patch(batchJobs, "job", `{"status":{"active":`+active+`}}`)
	return w
}

func TestKueueUndoesASuspension(t *testing.T) {
	w := queued(t, "2")
	w.patch(batchJobs, "job", `{"spec":{"suspend":true}}`)
	w.round(1)
	assert.Equal(t, false, w.at(batchJobs, "job", "spec.suspend"))
}

func TestKueueSuspendsTheJobOfAWorkloadThatIsNotActive(t *testing.T) {
	w := queued(t, "2")
	w.patch(Workloads, "job-job-uid-1", `{"spec":{"active":false}}`)
	w.round(2)
	assert.Equal(t, true, w.at(batchJobs, "job", "spec.suspend"))
	assert.True(t, w.condition(Workloads, "job-job-uid-1", workloadAdmitted), "its pods are still there")
	w.patch(batchJobs, "job", `{"status":{"active":0}}`)
	w.round(2)
	assert.False(t, w.condition(Workloads, "job-job-uid-1", workloadAdmitted))
	assert.Equal(t, true, w.at(batchJobs, "job", "spec.suspend"))
	w.patch(Workloads, "job-job-uid-1", `{"spec":{"active":true}}`)
	w.round(2)
	assert.Equal(t, false, w.at(batchJobs, "job", "spec.suspend"))
}
