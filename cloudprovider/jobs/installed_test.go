package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

// eventuallyHeld waits until just these jobs are held, and changes to them are heard of.
func eventuallyHeld(f *jobstest.Fixture, want ...string) {
	f.Helper()
	f.Eventually(func() bool { return slices.Equal(heldNames(f), want) && f.IsWatching() }, fmt.Sprint(want))
}

// heldNames are the names of the jobs that are held, sorted.
func heldNames(f *jobstest.Fixture) []string {
	names := []string{}
	for _, job := range f.Registry.Held(context.Background()) {
		names = append(names, job.Ref.String())
	}
	slices.Sort(names)
	return names
}

// watched are the resources of jobs that were listed since the last call.
func watched(f *jobstest.Fixture) []string {
	var resources []string
	for _, action := range f.Dynamic.Actions() {
		if action.GetVerb() == "watch" {
			resources = append(resources, action.GetResource().GroupResource().String())
		}
	}
	f.Dynamic.ClearActions()
	slices.Sort(resources)
	return resources
}

func held(document string) string {
	return strings.Replace(document, "metadata:\n", "metadata:\n  labels: {gpu-spot.autoscaling/held: suspended}\n", 1)
}

func TestSystemsAreSwitchedOnAndOffWithTheirDefinitions(t *testing.T) {
	f := newFixture(t, held(jobstest.TrainingJob), held(jobstest.IndexedJob))
	require.False(t, f.Registry.HasSynced())
	f.Run()
	eventuallyHeld(f, "job/ml/train")
	assert.Equal(t, []string{"jobs.batch", "jobs.batch"}, watched(f), "those held and those to grow; what is not installed costs nothing")
	_, err := f.Registry.Get(t.Context(), jobstest.Ref("trainingjob", "mnist"))
	require.ErrorIs(t, err, jobs.ErrNoObject)
	assert.Empty(t, f.Dynamic.Actions(), "nor is it asked for")

	f.Serve("trainingjob")
	f.Define("widgets.example.com")
	f.Define("trainingjobs.kai.alibabacloud.com")
	eventuallyHeld(f, "job/ml/train", "trainingjob/ml/mnist")
	f.Eventually(func() bool { return f.Registry.HasSynced() && f.IsWatching() }, "watched")
	assert.Equal(t, []string{"trainingjobs.kai.alibabacloud.com", "trainingjobs.kai.alibabacloud.com"}, watched(f))
	assert.EqualValues(t, 1, testutil.ToFloat64(jobs.SystemsInstalled.WithLabelValues("trainingjob")))
	assert.Equal(t, 4, f.Get("trainingjob", "mnist").Replicas)

	ended := f.Registry.WatchEnded("trainingjob")
	f.Undefine("trainingjobs.kai.alibabacloud.com")
	eventuallyHeld(f, "job/ml/train")
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("its informer goes on")
	}
	f.Eventually(func() bool { return testutil.ToFloat64(jobs.SystemsInstalled.WithLabelValues("trainingjob")) == 0 }, "the gauge says so")
	require.ErrorIs(t, f.Registry.Suspend(t.Context(), jobs.Job{Ref: jobstest.Ref("trainingjob", "mnist")}, jobs.HeldForReclaim), jobs.ErrNoObject)

	f.Define("trainingjobs.kai.alibabacloud.com")
	eventuallyHeld(f, "job/ml/train", "trainingjob/ml/mnist")
}

func TestOfTwoVersionsTheOneThatIsServedIsOn(t *testing.T) {
	f := newFixture(t)
	f.Serve("mpijob-v1")
	f.Define("mpijobs.kubeflow.org")
	f.Run()
	assert.True(t, f.Registry.IsInstalled("mpijob-v1"))
	assert.False(t, f.Registry.IsInstalled("mpijob"))
}

func TestASystemThatIsNotServedYetIsLookedAtAgain(t *testing.T) {
	f := newFixture(t)
	answer := discoveryAnswers(f, apierrors.NewNotFound(schema.GroupResource{}, ""))
	f.Serve("pytorchjob")
	f.Define("pytorchjobs.kubeflow.org")
	f.Run()
	require.False(t, f.Registry.IsInstalled("pytorchjob"))
	answer(nil)
	f.Eventually(func() bool {
		f.Clock.Step(100 * time.Millisecond)
		return f.Registry.IsInstalled("pytorchjob")
	}, "on")
}

// discoveryAnswers has the API server answer with the error when it is asked what it serves, nil for none. It returns what changes that.
func discoveryAnswers(f *jobstest.Fixture, err error) (change func(error)) {
	var answer atomic.Pointer[error]
	answer.Store(&err)
	f.Kube.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
		err := *answer.Load()
		return err != nil, nil, err
	})
	return func(err error) { answer.Store(&err) }
}

func TestASystemIsTakenToBeInstalledAsLongAsThatCannotBeFoundOut(t *testing.T) {
	f := newFixture(t, jobstest.PyTorchJob)
	answer := discoveryAnswers(f, apierrors.NewServiceUnavailable("away"))
	f.Serve("pytorchjob")
	f.Define("pytorchjobs.kubeflow.org")
	f.Start()
	f.Eventually(func() bool { return !f.Registry.IsInstalled("mpijob") && len(f.Kube.Actions()) > 0 }, "looked at")
	_, err := f.Registry.Get(t.Context(), jobstest.Ref("pytorchjob", "bert"))
	require.NoError(t, err, "or its pods would be evicted without a word to its operator")
	assert.False(t, f.Registry.HasSynced(), "its held jobs are not known")
	answer(nil)
	f.Eventually(func() bool {
		f.Clock.Step(100 * time.Millisecond)
		return f.Registry.HasSynced() && f.IsWatching()
	}, "known")
	assert.True(t, f.Registry.IsInstalled("pytorchjob"))
}

func TestASystemIsOffFromWhenItsDefinitionIsBeingDeleted(t *testing.T) {
	f := newFixture(t)
	f.Serve("pytorchjob")
	f.Define("pytorchjobs.kubeflow.org")
	f.Run()
	require.True(t, f.Registry.IsInstalled("pytorchjob"))
	f.DefinitionIsBeingDeleted("pytorchjobs.kubeflow.org")
	f.Eventually(func() bool { return !f.Registry.IsInstalled("pytorchjob") }, "off")
}
