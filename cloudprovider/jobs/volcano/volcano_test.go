package volcano

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestAVolcanoJobIsSuspendedAndResumedByCommands(t *testing.T) {
	f := newFixture(t, jobstest.VolcanoJob)
	ctx := context.Background()
	job := f.Get("vcjob", "resnet")
	resource := f.Resource("vcjob")
	require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
	writes := f.Writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0], `"labels":{"gpu-spot.autoscaling/held":"suspended"}`)
	assert.Equal(t, "create commands resnet-spot-abortjob-0 null", writes[1])
	command := f.Object(Commands, "resnet-spot-abortjob-0")
	assert.Equal(t, "AbortJob", command.Object["action"])
	assert.Equal(t, map[string]any{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "resnet", "uid": "uid-resnet", "controller": true}, command.Object["target"])
	assert.EqualValues(t, "uid-resnet", command.GetOwnerReferences()[0].UID)

	require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim), "while the first is on its way")
	require.NoError(t, f.Dynamic.Tracker().Delete(Commands, "ml", "resnet-spot-abortjob-0")) // Volcano obeys
	f.Set(resource, "resnet", "Aborted", "status", "state", "phase")
	f.Writes()
	require.NoError(t, f.Registry.Suspend(ctx, job, jobs.HeldForReclaim))
	assert.Empty(t, f.Writes())
	assert.True(t, f.Get("vcjob", "resnet").Suspended)

	f.Writes()
	require.NoError(t, f.Registry.Resume(ctx, f.Get("vcjob", "resnet"), 5))
	writes = f.Writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0]+writes[1], "create commands resnet-spot-resumejob-0 null")
	assert.Empty(t, f.Object(resource, "resnet").GetLabels())
	assert.Equal(t, "ResumeJob", f.Object(Commands, "resnet-spot-resumejob-0").Object["action"])

	require.NoError(t, f.Registry.Resume(ctx, f.Get("vcjob", "resnet"), 5))
	assert.Empty(t, f.Writes())
}

// The patch changes the object, so that an unhold that was decided about the run before is refused: the suspension is a Command.
func TestAVolcanoJobThatItsOwnerResumedIsHeldAnew(t *testing.T) {
	f := newFixture(t, jobstest.VolcanoJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("vcjob", "resnet"), jobs.HeldForReclaim))
	require.NoError(t, f.Dynamic.Tracker().Delete(Commands, "ml", "resnet-spot-abortjob-0")) // Volcano obeys, and the owner resumes it
	f.Writes()
	f.Clock.Step(time.Hour)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("vcjob", "resnet"), jobs.HeldForReclaim))
	assert.Contains(t, f.Writes()[0], `"gpu-spot.autoscaling/held-since":"2026-05-01T09:00:00Z"`)
}
