package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func TestHeldLabelOfTheClusterOfARayJobIsNotItsOwn(t *testing.T) {
	heldCluster := func(metadata string) string {
		return strings.Replace(jobstest.RayCluster, "{name: rc, uid: uid-rc}", "{labels: {gpu-spot.autoscaling/held: suspended}, "+metadata+"}", 1)
	}
	f := newFixture(t, heldCluster("name: rc, uid: uid-rc"),
		heldCluster("name: copy, uid: uid-copy, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: train, uid: uid-train, controller: true}]"))
	f.Run()
	f.Serve("raycluster")
	f.Define("rayclusters.ray.io")
	eventuallyHeld(f, "raycluster/ml/rc")
}

func TestHeldJobsThatAreMalformedAreNotForgotten(t *testing.T) {
	f := newFixture(t, held(strings.Replace(jobstest.IndexedJob, "parallelism: 4", "parallelism: four", 1)))
	f.Run()
	eventuallyHeld(f, "job/ml/train")
	job := f.Registry.Held(t.Context())[0]
	assert.Zero(t, job.Replicas)
	assert.EqualValues(t, "uid-train", job.UID)
	assert.NotNil(t, job.Object)
	wrong := (*jobs.FieldError)(nil)
	require.ErrorAs(t, job.Problem, &wrong)
	assert.Equal(t, "spec.parallelism", wrong.Path)
}

func TestJobsLeaveHeldWhenTheirLabelDoes(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	f.Run()
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	eventuallyHeld(f, "job/ml/train")
	require.NoError(t, f.Registry.Resume(t.Context(), f.Get("job", "train"), 4))
	eventuallyHeld(f)
}

func TestAJobThatSomebodyElseResumedIsNoLongerHeldAndItsOwnerIsTold(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Events()
	busy := (*jobs.BusyError)(nil)
	require.ErrorAs(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")), &busy, "it was suspended anew meanwhile")
	assert.NotEmpty(t, f.Object(f.Resource("job"), "train").GetLabels())
	assert.Empty(t, f.Events())

	f.Set(f.Resource("job"), "train", false, "spec", "suspend")
	require.NoError(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")))
	assert.Empty(t, f.Object(f.Resource("job"), "train").GetLabels())
	assert.Equal(t, []string{"SpotJobResumedByOther"}, f.Events(), "not that there is capacity")

	require.NoError(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")))
	assert.Empty(t, f.Events(), "the same again")
}

func TestHeldLabelIsRemovedOnlyFromAJobThatHasEnded(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Writes()
	f.Events()
	busy := (*jobs.BusyError)(nil)
	require.ErrorAs(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")), &busy)
	require.Empty(t, f.Writes(), "it is to be resumed")

	f.Set(f.Resource("job"), "train", []any{map[string]any{"type": "Failed", "status": "True"}}, "status", "conditions")
	require.NoError(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")))
	stored := f.Object(f.Resource("job"), "train")
	assert.Empty(t, stored.GetLabels())
	for key := range stored.GetAnnotations() {
		assert.NotContains(t, key, api.LabelHeld)
	}
	assert.Empty(t, f.Events())
	f.Writes()
	require.NoError(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")))
	assert.Empty(t, f.Writes(), "the same again")
}

func TestCallsAreBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, jobstest.IndexedJob)
		job := f.Get("job", "train")
		config := f.Config
		config.Timeout, config.Systems = 3*time.Second, []jobs.System{&slowSystem{System: f.System("job")}}
		f.Renew(config)
		before := testutil.ToFloat64(jobs.JobActions.WithLabelValues("job", "suspend", "timeout"))
		began := time.Now()
		require.ErrorIs(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim), context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, before+1, testutil.ToFloat64(jobs.JobActions.WithLabelValues("job", "suspend", "timeout")))
		assert.Empty(t, f.Events())

		f.Set(f.Resource("job"), "train", true, "spec", "suspend")
		f.Set(f.Resource("job"), "train", map[string]any{api.LabelHeld: string(jobs.HeldSuspended)}, "metadata", "labels")
		began = time.Now()
		require.ErrorIs(t, f.Registry.Resume(context.Background(), f.Get("job", "train"), 4), context.DeadlineExceeded)
		assert.Equal(t, 12*time.Second, time.Since(began), "it would be tried again only later")
	})
}

// slowSystem never answers.
type slowSystem struct{ jobs.System }

func (*slowSystem) Suspend(ctx context.Context, _ jobs.Job, _ jobs.HoldReason) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (*slowSystem) Resume(ctx context.Context, _ jobs.Job, _ int) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func TestFailuresAreToldAndCounted(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	job := f.Get("job", "train")
	before := testutil.ToFloat64(jobs.JobActions.WithLabelValues("job", "suspend", "failed"))
	f.Dynamic.PrependReactor("patch", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "train", errors.New("no"))
	})
	err := f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim)
	require.ErrorContains(t, err, "suspend job/ml/train")
	assert.True(t, apierrors.IsForbidden(err))
	assert.Equal(t, before+1, testutil.ToFloat64(jobs.JobActions.WithLabelValues("job", "suspend", "failed")))
	assert.Empty(t, f.Events())
}

func TestAJobThatIsGoneHasNoObject(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	job := f.Get("job", "train")
	require.NoError(t, f.Dynamic.Tracker().Delete(f.Resource("job"), "ml", "train"))
	require.ErrorIs(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim), jobs.ErrNoObject)
	_, err := f.Registry.Get(context.Background(), job.Ref)
	require.ErrorIs(t, err, jobs.ErrNoObject)
	_, err = f.Registry.Get(context.Background(), jobstest.Ref(jobs.SystemPod, "any"))
	require.ErrorIs(t, err, jobs.ErrNoObject)
}

func TestAJobThatWasMadeAnewIsNotTheOneThatWasMeant(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	job := f.Get("job", "train")
	job.UID = "of-the-one-before"
	require.ErrorIs(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim), jobs.ErrNoObject)
	assert.Empty(t, f.Writes())
}

func TestAPatchOfAJobThatWasMadeAnewMeanwhileIsToldFromOtherFailures(t *testing.T) {
	kind, resource := schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupResource{Group: "batch", Resource: "jobs"}
	invalid := func(path ...string) error {
		at := field.NewPath(path[0], path[1:]...)
		return apierrors.NewInvalid(kind, "train", field.ErrorList{field.Invalid(at, "uid-train", "field is immutable")})
	}
	for name, test := range map[string]struct {
		err    error
		isGone bool
	}{
		"another has its name": {invalid("metadata", "uid"), true},
		"a field is malformed": {invalid("spec", "suspend"), false},
		"a conflict":           {apierrors.NewConflict(resource, "train", errors.New("the object has been modified")), false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, jobstest.IndexedJob)
			f.Dynamic.PrependReactor("patch", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
			err := f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim)
			require.ErrorIs(t, err, test.err)
			assert.Equal(t, test.isGone, errors.Is(err, jobs.ErrNoObject))
		})
	}
}

func TestJobsOfKueueAreLeftToIt(t *testing.T) {
	f := newFixture(t, strings.Replace(jobstest.IndexedJob, "metadata:\n", "metadata:\n  labels: {kueue.x-k8s.io/queue-name: gpu, gpu-spot.autoscaling/held: suspended}\n", 1))
	job := f.Get("job", "train")
	require.ErrorIs(t, f.Registry.Suspend(context.Background(), job, jobs.HeldForReclaim), jobs.ErrUnsupported)
	require.ErrorIs(t, f.Registry.Resume(context.Background(), job, 4), jobs.ErrUnsupported)
	assert.Empty(t, f.Writes())
}

func TestAWarningIsAnEventOnTheJob(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	require.NoError(t, f.Registry.Warn(context.Background(), f.Get("job", "train"), jobs.Warning{ID: "r-1", Deadline: jobstest.Epoch}))
	event := <-f.Recorder.Events
	assert.Equal(t, "Warning SpotJobWarned Nodes of the job are released from "+jobstest.EpochText+"; checkpoint r-1 is asked for", event)
}

func TestWhatBelongsTogetherWhereNoSystemSays(t *testing.T) {
	jobstest.CheckMembers(newFixture(t), map[string]jobs.Membership{
		"alone":    jobstest.Member(jobs.SystemPod, "alone", jobs.RoleWorker),
		"of-a-set": jobstest.Member(jobs.SystemPod, "replicaset.web-5d4", jobs.RoleWorker),
		"named":    jobstest.Member(jobs.SystemPod, "train", jobs.RoleHost),
		"odd":      jobstest.Member(jobs.SystemPod, "odd", jobs.RoleWorker),
	},
		`{kind: Pod, metadata: {name: alone}}`,
		`{kind: Pod, metadata: {name: of-a-set, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4, uid: u, controller: true}]}}`,
		`{kind: Pod, metadata: {name: named, annotations: {gpu-spot.autoscaling/job: train, gpu-spot.autoscaling/role: host},
		  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4, uid: u, controller: true}]}}`,
		`{kind: Pod, metadata: {name: odd, annotations: {gpu-spot.autoscaling/role: captain}}}`,
	)
}

func TestLaunchersAreToldOnceWorkersHaveGone(t *testing.T) {
	delays := []time.Duration{time.Millisecond, 2 * time.Millisecond}
	t.Cleanup(jobs.SetRefreshHostsAfter(delays...))
	copied := `{kind: Pod, metadata: {name: theirs, labels: {training.kubeflow.org/operator-name: mpi-operator, training.kubeflow.org/job-name: tf,
	  training.kubeflow.org/job-role: launcher}}, status: {phase: Running}}`
	f := newFixture(t, jobstest.ElasticMPIJob, jobstest.MPILauncher, copied)
	config := f.Config
	config.Cluster.Clock = clock.RealClock{}
	f.Renew(config)
	f.Serve("mpijob")
	f.Define("mpijobs.kubeflow.org")
	f.Run()
	require.NoError(t, f.Registry.Shrink(t.Context(), f.Get("mpijob", "tf"), []string{"tf-worker-1"}))
	patches := func() int {
		return len(slices.DeleteFunc(f.Kube.Actions(), func(action clienttesting.Action) bool { return action.GetVerb() != "patch" }))
	}
	f.Eventually(func() bool { return patches() == len(delays) }, "each time")
	theirs, err := f.Kube.CoreV1().Pods("ml").Get(t.Context(), "theirs", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, theirs.Annotations, "it only says that it is a launcher")
	for _, write := range f.Writes() {
		assert.Equal(t, `patch pods {"metadata":{"annotations":{"gpu-spot.autoscaling/hosts-refreshed":"`+jobstest.EpochText+`"},"uid":"uid-launcher"}}`, write)
	}
}

func TestMemberIsTotalAndDoesNotChangeThePod(t *testing.T) {
	f := newFixture(t)
	pod := &corev1.Pod{}
	assert.Equal(t, jobs.Membership{Ref: jobs.Ref{System: jobs.SystemPod}, Role: jobs.RoleWorker}, f.Registry.Member(pod))
	assert.Equal(t, &corev1.Pod{}, pod)
}

// countingSystem counts how often jobs are read.
type countingSystem struct {
	jobs.System
	reads atomic.Int32
}

func (s *countingSystem) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	s.reads.Add(1)
	return s.System.Read(object)
}

func TestHeldJobsAreReadAgainOnlyOnceTheyHaveChanged(t *testing.T) {
	f := newFixture(t, held(jobstest.IndexedJob))
	system := &countingSystem{System: f.System("job")}
	config := f.Config
	config.Systems = []jobs.System{system}
	f.Renew(config)
	f.Set(system.Resource(), "train", []any{map[string]any{"manager": "kubectl"}}, "metadata", "managedFields")
	f.Run()
	for range 3 {
		require.Equal(t, []string{"job/ml/train"}, heldNames(f))
	}
	assert.EqualValues(t, 1, system.reads.Load())
	assert.Empty(t, f.Registry.Held(t.Context())[0].Object.GetManagedFields(), "which nobody looks at")

	f.Set(system.Resource(), "train", int64(3), "spec", "parallelism")
	f.Eventually(func() bool { return f.Registry.Held(t.Context())[0].Replicas == 3 }, "the change is seen")
	assert.EqualValues(t, 2, system.reads.Load())
}

// A new leader finds a job that its owner has resumed, and a handshake suspends it before the leader comes to it.
func TestAJobThatIsSuspendedAnewIsNotResumed(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Set(f.Resource("job"), "train", false, "spec", "suspend")
	job := f.Get("job", "train")
	f.Set(f.Resource("job"), "train", true, "spec", "suspend")
	f.Writes()
	require.ErrorAs(t, f.Registry.Resume(t.Context(), job, 4), new(*jobs.BusyError))
	assert.Empty(t, f.Writes())
}

// A Volcano job, for example, is suspended by a Command after its label was written.
func TestAJobThatIsHeldAnewSinceItWasFoundRunningKeepsItsLabel(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Set(f.Resource("job"), "train", false, "spec", "suspend")
	found := f.Get("job", "train")
	f.Set(f.Resource("job"), "train", "2026-05-01T09:00:00Z", "metadata", "annotations", api.AnnotationHeldSince)
	f.Writes()
	require.ErrorAs(t, f.Registry.Unhold(t.Context(), found), new(*jobs.BusyError))
	require.ErrorAs(t, f.Registry.Resume(t.Context(), found, 4), new(*jobs.BusyError))
	assert.Empty(t, f.Writes())
}

func TestAJobThatIsSuspendedWhileItIsUnheldKeepsItsLabel(t *testing.T) {
	f := newFixture(t, jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Set(f.Resource("job"), "train", false, "spec", "suspend")
	f.Set(f.Resource("job"), "train", "7", "metadata", "resourceVersion")
	f.Dynamic.PrependReactor("patch", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		isConditional := strings.Contains(string(action.(clienttesting.PatchAction).GetPatch()), `"resourceVersion":"7"`)
		return isConditional, nil, apierrors.NewConflict(f.Resource("job").GroupResource(), "train", nil)
	})
	require.ErrorAs(t, f.Registry.Resume(t.Context(), f.Get("job", "train"), 4), new(*jobs.BusyError))
	require.ErrorAs(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")), new(*jobs.BusyError))
	assert.Equal(t, jobs.HeldSuspended, f.Get("job", "train").HeldAs())
}
