package jobs

import (
	"context"
	"errors"
	"fmt"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// run runs the registry until the test ends. Informers do not work in a synctest bubble: what they bring about is waited
// for with eventually.
func (w *world) run() {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.registry.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		assert.NoError(w, <-ended)
	})
	w.eventually(w.registry.HasSynced, "synced")
}

// eventually waits until the condition holds.
func (w *world) eventually(condition func() bool, what string) {
	w.Helper()
	require.Eventually(w, condition, 20*time.Second, 5*time.Millisecond, what)
}

// eventuallyHeld waits until just these jobs are held.
func (w *world) eventuallyHeld(want ...string) {
	w.Helper()
	w.eventually(func() bool { return slices.Equal(w.heldNames(), want) }, fmt.Sprint(want))
}

// heldNames are the names of the jobs that are held, sorted.
func (w *world) heldNames() []string {
	names := []string{}
	for _, job := range w.registry.Held() {
		names = append(names, job.Ref.String())
	}
	slices.Sort(names)
	return names
}

// watched are the resources of jobs that were listed since the last call.
func (w *world) watched() []string {
	var resources []string
	for _, action := range w.dynamic.Actions() {
		if action.GetVerb() == "watch" {
			resources = append(resources, action.GetResource().GroupResource().String())
		}
	}
	w.dynamic.ClearActions()
	slices.Sort(resources)
	return resources
}

func held(document string) string {
	return strings.Replace(document, "metadata:\n", "metadata:\n  labels: {gpu-spot.autoscaling/held: suspended}\n", 1)
}

func TestSystemsAreSwitchedOnAndOffWithTheirDefinitions(t *testing.T) {
	w := newWorld(t, held(etJob), held(indexedJob))
	require.False(t, w.registry.HasSynced())
	w.run()
	w.eventuallyHeld("job/ml/train")
	assert.Equal(t, []string{"jobs.batch"}, w.watched(), "what is not installed costs nothing")
	_, err := w.registry.Get(t.Context(), refOf("trainingjob", "mnist"))
	require.ErrorIs(t, err, ErrNoObject)
	assert.Empty(t, w.dynamic.Actions(), "nor is it asked for")

	w.serve("trainingjob")
	w.define("widgets.example.com")
	w.define("trainingjobs.kai.alibabacloud.com")
	w.eventuallyHeld("job/ml/train", "trainingjob/ml/mnist")
	assert.Equal(t, []string{"trainingjobs.kai.alibabacloud.com"}, w.watched())
	assert.EqualValues(t, 1, testutil.ToFloat64(systemsOn.WithLabelValues("trainingjob")))
	assert.Equal(t, 4, w.get("trainingjob", "mnist").Replicas)

	service := w.registry.service("trainingjob")
	w.undefine("trainingjobs.kai.alibabacloud.com")
	w.eventuallyHeld("job/ml/train")
	select {
	case <-service.ended:
	case <-time.After(20 * time.Second):
		t.Error("its informer goes on")
	}
	w.eventually(func() bool { return testutil.ToFloat64(systemsOn.WithLabelValues("trainingjob")) == 0 }, "the gauge says so")
	require.ErrorIs(t, w.registry.Suspend(t.Context(), Job{Ref: refOf("trainingjob", "mnist")}, ReasonReclaim), ErrNoObject)

	w.define("trainingjobs.kai.alibabacloud.com")
	w.eventuallyHeld("job/ml/train", "trainingjob/ml/mnist")
}

// service is the informer of a system.
func (s *services) service(system string) *service {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for adapter, service := range s.running {
		if adapter.System() == system {
			return service
		}
	}
	return nil
}

func TestOfTwoVersionsTheOneThatIsServedIsOn(t *testing.T) {
	w := newWorld(t)
	w.serve("mpijob-v1")
	w.define("mpijobs.kubeflow.org")
	w.run()
	assert.True(t, w.registry.on("mpijob-v1"))
	assert.False(t, w.registry.on("mpijob"))
}

func TestSystemsThatAreNotServedYetAreLookedAtAgain(t *testing.T) {
	for name, answer := range map[string]error{
		"established later": apierrors.NewNotFound(schema.GroupResource{}, ""), "discovery fails": apierrors.NewServiceUnavailable("away"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var served atomic.Bool
			w.kube.PrependReactor("get", "resource", func(clienttesting.Action) (bool, runtime.Object, error) {
				return !served.Load(), nil, answer
			})
			w.serve("pytorchjob")
			w.define("pytorchjobs.kubeflow.org")
			w.run()
			require.False(t, w.registry.on("pytorchjob"))
			served.Store(true)
			w.eventually(func() bool { return w.registry.on("pytorchjob") }, "on")
		})
	}
}

func TestASystemIsOffFromWhenItsDefinitionIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	w.serve("pytorchjob")
	w.define("pytorchjobs.kubeflow.org")
	w.run()
	require.True(t, w.registry.on("pytorchjob"))
	object, err := w.metadata.Tracker().Get(definitions, "", "pytorchjobs.kubeflow.org")
	require.NoError(t, err)
	definition := object.(*metav1.PartialObjectMetadata)
	definition.DeletionTimestamp, definition.Finalizers = new(metav1.Now()), []string{"customresourcecleanup.apiextensions.k8s.io"}
	require.NoError(t, w.metadata.Tracker().Update(definitions, definition, ""))
	w.eventually(func() bool { return !w.registry.on("pytorchjob") }, "off")
}

func TestMarksOnTheClusterOfARayJobAreNotItsOwn(t *testing.T) {
	heldCluster := func(metadata string) string {
		return strings.Replace(rayCluster1, "{name: rc, uid: uid-rc}", "{labels: {gpu-spot.autoscaling/held: suspended}, "+metadata+"}", 1)
	}
	w := newWorld(t, heldCluster("name: rc, uid: uid-rc"),
		heldCluster("name: copy, uid: uid-copy, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: train, uid: uid-train, controller: true}]"))
	w.run()
	w.serve("raycluster")
	w.define("rayclusters.ray.io")
	w.eventuallyHeld("raycluster/ml/rc")
}

func TestHeldJobsThatAreMalformedAreNotForgotten(t *testing.T) {
	w := newWorld(t, held(strings.Replace(indexedJob, "parallelism: 4", "parallelism: four", 1)))
	w.run()
	w.eventuallyHeld("job/ml/train")
	job := w.registry.Held()[0]
	assert.Zero(t, job.Replicas)
	assert.EqualValues(t, "uid-train", job.UID)
	assert.NotNil(t, job.Object)
}

func TestJobsLeaveHeldWhenTheirMarksDo(t *testing.T) {
	w := newWorld(t, indexedJob)
	w.run()
	require.NoError(t, w.registry.Suspend(t.Context(), w.get("job", "train"), ReasonReclaim))
	w.eventuallyHeld("job/ml/train")
	require.NoError(t, w.registry.Resume(t.Context(), w.get("job", "train"), 4))
	w.eventuallyHeld()
}

func TestCallsAreBoundedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, indexedJob)
		job := w.get("job", "train")
		w.registry.config.Timeout = 3 * time.Second
		slow := &slowAdapter{Adapter: w.registry.byName["job"]}
		w.registry.byName["job"] = slow
		before := testutil.ToFloat64(jobActions.WithLabelValues("job", "suspend", "timeout"))
		began := time.Now()
		require.ErrorIs(t, w.registry.Suspend(context.Background(), job, ReasonReclaim), context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(began))
		assert.Equal(t, before+1, testutil.ToFloat64(jobActions.WithLabelValues("job", "suspend", "timeout")))
		assert.Empty(t, w.events())
	})
}

// slowAdapter never answers.
type slowAdapter struct{ Adapter }

func (s *slowAdapter) Suspend(ctx context.Context, _ Job, _ Reason) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestFailuresAreToldAndCounted(t *testing.T) {
	w := newWorld(t, indexedJob)
	job := w.get("job", "train")
	before := testutil.ToFloat64(jobActions.WithLabelValues("job", "suspend", "failed"))
	w.dynamic.PrependReactor("patch", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "train", errors.New("no"))
	})
	err := w.registry.Suspend(context.Background(), job, ReasonReclaim)
	require.ErrorContains(t, err, "suspend job/ml/train")
	assert.True(t, apierrors.IsForbidden(err))
	assert.Equal(t, before+1, testutil.ToFloat64(jobActions.WithLabelValues("job", "suspend", "failed")))
	assert.Empty(t, w.events())
}

func TestAJobThatIsGoneHasNoObject(t *testing.T) {
	w := newWorld(t, indexedJob)
	job := w.get("job", "train")
	require.NoError(t, w.dynamic.Tracker().Delete(w.registry.byName["job"].Resource(), "ml", "train"))
	require.ErrorIs(t, w.registry.Suspend(context.Background(), job, ReasonReclaim), ErrNoObject)
	_, err := w.registry.Get(context.Background(), job.Ref)
	require.ErrorIs(t, err, ErrNoObject)
	_, err = w.registry.Get(context.Background(), refOf(SystemPod, "any"))
	require.ErrorIs(t, err, ErrNoObject)
}

func TestAJobThatWasMadeAnewIsNotTheOneThatWasMeant(t *testing.T) {
	w := newWorld(t, indexedJob)
	job := w.get("job", "train")
	job.UID = "of-the-one-before"
	require.ErrorIs(t, w.registry.Suspend(context.Background(), job, ReasonReclaim), ErrNoObject)
	assert.Empty(t, w.writes())
}

func TestJobsOfKueueAreLeftToIt(t *testing.T) {
	w := newWorld(t, strings.Replace(indexedJob, "metadata:\n", "metadata:\n  labels: {kueue.x-k8s.io/queue-name: gpu, gpu-spot.autoscaling/held: suspended}\n", 1))
	job := w.get("job", "train")
	require.ErrorIs(t, w.registry.Suspend(context.Background(), job, ReasonReclaim), ErrUnsupported)
	require.ErrorIs(t, w.registry.Resume(context.Background(), job, 4), ErrUnsupported)
	assert.Empty(t, w.writes())
}

func TestAWarningIsAnEventOnTheJob(t *testing.T) {
	w := newWorld(t, indexedJob)
	require.NoError(t, w.registry.Warn(context.Background(), w.get("job", "train"), Warning{ID: "r-1", Deadline: epoch}))
	event := <-w.recorder.Events
	assert.Equal(t, "Warning SpotJobWarned Nodes of the job are released from "+epochText+"; checkpoint r-1 is asked for", event)
}

func TestWhatBelongsTogetherWhereNoSystemSays(t *testing.T) {
	membersOf(t, map[string]Membership{
		"alone":    {refOf(SystemPod, "alone"), RoleWorker},
		"of-a-set": {refOf(SystemPod, "replicaset.web-5d4"), RoleWorker},
		"named":    {refOf(SystemPod, "train"), RoleHost},
		"odd":      {refOf(SystemPod, "odd"), RoleWorker},
	},
		`{kind: Pod, metadata: {name: alone}}`,
		`{kind: Pod, metadata: {name: of-a-set, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4, uid: u, controller: true}]}}`,
		`{kind: Pod, metadata: {name: named, annotations: {gpu-spot.autoscaling/job: train, gpu-spot.autoscaling/role: host},
		  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4, uid: u, controller: true}]}}`,
		`{kind: Pod, metadata: {name: odd, annotations: {gpu-spot.autoscaling/role: captain}}}`,
	)
}

func TestWhatIsPartOfAJob(t *testing.T) {
	owned := func(owner string) string {
		return `{kind: Pod, metadata: {name: p, ownerReferences: [{` + owner + `, uid: u, controller: true}]}}`
	}
	registry := newWorld(t).registry
	for name, test := range map[string]struct {
		pod        string
		job, vital bool
	}{
		"a pod of a batch Job":                {owned("apiVersion: batch/v1, kind: Job, name: train"), true, false},
		"a worker of a job system":            {`{kind: Pod, metadata: {name: p, labels: {training.kubeflow.org/operator-name: mpijob-controller, training.kubeflow.org/job-name: m, training.kubeflow.org/replica-type: worker}}}`, true, false},
		"the launcher of a job system":        {`{kind: Pod, metadata: {name: p, labels: {training.kubeflow.org/operator-name: mpijob-controller, training.kubeflow.org/job-name: m, training.kubeflow.org/replica-type: launcher}}}`, true, true},
		"one that its annotation makes a job": {`{kind: Pod, metadata: {name: p, annotations: {gpu-spot.autoscaling/job: train}}}`, true, false},
		"a server":                            {owned("apiVersion: apps/v1, kind: ReplicaSet, name: web"), false, false},
		"a server with a role":                {`{kind: Pod, metadata: {name: p, annotations: {gpu-spot.autoscaling/role: host}}}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			job, vital := registry.PartOf(podOf(t, test.pod))
			assert.Equal(t, test.job, job)
			assert.Equal(t, test.vital, vital)
		})
	}
}

func TestTheRoleThatIsAskedForGoesBeforeTheSystems(t *testing.T) {
	membersOf(t, map[string]Membership{"train-0-x": {refOf("job", "train"), RoleLauncher}}, `
kind: Pod
metadata:
  name: train-0-x
  annotations: {gpu-spot.autoscaling/role: launcher}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]`)
}

func TestLaunchersAreToldOnceWorkersHaveGone(t *testing.T) {
	was := refreshAfter
	refreshAfter = []time.Duration{time.Millisecond, 2 * time.Millisecond}
	t.Cleanup(func() { refreshAfter = was })
	w := newWorld(t, mpiElastic, mpiLauncher)
	w.registry.config.Clock = clock.RealClock{}
	w.serve("mpijob")
	w.define("mpijobs.kubeflow.org")
	w.run()
	require.NoError(t, w.registry.Shrink(t.Context(), w.get("mpijob", "tf"), []string{"tf-worker-1"}))
	patches := func() int {
		return len(slices.DeleteFunc(w.kube.Actions(), func(action clienttesting.Action) bool { return action.GetVerb() != "patch" }))
	}
	w.eventually(func() bool { return patches() == len(refreshAfter) }, "each time")
	for _, write := range w.writes() {
		assert.Equal(t, `patch pods {"metadata":{"annotations":{"gpu-spot.autoscaling/hosts-refreshed":"`+epochText+`"}}}`, write)
	}
}

func TestMemberIsTotalAndDoesNotChangeThePod(t *testing.T) {
	w := newWorld(t)
	pod := &corev1.Pod{}
	assert.Equal(t, Membership{Ref{System: SystemPod}, RoleWorker}, func() Membership {
		m := w.registry.Member(pod)
		return m
	}())
	assert.Equal(t, &corev1.Pod{}, pod)
}

func TestPodsOfAJobThatHaveOnlyItsControllerInCommonAreAlone(t *testing.T) {
	owned := func(kind, name, more string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: one
  ownerReferences: [{apiVersion: %s, kind: %s, name: sweep, uid: u, controller: true}]
  %s
`, kind, name, more)
	}
	for name, tc := range map[string]struct {
		pod  string
		want bool
	}{
		"of a Job":                      {owned("batch/v1", "Job", ""), true},
		"of an Indexed Job":             {owned("batch/v1", "Job", `annotations: {batch.kubernetes.io/job-completion-index: "1"}`), false},
		"of a ReplicaSet":               {owned("apps/v1", "ReplicaSet", ""), true},
		"of a StatefulSet":              {owned("apps/v1", "StatefulSet", ""), false},
		"of an unknown system":          {owned("example.com/v1", "Training", ""), false},
		"that say they are one":         {owned("batch/v1", "Job", "annotations: {gpu-spot.autoscaling/job: search}"), false},
		"of a TrainingJob":              {owned("kai.alibabacloud.com/v1alpha1", "TrainingJob", "labels: {group-name: kai.alibabacloud.com, training-job-name: sweep}"), false},
		"of a JobSet, which makes Jobs": {owned("batch/v1", "Job", "labels: {jobset.sigs.k8s.io/jobset-name: sweep}"), false},
		"of nobody":                     {"{apiVersion: v1, kind: Pod, metadata: {name: one}}", false},
	} {
		assert.Equal(t, tc.want, newWorld(t).registry.Alone(podOf(t, tc.pod)), name)
	}
}
