package etjob

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

const etWorkerPod = `
apiVersion: v1
kind: Pod
metadata:
  name: mnist-worker-0
  labels: {group-name: kai.alibabacloud.com, training-job-name: mnist, training-job-role: worker}
  ownerReferences: [{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, name: mnist, uid: uid-mnist, controller: true}]
status: {phase: Running, podIP: %q}
`

// etWorker is a worker of the job in jobstest.TrainingJob, with an address.
func etWorker(t *testing.T, address string, change ...func(*corev1.Pod)) corev1.Pod {
	t.Helper()
	pod := jobstest.ParsePod(t, fmt.Sprintf(etWorkerPod, address))
	for _, f := range change {
		f(pod)
	}
	return *pod
}

func TestOnlyWorkersOfTheJobAreToldToStopAndAtTheirOwnAddress(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob)
	job := f.Get("trainingjob", "mnist")
	for name, tc := range map[string]struct {
		pod  corev1.Pod
		want []string
	}{
		"a worker":                  {etWorker(t, "10.1.2.3"), []string{"http://10.1.2.3:9009/stop"}},
		"a worker with IPv6":        {etWorker(t, "fd00::1:2"), []string{"http://[fd00::1:2]:9009/stop"}},
		"one that only says so":     {etWorker(t, "10.1.2.3", func(pod *corev1.Pod) { pod.OwnerReferences = nil }), nil},
		"one of another life":       {etWorker(t, "10.1.2.3", func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "other" }), nil},
		"one of another namespace":  {etWorker(t, "10.1.2.3", func(pod *corev1.Pod) { pod.Namespace = "other" }), nil},
		"one in its node's network": {etWorker(t, "10.1.2.3", func(pod *corev1.Pod) { pod.Spec.HostNetwork = true }), nil},
		"one that has yet to start": {etWorker(t, "10.1.2.3", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }), nil},
		"one without an address":    {etWorker(t, ""), nil},
		"a name":                    {etWorker(t, "metadata.internal"), nil},
		"an address and more":       {etWorker(t, "10.1.2.3:80/x?"), nil},
		"ourselves":                 {etWorker(t, "127.0.0.1"), nil},
		"a metadata service":        {etWorker(t, "169.254.169.254"), nil},
		"that of ECS":               {etWorker(t, "100.100.100.200"), nil},
		"everybody":                 {etWorker(t, "224.0.0.1"), nil},
		"nobody":                    {etWorker(t, "0.0.0.0"), nil},
	} {
		assert.Equal(t, tc.want, stopURLs(job.Object, []corev1.Pod{tc.pod}), name)
	}
}

func TestTellingGoesNowhereElse(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	t.Setenv("HTTP_PROXY", other.URL)
	answers := map[string]http.HandlerFunc{
		"ok":           func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) },
		"redirects":    func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) },
		"is none":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"never ends":   func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK); writeUntilDone(w, r) },
		"never begins": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	}
	urls := []string{"http://" + net.JoinHostPort("127.0.0.1", "1") + stopPath} // nobody listens
	for _, answer := range answers {
		server := httptest.NewServer(answer)
		defer server.Close()
		urls = append(urls, server.URL+stopPath)
	}
	began := time.Now()
	assert.Equal(t, 2, callAll(context.Background(), urls), "the first, and the one that talks on")
	assert.Less(t, time.Since(began), 2*stopTimeout)
	assert.Zero(t, elsewhere.Load(), "no redirect is followed, and no proxy used")
}

func writeUntilDone(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := w.Write([]byte(strings.Repeat("x", 1<<10))); err != nil {
			return
		}
	}
}

func TestTrainingJobThatIsToldToStopHasNotFailed(t *testing.T) {
	ctx := context.Background()
	f := newFixture(t, strings.Replace(jobstest.TrainingJob, "restartCount: 0", "restartCount: 2", 1))
	job := f.Get("trainingjob", "mnist")
	heard, err := f.Registry.Stop(ctx, job)
	require.NoError(t, err)
	require.Zero(t, heard)
	require.Empty(t, f.Writes(), "there is nobody to be told")

	f.Set(resource, "mnist", map[string]any{
		"job-supervisor.kube-ai.io/spot-instance": "true", api.AnnotationStopRequested: jobstest.EpochText, api.AnnotationHeldRestarts: "2",
	}, "metadata", "annotations")
	f.Set(resource, "mnist", "Failed", "status", "phase")
	f.Set(resource, "mnist", int64(3), "status", "restartCount")
	failAt(f, jobstest.Epoch.Add(-time.Minute))
	assert.True(t, f.Get("trainingjob", "mnist").Finished, "it had failed before")
	failAt(f, jobstest.Epoch.Add(time.Minute))
	require.False(t, f.Get("trainingjob", "mnist").Finished)

	require.NoError(t, f.Registry.Suspend(ctx, f.Get("trainingjob", "mnist"), jobs.HeldForReclaim))
	f.Set(resource, "mnist", "Suspended", "status", "phase")
	require.NoError(t, f.Registry.Resume(ctx, f.Get("trainingjob", "mnist"), 3))
	job = f.Get("trainingjob", "mnist")
	restarts, _, err := unstructured.NestedInt64(f.Object(resource, "mnist").Object, "status", "restartCount")
	require.NoError(t, err)
	assert.EqualValues(t, 2, restarts, "no retry is spent")
	assert.NotContains(t, job.Object.GetAnnotations(), api.AnnotationStopRequested)
	assert.NotContains(t, job.Object.GetAnnotations(), api.AnnotationHeldRestarts)
	assert.Equal(t, jobs.HeldShrunk, job.HeldAs(), "the rest is for Grow")
}

// failAt has the operator note that the job has failed.
func failAt(f *jobstest.Fixture, at time.Time) {
	f.Set(resource, "mnist", "Failed", "status", "phase")
	failed := map[string]any{"type": "Failed", "status": "True", "lastTransitionTime": at.UTC().Format(time.RFC3339)}
	f.Set(resource, "mnist", []any{map[string]any{"type": "Created", "status": "True"}, failed}, "status", "conditions")
}

func TestTrainingJobThatHadFailedBeforeItWasToldToStopIsNotLost(t *testing.T) {
	document := strings.Replace(jobstest.TrainingJob, "  backoffLimit: 3\n", "  restartPolicy: OnFailure\n  backoffLimit: 1\n", 1)
	f := newFixture(t, strings.Replace(document, "restartCount: 0", "restartCount: 1", 1))
	// The operator sets the time at the first failure, and keeps it when it restarts the job.
	f.Set(resource, "mnist", jobstest.Epoch.Add(-time.Hour).Format(time.RFC3339), "status", "completionTime")
	require.False(t, f.Get("trainingjob", "mnist").Finished)

	f.Set(resource, "mnist", map[string]any{
		"job-supervisor.kube-ai.io/spot-instance": "true", api.AnnotationStopRequested: jobstest.EpochText, api.AnnotationHeldRestarts: "1",
	}, "metadata", "annotations")
	failAt(f, jobstest.Epoch.Add(5*time.Second))
	job := f.Get("trainingjob", "mnist")
	assert.True(t, job.Stopped, "it has ended because it was asked to")
	assert.False(t, job.Finished)
	require.NoError(t, f.Registry.Suspend(t.Context(), job, jobs.HeldForReclaim))
	assert.NotEmpty(t, f.Writes(), "so that it is resumed later")
}

// The time of the first request is that after which the job has ended.
func TestTrainingJobThatWasToldToStopByAFormerLeaderKeepsTheTime(t *testing.T) {
	f := newFixture(t, jobstest.TrainingJob, fmt.Sprintf(etWorkerPod, "10.1.2.3"))
	f.Set(resource, "mnist", map[string]any{
		"job-supervisor.kube-ai.io/spot-instance": "true", api.AnnotationStopRequested: jobstest.Epoch.Add(-time.Minute).UTC().Format(time.RFC3339), api.AnnotationHeldRestarts: "0",
	}, "metadata", "annotations")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, _ = f.Registry.Stop(ctx, f.Get("trainingjob", "mnist")) // nobody listens there
	job := f.Get("trainingjob", "mnist")
	assert.Equal(t, jobs.HeldSuspended, job.HeldAs())
	assert.Equal(t, jobstest.Epoch.Add(-time.Minute).UTC().Format(time.RFC3339), job.Object.GetAnnotations()[api.AnnotationStopRequested])

	failAt(f, jobstest.Epoch.Add(-30*time.Second))
	job = f.Get("trainingjob", "mnist")
	require.True(t, job.Stopped)
	f.Writes()
	heard, err := f.Registry.Stop(t.Context(), job)
	require.NoError(t, err)
	assert.Zero(t, heard)
	assert.Empty(t, f.Writes(), "it has stopped, and is only to be suspended")
}

func TestOtherJobsAreNotToldToStop(t *testing.T) {
	f := newFixture(t, strings.Replace(jobstest.TrainingJob, `spot-instance: "true"`, `spot-instance: "false"`, 1), fmt.Sprintf(etWorkerPod, "10.1.2.3"))
	heard, err := f.Registry.Stop(context.Background(), f.Get("trainingjob", "mnist"))
	require.NoError(t, err)
	assert.Zero(t, heard)
	assert.Empty(t, f.Writes())
	assert.Empty(t, f.Events())
}

// The reclaim suspends the job at the same time as the supervisor finds that it goes on.
func TestTrainingJobThatIsSuspendedAfterAllKeepsItsLabel(t *testing.T) {
	goesOn := func(t *testing.T) (*jobstest.Fixture, jobs.Job) {
		f := newFixture(t, jobstest.TrainingJob)
		job := f.Get("trainingjob", "mnist")
		require.NoError(t, f.Registry.Suspend(t.Context(), job, jobs.HeldForReclaim))
		f.Set(resource, "mnist", map[string]any{
			api.AnnotationStopRequested: jobstest.EpochText, api.AnnotationHeldRestarts: "0", api.AnnotationHeldReason: string(jobs.HeldForReclaim),
		}, "metadata", "annotations")
		f.Set(resource, "mnist", "7", "metadata", "resourceVersion")
		job = f.Get("trainingjob", "mnist")
		require.True(t, job.StopRequested && !job.Suspended && job.HeldAs() == jobs.HeldSuspended)
		f.Writes()
		return f, job
	}
	t.Run("before the supervisor reads it", func(t *testing.T) {
		f, job := goesOn(t)
		f.Set(resource, "mnist", "Suspended", "status", "phase")
		f.Writes()
		busy := (*jobs.BusyError)(nil)
		require.ErrorAs(t, f.Registry.Resume(t.Context(), job, 3), &busy)
		assert.Empty(t, f.Writes())
	})
	t.Run("before it is, having ended as it was told", func(t *testing.T) {
		f, _ := goesOn(t)
		failAt(f, jobstest.Epoch.Add(time.Minute))
		job := f.Get("trainingjob", "mnist")
		require.True(t, job.Stopped)
		f.Writes()
		busy := (*jobs.BusyError)(nil)
		require.ErrorAs(t, f.Registry.Resume(t.Context(), job, 3), &busy, "its end would be for good")
		require.ErrorAs(t, f.Registry.Unhold(t.Context(), job), &busy)
		assert.Empty(t, f.Writes())
	})
	t.Run("after it", func(t *testing.T) {
		f, job := goesOn(t)
		f.Dynamic.PrependReactor("patch", "trainingjobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			var sent metav1.PartialObjectMetadata
			require.NoError(t, json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &sent))
			return sent.ResourceVersion == "7", nil, apierrors.NewConflict(resource.GroupResource(), "mnist", nil)
		})
		busy := (*jobs.BusyError)(nil)
		require.ErrorAs(t, f.Registry.Resume(t.Context(), job, 3), &busy)
		assert.Equal(t, jobs.HeldSuspended, f.Get("trainingjob", "mnist").HeldAs())
	})
}
