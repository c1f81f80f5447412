package releaseall

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

// fixture is a cluster with jobs, and a releaser for it.
type fixture struct {
	*jobstest.Fixture
	releaser *releaser
}

func newFixture(t *testing.T, f flags, documents ...string) *fixture {
	t.Helper()
	fake := jobstest.New(t, systems.All, documents...)
	r, err := newReleaser(t.Context(), f, clients{fake.Kube, fake.Dynamic, fake.Metadata}, fake.Clock, io.Discard)
	require.NoError(t, err)
	return &fixture{fake, r}
}

// held returns the one held job.
func (f *fixture) held() heldJob {
	f.Helper()
	held, err := f.releaser.heldJobs(f.Context())
	require.NoError(f, err)
	require.Len(f, held, 1)
	return held[0]
}

// try takes one step with the one held job.
func (f *fixture) try() (outcome string, err error) {
	f.Helper()
	return f.releaser.tryUnholdJob(f.Context(), f.held(), f.Clock.Now())
}

// requireFree checks that the job has nothing of the autoscaler.
func (f *fixture) requireFree(system, name string) jobs.Job {
	f.Helper()
	job := f.Get(system, name)
	assert.NotContains(f, job.Object.GetLabels(), api.LabelHeld)
	for key := range job.Object.GetAnnotations() {
		ours := strings.HasPrefix(key, api.LabelHeld+"-") || key == api.AnnotationStopRequested
		assert.False(f, ours, key)
	}
	return job
}

func requireBusy(t *testing.T, err error, with string) {
	t.Helper()
	var busy *jobs.BusyError
	require.ErrorAs(t, err, &busy)
	assert.Contains(t, busy.With, with)
}

const podOfTrain = `
apiVersion: v1
kind: Pod
metadata:
  name: train-0
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: uid-train, controller: true}]
status: {phase: Running}
`

func TestASuspendedJobIsResumedOnceItsFormerPodsAreGone(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.IndexedJob, podOfTrain)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	_, err := f.try()
	requireBusy(t, err, "1 pods that have yet to end")
	assert.True(t, f.Get("job", "train").Suspended)

	require.NoError(t, f.Kube.CoreV1().Pods("ml").Delete(t.Context(), "train-0", metav1.DeleteOptions{}))
	outcome, err := f.try()
	require.NoError(t, err)
	assert.Equal(t, outcomeResumed, outcome)
	assert.False(t, f.requireFree("job", "train").Suspended)

	events, err := f.Kube.CoreV1().Events("ml").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, events.Items, 1)
	assert.Equal(t, "SpotJobResumed", events.Items[0].Reason)
	assert.Contains(t, events.Items[0].Message, "whether or not there is capacity")
	assert.EqualValues(t, "uid-train", events.Items[0].InvolvedObject.UID)

	again, err := f.releaser.heldJobs(t.Context())
	require.NoError(t, err)
	assert.Empty(t, again)
}

func TestPodsThatDoNotEndKeepNoJobSuspended(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.IndexedJob, podOfTrain)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	outcome, err := f.releaser.tryUnholdJob(t.Context(), f.held(), f.Clock.Now().Add(-endingTime))
	require.NoError(t, err)
	assert.Equal(t, outcomeResumed, outcome)
	assert.False(t, f.requireFree("job", "train").Suspended)
}

func TestAJobWhoseMaximumWaitWasOverIsLeftToItsOwner(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.TrainingJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("trainingjob", "mnist"), jobs.HeldForMaxWait))
	outcome, err := f.try()
	require.NoError(t, err)
	assert.Equal(t, outcomeSuspended, outcome)
	job := f.requireFree("trainingjob", "mnist")
	assert.True(t, job.Suspended)
	assert.Equal(t, "timeout", job.Object.GetAnnotations()[api.AnnotationSupervisorStatus], "as Elastic-Job-Supervisor leaves it")
}

func TestATrainingJobIsResumedOnceEtOperatorHasSuspendedIt(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.TrainingJob)
	resource := f.Resource("trainingjob")
	full := f.Get("trainingjob", "mnist").Replicas
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	_, err := f.try()
	requireBusy(t, err, "et-operator")

	f.Set(resource, "mnist", "Suspended", "status", "phase")
	_, err = f.try()
	require.NoError(t, err)
	job := f.requireFree("trainingjob", "mnist")
	assert.False(t, job.Suspended)
	assert.Equal(t, full, job.Replicas)
}

// A job that was asked to stop ends as a failure for et-operator: to remove the label would leave it failed.
func TestAJobThatEndedBecauseItWasAskedToIsSuspendedAndResumed(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.TrainingJob)
	resource := f.Resource("trainingjob")
	patch := f.releaser.cluster.HoldPatch(f.Get("trainingjob", "mnist"), jobs.HeldSuspended, jobs.HeldForReclaim).
		SetAnnotation(api.AnnotationStopRequested, jobstest.EpochText)
	require.NoError(t, f.releaser.cluster.PatchJob(t.Context(), resource, f.Get("trainingjob", "mnist"), patch))
	_, err := f.try()
	requireBusy(t, err, "save its work")

	f.Set(resource, "mnist", "Failed", "status", "phase")
	_, err = f.try()
	requireBusy(t, err, "suspension")
	assert.True(t, f.Get("trainingjob", "mnist").Suspended)

	f.Set(resource, "mnist", "Suspended", "status", "phase")
	_, err = f.try()
	require.NoError(t, err)
	assert.False(t, f.requireFree("trainingjob", "mnist").Suspended)
}

func TestAJobThatHasNotHeardTheRequestToStopRunsOn(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.TrainingJob)
	patch := f.releaser.cluster.HoldPatch(f.Get("trainingjob", "mnist"), jobs.HeldSuspended, jobs.HeldForReclaim).
		SetAnnotation(api.AnnotationStopRequested, jobstest.EpochText)
	require.NoError(t, f.releaser.cluster.PatchJob(t.Context(), f.Resource("trainingjob"), f.Get("trainingjob", "mnist"), patch))
	f.Clock.Step(stopTime)
	_, err := f.try()
	require.NoError(t, err)
	f.requireFree("trainingjob", "mnist")
}

func TestAShrunkJobIsGrownAndNoRequestStaysThatWouldDeleteItsWorkers(t *testing.T) {
	f := newFixture(t, flags{}, jobstest.TrainingJob)
	resource := f.Resource("trainingjob")
	job := f.Get("trainingjob", "mnist")
	targets, _, err := unstructured.NestedStringSlice(job.Object.Object, "status", "targetWorkers")
	require.NoError(t, err)
	require.NoError(t, f.Registry.Shrink(t.Context(), job, targets[3:]))
	f.Writes()
	f.Clock.Step(time.Minute)

	_, err = f.try() // the worker is gone, and et-operator has not begun
	requireBusy(t, err, "its workers, of which 0 of 4 exist")
	assert.Contains(t, strings.Join(f.Writes(), "\n"), "delete scaleins")

	remaining := make([]any, 0, len(targets))
	for _, name := range targets[:3] {
		remaining = append(remaining, name)
	}
	f.Set(resource, "mnist", remaining, "status", "targetWorkers")
	f.Set(resource, "mnist", remaining, "status", "currentWorkers")
	outcome, err := f.try()
	require.NoError(t, err)
	assert.Equal(t, outcomeGrows, outcome)
	assert.Contains(t, strings.Join(f.Writes(), "\n"), `create scaleouts`)
	f.requireFree("trainingjob", "mnist")
}

func TestAJobThatCannotBeResumedIsNamedAndTheRestGoesOn(t *testing.T) {
	second := strings.NewReplacer("name: train", "name: second", "uid: uid-train", "uid: uid-second").Replace(jobstest.IndexedJob)
	f := newFixture(t, flags{}, jobstest.IndexedJob, second, jobstest.PyTorchJob)
	for _, ref := range [][2]string{{"job", "train"}, {"job", "second"}, {"pytorchjob", "pytorch"}} {
		list, err := f.Dynamic.Resource(f.Resource(ref[0])).Namespace("ml").List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		for _, item := range list.Items {
			require.NoError(t, f.Registry.Suspend(t.Context(), f.Get(ref[0], item.GetName()), jobs.HeldForReclaim))
		}
	}
	f.Dynamic.PrependReactor("patch", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.PatchAction).GetName() != "train" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("jobs"), "train", errors.New("their webhook says no"))
	})
	f.Dynamic.PrependReactor("list", "rayjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("rayjobs"), "", errors.New("no verb"))
	})
	err := f.releaser.unholdJobs(t.Context(), sets.New[string]())
	assert.ErrorContains(t, err, "held jobs of rayjobs.ray.io are not resumed")
	require.Len(t, f.releaser.report.Jobs, 3)
	for _, job := range f.releaser.report.Jobs {
		if job.Job == "job/ml/train" {
			assert.Contains(t, job.Error, "their webhook says no")
			assert.NotEmpty(t, f.Get("job", "train").HeldAs(), "for the next try")
			continue
		}
		assert.Empty(t, job.Error, job.Job)
		assert.Equal(t, outcomeResumed, job.Outcome, job.Job)
	}
	f.requireFree("job", "second")
	assert.True(t, f.releaser.report.failed())
}

func TestAJobThatCannotBeReadIsNamed(t *testing.T) {
	f := newFixture(t, flags{}, strings.Replace(jobstest.TrainingJob, "metadata:\n", "metadata:\n  labels: {gpu-spot.autoscaling/held: suspended}\n", 1))
	f.Set(f.Resource("trainingjob"), "mnist", "much", "spec", "etReplicaSpecs", "worker", "replicas")
	require.NoError(t, f.releaser.unholdJobs(t.Context(), sets.New[string]()))
	require.Len(t, f.releaser.report.Jobs, 1)
	assert.Contains(t, f.releaser.report.Jobs[0].Error, "spec.etReplicaSpecs.worker")
}

func TestADryRunOfHeldJobsWritesNothing(t *testing.T) {
	f := newFixture(t, flags{dryRun: true}, jobstest.IndexedJob, podOfTrain)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Writes()
	require.NoError(t, f.releaser.unholdJobs(t.Context(), sets.New[string]()))
	assert.Equal(t, []Job{{Job: "job/ml/train", Held: "suspended", Reason: "reclaim", Outcome: outcomeResumed}}, f.releaser.report.Jobs)
	assert.Empty(t, f.Writes())
}
