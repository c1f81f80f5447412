package etjob

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

const heldPatch = `"metadata":{"annotations":{"gpu-spot.autoscaling/held-reason":"reclaim","gpu-spot.autoscaling/held-replicas":"4",` +
	`"gpu-spot.autoscaling/held-since":"` + jobstest.EpochText + `"},"labels":{"gpu-spot.autoscaling/held":"%s"},"uid":"uid-mnist"}`

func TestTrainingJobShrinksByOneScaleInOfTheNamedPods(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	job := f.Get("trainingjob", "mnist")
	reclaiming := []string{"mnist-worker-3", "mnist-worker-1", "mnist-worker-1", "mnist-launcher", "another-worker-0"}
	require.NoError(t, f.Registry.Shrink(context.Background(), job, reclaiming))

	writes := f.Writes()
	require.Len(t, writes, 2)
	assert.Equal(t, "patch trainingjobs {"+fmt.Sprintf(heldPatch, "shrunk")+"}", writes[0], "marked first: a crash leaves a job that is found again")
	assert.Regexp(t, `^create scaleins mnist-spot-in-[0-9a-f]{10}-0 {"selector":{"name":"mnist"},"toDelete":{"podNames":\["mnist-worker-1","mnist-worker-3"]}}$`, writes[1])
	name := strings.Fields(writes[1])[2]
	assert.Empty(t, f.Object(scaleIns, name).GetOwnerReferences(), "the operator sets it, and with it the status that it needs")
	assert.Equal(t, []string{jobs.ReasonShrunk}, f.Events())

	require.NoError(t, f.Registry.Shrink(context.Background(), job, reclaiming))
	assert.Empty(t, f.Writes(), "the same again")
	assert.Empty(t, f.Events())

	var busy *jobs.BusyError
	require.ErrorAs(t, f.Registry.Shrink(context.Background(), job, []string{"mnist-worker-0"}), &busy)
	assert.Equal(t, "ScaleIn "+name, busy.With)
	assert.Empty(t, f.Writes(), "one at a time")
}

func TestTrainingJobIsNotShrunkBelowItsMinimum(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	err := f.Registry.Shrink(context.Background(), f.Get("trainingjob", "mnist"), []string{"mnist-worker-1", "mnist-worker-2", "mnist-worker-3"})
	require.ErrorIs(t, err, jobs.ErrUnsupported)
	assert.Empty(t, f.Writes())
}

func TestTrainingJobThatIsBeingGrownIsShrunkAfterwards(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob, `{apiVersion: kai.alibabacloud.com/v1alpha1, kind: ScaleOut, metadata: {name: growth},
		spec: {selector: {name: mnist}, toAdd: {count: 2}}, status: {addPods: [mnist-worker-4, mnist-worker-5]}}`)
	var busy *jobs.BusyError
	err := f.Registry.Shrink(context.Background(), f.Get("trainingjob", "mnist"), []string{"mnist-worker-1", "mnist-worker-2", "mnist-worker-3"})
	require.ErrorAs(t, err, &busy, "the new workers are about to count")
	assert.Empty(t, f.Writes())
}

func TestTrainingJobGrowsByOneScaleOutAndIsThenWhole(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	ctx := context.Background()
	require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), []string{"mnist-worker-2", "mnist-worker-3"}))
	scaleIn := strings.Fields(f.Writes()[1])[2]
	var busy *jobs.BusyError
	require.ErrorAs(t, f.Registry.Grow(ctx, f.Get("trainingjob", "mnist"), 4), &busy, "it has all its workers, but the ScaleIn has yet to begin")
	assert.Equal(t, string(jobs.HeldShrunk), f.Object(resource, "mnist").GetLabels()[api.LabelHeld])
	end(f, scaleIns, scaleIn, "ScaleSucceeded")
	f.Set(resource, "mnist", []any{"mnist-worker-0", "mnist-worker-1"}, "status", "targetWorkers")
	f.Events()

	shrunk := f.Get("trainingjob", "mnist")
	assert.Equal(t, 2, shrunk.Replicas)
	f.Writes()
	require.NoError(t, f.Registry.Grow(ctx, shrunk, 4))
	writes := f.Writes()
	require.Len(t, writes, 1)
	assert.Regexp(t, `^create scaleouts mnist-spot-out-[0-9a-f]{10}-0 {"selector":{"name":"mnist"},"timeout":300,"toAdd":{"count":2}}$`, writes[0])
	require.NoError(t, f.Registry.Grow(ctx, shrunk, 4))
	assert.Empty(t, f.Writes(), "the same again")

	end(f, scaleOuts, strings.Fields(writes[0])[2], "ScaleSucceeded")
	f.Set(resource, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-worker-3"}, "status", "targetWorkers")
	f.Writes()
	require.NoError(t, f.Registry.Grow(ctx, shrunk, 4))
	assert.Len(t, f.Writes(), 1)
	assert.Empty(t, f.Object(resource, "mnist").GetLabels())

	// Worker 2 has its name from the first one of it. It is lost once more.
	require.NoError(t, f.Registry.Shrink(ctx, shrunk, []string{"mnist-worker-2", "mnist-worker-3"}))
	again := f.Writes()
	require.Len(t, again, 2)
	assert.Contains(t, again[1], strings.TrimSuffix(scaleIn, "-0")+"-1 ")
}

func TestTrainingJobThatIsShrunkOnceMoreKeepsWhatItHadAtFirst(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	ctx := context.Background()
	for i, worker := range []string{"mnist-worker-3", "mnist-worker-2"} {
		f.Clock.SetTime(jobstest.Epoch.Add(time.Duration(i) * time.Hour))
		require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), []string{worker}))
		end(f, scaleIns, strings.Fields(f.Writes()[1])[2], "ScaleSucceeded")
		f.Set(resource, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2"}[:3-i], "status", "targetWorkers")
	}
	annotations := f.Object(resource, "mnist").GetAnnotations()
	assert.Equal(t, "4", annotations[api.AnnotationHeldReplicas])
	assert.Equal(t, "2026-05-01T09:00:00Z", annotations[api.AnnotationHeldSince])

	f.Set(resource, "mnist", "Suspended", "status", "phase")
	f.Writes()
	require.NoError(t, f.Registry.Shrink(ctx, f.Get("trainingjob", "mnist"), []string{"mnist-worker-1"}))
	require.NoError(t, f.Registry.Grow(ctx, f.Get("trainingjob", "mnist"), 4))
	assert.Empty(t, f.Writes(), "suspended, it has no workers to lose or to gain")
}

func TestTrainingJobThatIsWholeAgainAsksForAllItsWorkers(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, jobstest.TrainingJob)
	require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	require.NoError(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 2))
	f.Set(resource, "mnist", "Running", "status", "phase")
	f.Set(resource, "mnist", []any{"a", "b"}, "status", "targetWorkers")
	require.NoError(t, f.Registry.Grow(ctx, f.Get("trainingjob", "mnist"), 4))
	require.Len(t, scalers(f), 1)
	f.Set(resource, "mnist", []any{"a", "b", "c", "d"}, "status", "targetWorkers") // the operator has begun it anew
	require.NoError(t, f.Registry.Grow(ctx, f.Get("trainingjob", "mnist"), 4))
	assert.Empty(t, scalers(f), "it would have more workers than it asks for")
	job := f.Get("trainingjob", "mnist")
	assert.Empty(t, job.HeldAs())
	replicas, _, _ := unstructured.NestedInt64(job.Object.Object, workerReplicas()...)
	assert.EqualValues(t, 4, replicas, "or it would begin with two when it fails")
}

// end gives a scaler the condition with which the operator ends it.
func end(f *jobstest.Fixture, resource schema.GroupVersionResource, name, condition string) {
	f.Helper()
	f.Set(resource, name, []any{map[string]any{"type": condition, "status": "True"}}, "status", "conditions")
	f.Set(resource, name, f.Clock.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
	f.Writes()
}

func TestTrainingJobThatLostAWorkerSinceIsNotGrownWhereOnlyItsLabelWasToGo(t *testing.T) {
	f := newFixture(t, jobstest.Labelled(t, jobstest.TrainingJob, api.LabelHeld, string(jobs.HeldShrunk)))
	job := f.Get("trainingjob", "mnist")
	require.Equal(t, 4, job.Replicas)
	f.Set(resource, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2"}, "status", "currentWorkers")
	f.Writes()
	require.ErrorAs(t, f.Registry.Grow(t.Context(), job, 4), new(*jobs.BusyError), "capacity for a fourth is to be found first")
	assert.Empty(t, f.Writes())
	assert.Empty(t, f.Events())
}

func TestTrainingJobThatIsSuspendedWhileItsGrowthEndsKeepsItsLabel(t *testing.T) {
	f := newFixture(t, jobstest.Labelled(t, jobstest.TrainingJob, api.LabelHeld, string(jobs.HeldShrunk)))
	f.Set(resource, "mnist", "7", "metadata", "resourceVersion")
	f.Dynamic.PrependReactor("patch", "trainingjobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		isConditional := strings.Contains(string(action.(clienttesting.PatchAction).GetPatch()), `"resourceVersion":"7"`)
		return isConditional, nil, apierrors.NewConflict(resource.GroupResource(), "mnist", nil)
	})
	require.ErrorAs(t, f.Registry.Grow(t.Context(), f.Get("trainingjob", "mnist"), 4), new(*jobs.BusyError))
	assert.Equal(t, jobs.HeldShrunk, f.Get("trainingjob", "mnist").HeldAs())
}
