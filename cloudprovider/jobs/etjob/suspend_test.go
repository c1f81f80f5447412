package etjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestTrainingJobIsSuspendedEvenIfItsScalersCannotBeRemoved(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(foreignScaleIn, "mnist"))
	f.Dynamic.PrependReactor("delete", "scaleins", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(scaleIns.GroupResource(), "theirs", errors.New("no verb"))
	})
	require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	require.True(t, f.Get("trainingjob", "mnist").Suspended)
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	require.Error(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 4))
	assert.True(t, f.Get("trainingjob", "mnist").Suspended, "but is not resumed to meet them")
}

func TestTrainingJobIsSuspendedAsTheSupervisorDoesIt(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	job := f.Get("trainingjob", "mnist")
	require.NoError(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim))
	patch := strings.Replace(fmt.Sprintf(heldPatch, "suspended"), `"},"labels"`, `","job-supervisor.kube-ai.io/job-suspended":"true"},"labels"`, 1)
	assert.Equal(t, []string{"patch trainingjobs {" + patch + "}"}, f.Writes(), "in one patch")
	stored := f.Object(resource, "mnist")
	assert.Equal(t, "true", stored.GetAnnotations()["job-supervisor.kube-ai.io/job-suspended"])
	assert.NotContains(t, stored.GetAnnotations(), "job-supervisor.kube-ai.io/job-status")
	assert.Equal(t, []string{jobs.ReasonSuspended}, f.Events())

	f.Writes()
	require.NoError(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim))
	assert.Empty(t, f.Writes(), "the same again")

	require.NoError(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForMaxWait))
	assert.Len(t, f.Writes(), 1, "for another reason")
	stored = f.Object(resource, "mnist")
	assert.Equal(t, "timeout", stored.GetAnnotations()["job-supervisor.kube-ai.io/job-status"])
	assert.Equal(t, "max-wait", stored.GetAnnotations()[api.AnnotationHeldReason])
	assert.Equal(t, []string{jobs.ReasonTimedOut}, f.Events())
}

func TestTrainingJobResumesAsTheSupervisorDoesIt(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob, "{apiVersion: v1, kind: ConfigMap, metadata: {name: mnist-config, namespace: ml}}")
	ctx := context.Background()
	require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	f.Writes()

	var busy *jobs.BusyError
	require.ErrorAs(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 4), &busy, "the operator would suspend it after all")
	assert.Empty(t, f.Writes())

	f.Set(resource, "mnist", "Suspended", "status", "phase")
	f.Writes()
	require.NoError(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 4))
	assert.Equal(t, []string{
		`patch trainingjobs {"metadata":{"annotations":{"gpu-spot.autoscaling/stop-requested":null,"job-supervisor.kube-ai.io/job-status":null,"job-supervisor.kube-ai.io/job-suspended":null},"uid":"uid-mnist"},"spec":{"etReplicaSpecs":{"worker":{"replicas":4}}}}`,
		`patch trainingjobs/status {"metadata":{"uid":"uid-mnist"},"status":{"completionTime":null,"conditions":[],"currentScaler":null,"currentWorkers":null,"phase":"Created",` +
			`"replicaStatuses":{"Launcher":{"active":null,"failed":null,"succeeded":null},"Worker":{"active":null,"failed":null,"succeeded":null}},"targetWorkers":null}}`,
		`patch trainingjobs {"metadata":{"annotations":{"gpu-spot.autoscaling/held-parts":null,"gpu-spot.autoscaling/held-reason":null,"gpu-spot.autoscaling/held-replicas":null,"gpu-spot.autoscaling/held-restarts":null,"gpu-spot.autoscaling/held-since":null,"gpu-spot.autoscaling/stop-requested":null},"labels":{"gpu-spot.autoscaling/held":null},"uid":"uid-mnist"}}`,
		"delete configmaps mnist-config",
	}, f.Writes())
	stored := f.Object(resource, "mnist")
	assert.Empty(t, stored.GetLabels())
	conditions, found, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	assert.True(t, found && len(conditions) == 0, "the definition asks for the field")
	job := f.Get("trainingjob", "mnist")
	assert.False(t, job.Suspended)
	assert.Equal(t, 4, job.Replicas)

	f.Writes()
	require.NoError(t, f.Registry.Resume(ctx, job, 4))
	assert.Empty(t, f.Writes(), "the same again")
}

func TestTrainingJobResumedWithFewerWorkersIsLeftToGrow(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	ctx := context.Background()
	require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	require.NoError(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 3))
	job := f.Get("trainingjob", "mnist")
	assert.Equal(t, 3, job.Replicas)
	assert.Equal(t, string(jobs.HeldShrunk), job.Object.GetLabels()[api.LabelHeld])
	assert.Equal(t, "4", job.Object.GetAnnotations()[api.AnnotationHeldReplicas])
}

func TestTrainingJobWithoutAMaximumGrowsToWhatItHad(t *testing.T) {
	f := newFixture(t, strings.Replace(jobstest.TrainingJob, "      maxReplicas: 8\n", "", 1))
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	require.NoError(t, f.Registry.Resume(t.Context(), f.Get("trainingjob", "mnist"), 3))
	job := f.Get("trainingjob", "mnist")
	assert.Equal(t, []int{3, 4, 4}, []int{job.Replicas, job.Max, job.FullReplicas()})
}

// takeOffSuspended does what Resume does first.
func takeOffSuspended(f *jobstest.Fixture) {
	annotations := f.Object(resource, "mnist").GetAnnotations()
	delete(annotations, api.AnnotationSupervisorSuspended)
	rest := map[string]any{}
	for key, value := range annotations {
		rest[key] = value
	}
	f.Set(resource, "mnist", rest, "metadata", "annotations")
}

func TestTrainingJobResumedByALeaderThatDied(t *testing.T) {
	for _, reached := range []string{"annotation taken off", "status reset"} {
		f := newFixture(t, jobstest.TrainingJob)
		ctx := context.Background()
		require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
		takeOffSuspended(f)
		phase := map[string]string{"annotation taken off": "Suspended", "status reset": "Created"}[reached]
		f.Set(resource, "mnist", phase, "status", "phase")

		require.NoError(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 4), reached)
		job := f.Get("trainingjob", "mnist")
		assert.False(t, job.Suspended, reached)
		assert.Empty(t, job.Object.GetLabels(), reached)
	}
}

// The leader dies once it has restarted a job that it had told to stop, and then the job fails by itself.
func TestAFailureAfterARestartIsNotTakenForTheStopBeforeIt(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	f.Set(resource, "mnist", jobstest.EpochText, "metadata", "annotations", api.AnnotationStopRequested)
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	f.Dynamic.PrependReactor("patch", "trainingjobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetSubresource() == "status", nil, errors.New("the leader died")
	})
	require.Error(t, f.Registry.Resume(t.Context(), f.Get("trainingjob", "mnist"), 4))
	assert.False(t, f.Get("trainingjob", "mnist").StopRequested)
}

func TestTrainingJobResumedWithFewerWorkersByALeaderThatDiedIsLeftToGrow(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	takeOffSuspended(f)
	f.Set(resource, "mnist", int64(2), "spec", "etReplicaSpecs", "worker", "replicas")
	f.Set(resource, "mnist", map[string]any{"phase": "Created"}, "status")

	require.NoError(t, f.Registry.Resume(t.Context(), f.Get("trainingjob", "mnist"), 4))
	job := f.Get("trainingjob", "mnist")
	assert.Equal(t, jobs.HeldShrunk, job.HeldAs())
	assert.Equal(t, 4, job.FullReplicas(), "so that Grow brings the others back")
}
