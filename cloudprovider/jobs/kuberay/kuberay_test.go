package kuberay

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestARayClusterStandsForItsRayJob(t *testing.T) {
	f := newFixture(t, jobstest.RayClusterOfRayJob, jobstest.RayJob)
	job := f.Get("raycluster", "rc")
	assert.Equal(t, jobstest.Ref("rayjob", "rj"), job.Ref)
	assert.EqualValues(t, "uid-rj", job.UID)
	require.NoError(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim))
	assert.Len(t, f.Writes(), 1)

	job = f.Get("rayjob", "rj")
	assert.True(t, job.Suspended)
	var busy *jobs.BusyError
	_, err := f.Registry.Gang(job, 2, jobstest.AnyNumber)
	require.ErrorAs(t, err, &busy, "the operator has yet to delete the old cluster")
	f.Set(f.Resource("rayjob"), "rj", "Suspended", "status", "jobDeploymentStatus")
	f.Set(f.Resource("rayjob"), "rj", "", "status", "rayClusterName")
	job = f.Get("rayjob", "rj")
	assert.Equal(t, []jobs.Ref{jobstest.Ref("raycluster", "rc")}, job.Parts, "pods of the old cluster may still be there")
	names, _ := f.GangOf(job, 2)
	assert.Len(t, names, 3)
	require.NoError(t, f.Registry.Resume(context.Background(), job, 2))
	assert.Empty(t, f.Get("rayjob", "rj").Parts)
}
