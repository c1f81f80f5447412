package jobset

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestAJobSetIsSuspendedThroughItsTrainJob(t *testing.T) {
	f := newFixture(t, jobstest.JobSetOfTrainJob, jobstest.TrainJob)
	ctx := context.Background()
	job := f.Get("jobset", "llm")
	require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
	writes := f.Writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0], `patch jobsets {"metadata":{"annotations":{"gpu-spot.autoscaling/held-reason":"reclaim"`)
	assert.NotContains(t, writes[0], `"spec"`)
	assert.Equal(t, `patch trainjobs {"metadata":{"uid":"uid-trainjob"},"spec":{"suspend":true}}`, writes[1])

	jobSets := f.Resource("jobset")
	require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
	assert.Len(t, f.Writes(), 2, "a leader may have died between the two")
	f.Set(jobSets, "llm", true, "spec", "suspend") // as the trainer does
	f.Writes()
	require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
	assert.Empty(t, f.Writes())

	require.NoError(t, f.Registry.Resume(ctx, f.Get("jobset", "llm"), 6))
	writes = f.Writes()
	require.Len(t, writes, 2)
	assert.Equal(t, `patch trainjobs {"metadata":{"uid":"uid-trainjob"},"spec":{"suspend":false}}`, writes[0])
	assert.Empty(t, f.Object(jobSets, "llm").GetLabels())
}

func TestATrainJobOfKueueIsLeftToIt(t *testing.T) {
	f := newFixture(t, jobstest.JobSetOfTrainJob, strings.Replace(jobstest.TrainJob, "name: llm,", "name: llm, labels: {kueue.x-k8s.io/queue-name: gpu},", 1))
	require.ErrorIs(t, f.Registry.Suspend(context.Background(), f.Get("jobset", "llm"), jobs.HeldForReclaim), jobs.ErrUnsupported)
	assert.Empty(t, f.Writes())
}
