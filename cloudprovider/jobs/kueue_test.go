package jobs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

const workloadOfTrain = `
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata:
  name: job-train-1a2b3
  uid: uid-workload
  labels: {kueue.x-k8s.io/job-uid: uid-train}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: uid-train, controller: true}]
spec: {queueName: gpu, active: true}
`

// newKueueFixture returns a cluster with a Kueue that serves Workloads in the version alone.
func newKueueFixture(t *testing.T, version string, documents ...string) *jobstest.Fixture {
	t.Helper()
	f := newFixture(t, documents...)
	serveWorkloads(f, version)
	return f
}

// serveWorkloads has the API server serve Workloads in the version alone.
func serveWorkloads(f *jobstest.Fixture, version string) { serve(f, "workloads", version) }

// serve has the API server serve a resource of Kueue in the version alone.
func serve(f *jobstest.Fixture, resource, version string) {
	f.Dynamic.PrependReactor("list", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetResource().Version != version {
			return true, nil, apierrors.NewNotFound(action.GetResource().GroupResource(), "")
		}
		return clienttesting.ObjectReaction(f.Dynamic.Tracker())(action)
	})
}

// workloadLists returns in which versions Workloads were listed since the last call.
func workloadLists(f *jobstest.Fixture) (versions []string) {
	for _, action := range f.Dynamic.Actions() {
		if action.GetVerb() == "list" && action.GetResource().Resource == "workloads" {
			versions = append(versions, action.GetResource().Version)
		}
	}
	f.Dynamic.ClearActions()
	return versions
}

// TestKueueIsLookedForOnceAMinute counts requests: a reclaim may suspend a thousand jobs.
func TestKueueIsLookedForOnceAMinute(t *testing.T) {
	for name, tc := range map[string]struct {
		job, version string
		first, next  []string
	}{
		"an old Kueue":                 {queuedJob, "v1beta1", []string{"v1beta2", "v1beta1"}, []string{"v1beta1"}},
		"a new Kueue":                  {queuedJob, "v1beta2", []string{"v1beta2"}, []string{"v1beta2"}},
		"no Kueue":                     {jobstest.IndexedJob, "none", []string{"v1beta2", "v1beta1"}, nil},
		"a queue of no Kueue so far":   {queuedJob, "none", []string{"v1beta2", "v1beta1", "v1beta2", "v1beta1"}, []string{"v1beta2", "v1beta1", "v1beta2", "v1beta1"}},
		"an old Kueue without a queue": {jobstest.IndexedJob, "v1beta1", []string{"v1beta2", "v1beta1"}, []string{"v1beta1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newKueueFixture(t, tc.version, tc.job, workloadOfTrain, strings.ReplaceAll(workloadOfTrain, "v1beta1", "v1beta2"))
			suspend := func() []string {
				_ = f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim) // or it is in a queue of nobody's
				return workloadLists(f)
			}
			assert.Equal(t, tc.first, suspend())
			for range 3 {
				f.Clock.Step(19 * time.Second)
				assert.Equal(t, tc.next, suspend())
			}
			f.Clock.Step(4 * time.Second)
			assert.Equal(t, tc.first, suspend(), "it may have been installed or upgraded")
		})
	}
}

func TestAKueueThatIsUpgradedIsAskedInItsNewVersionAtOnce(t *testing.T) {
	f := newKueueFixture(t, "v1beta1", queuedJob, workloadOfTrain, strings.ReplaceAll(workloadOfTrain, "v1beta1", "v1beta2"))
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	serveWorkloads(f, "v1beta2")
	workloadLists(f)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	assert.Equal(t, []string{"v1beta1", "v1beta2"}, workloadLists(f))
	require.ErrorContains(t, f.Registry.Resume(t.Context(), f.Get("job", "train"), 4), "Kueue, which has yet to suspend it")
	f.Set(f.Resource("job"), "train", true, "spec", "suspend")
	workloadLists(f)
	require.NoError(t, f.Registry.Resume(t.Context(), f.Get("job", "train"), 4))
	assert.Equal(t, []string{"v1beta2"}, workloadLists(f))
}

var queuedJob = strings.Replace(jobstest.IndexedJob, "metadata:\n", "metadata:\n  labels: {kueue.x-k8s.io/queue-name: gpu}\n", 1)

func TestAJobThatKueueAdmitsIsEndedAndResumedThroughItsWorkload(t *testing.T) {
	for name, tc := range map[string]struct{ job, workload, version string }{
		"in a queue":                    {queuedJob, workloadOfTrain, "v1beta1"},
		"without one":                   {jobstest.IndexedJob, workloadOfTrain, "v1beta1"},
		"whose Workload was made first": {queuedJob, strings.Replace(workloadOfTrain, "  labels: {kueue.x-k8s.io/job-uid: uid-train}\n", "", 1), "v1beta1"},
		"whose Workload says nothing":   {queuedJob, strings.Replace(workloadOfTrain, ", active: true", "", 1), "v1beta1"},
		"by a newer Kueue":              {queuedJob, strings.Replace(workloadOfTrain, "v1beta1", "v1beta2", 1), "v1beta2"},
		"by a newer Kueue, in no queue": {jobstest.IndexedJob, strings.Replace(workloadOfTrain, "v1beta1", "v1beta2", 1), "v1beta2"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			another := strings.NewReplacer("job-train-1a2b3", "job-another", "uid: uid-train", "uid: uid-another", "uid-workload", "uid-2", "v1beta1", tc.version).Replace(workloadOfTrain)
			f := newKueueFixture(t, tc.version, tc.job, tc.workload, another)
			require.NoError(t, f.Registry.Suspend(ctx, f.Get("job", "train"), jobs.HeldForReclaim))
			writes := f.Writes()
			require.Len(t, writes, 2)
			assert.Contains(t, writes[0], "patch jobs ")
			assert.NotContains(t, writes[0], "suspend\":true", "that is Kueue's")
			assert.Equal(t, `patch workloads {"metadata":{"uid":"uid-workload"},"spec":{"active":false}}`, writes[1])
			assert.Equal(t, []string{jobs.ReasonSuspended}, f.Events())
			active, _, err := unstructured.NestedBool(f.Object(schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: tc.version, Resource: "workloads"}, "job-another").Object, "spec", "active")
			require.NoError(t, err)
			assert.True(t, active, "that of another job")

			require.NoError(t, f.Registry.Suspend(ctx, f.Get("job", "train"), jobs.HeldForReclaim))
			assert.Empty(t, f.Writes(), "the same again")

			f.Set(f.Resource("job"), "train", true, "spec", "suspend") // Kueue
			job := f.Get("job", "train")
			assert.Equal(t, jobs.HeldSuspended, job.HeldAs())
			f.Writes()
			require.NoError(t, f.Registry.Resume(ctx, job, 4))
			writes = f.Writes()
			require.Len(t, writes, 2)
			assert.Equal(t, `patch workloads {"metadata":{"uid":"uid-workload"},"spec":{"active":true}}`, writes[0])
			assert.True(t, f.Get("job", "train").Suspended, "until Kueue admits it")
			assert.Empty(t, f.Get("job", "train").Object.GetLabels()[api.LabelHeld])
			require.NoError(t, f.Registry.Resume(ctx, f.Get("job", "train"), 4))
			assert.Empty(t, f.Writes(), "the same again")
		})
	}
}

func TestHowLongAJobOfKueueWaitsIsKueuesToSay(t *testing.T) {
	f := newKueueFixture(t, "v1beta1", queuedJob, workloadOfTrain)
	require.ErrorIs(t, f.Registry.Suspend(context.Background(), f.Get("job", "train"), jobs.HeldForMaxWait), jobs.ErrUnsupported)
	assert.Empty(t, f.Writes())
}

func TestAJobOfNoQueueIsSuspendedItselfWhereKueueIsNot(t *testing.T) {
	f := newKueueFixture(t, "none", jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(context.Background(), f.Get("job", "train"), jobs.HeldForReclaim))
	assert.True(t, f.Get("job", "train").Suspended)
}

func TestAJobIsNotSuspendedBesideKueueWhereItCannotBeAsked(t *testing.T) {
	f := newFixture(t, queuedJob, workloadOfTrain)
	f.Dynamic.PrependReactor("list", "workloads", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(jobs.KueueWorkloads[0].GroupResource(), "", errors.New("no rule"))
	})
	require.ErrorContains(t, f.Registry.Suspend(context.Background(), f.Get("job", "train"), jobs.HeldForReclaim), "find its Workload")
	assert.Empty(t, f.Writes())
}

func TestAJobOfKueueIsPutBackIntoItsQueue(t *testing.T) {
	f := newKueueFixture(t, "v1beta1", queuedJob, workloadOfTrain)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Writes()
	f.Events()
	require.NoError(t, jobs.NewQueues(f.Registry).Return(t.Context(), f.Get("job", "train")))
	writes := f.Writes()
	require.Len(t, writes, 2)
	assert.Equal(t, `patch workloads {"metadata":{"uid":"uid-workload"},"spec":{"active":true}}`, writes[0])
	assert.Empty(t, f.Get("job", "train").HeldAs(), "Kueue decides about it now")
	assert.Equal(t, []string{jobs.ReasonQueued}, f.Events())
}

func TestAJobThatKueueDoesNotAdmitHasNoQueue(t *testing.T) {
	f := newKueueFixture(t, "v1beta1", jobstest.IndexedJob)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	f.Writes()
	require.ErrorIs(t, jobs.NewQueues(f.Registry).Return(t.Context(), f.Get("job", "train")), jobs.ErrUnsupported)
	assert.Empty(t, f.Writes())
	_, isQueued := f.Get("job", "train").Queue()
	assert.False(t, isQueued)
}

func TestQuotasAreThoseOfTheVersionThatKueueServes(t *testing.T) {
	queue := types.NamespacedName{Namespace: "ml", Name: "gpu"}
	for _, version := range []string{"v1beta1", "v1beta2"} {
		f := newFixture(t, `{apiVersion: kueue.x-k8s.io/`+version+`, kind: LocalQueue, metadata: {name: gpu}, spec: {clusterQueue: all}}`)
		clusterQueue := jobstest.Parse(t, `
apiVersion: kueue.x-k8s.io/`+version+`
kind: ClusterQueue
metadata: {name: all}
spec: {resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: spot, resources: [{name: nvidia.com/gpu, nominalQuota: "4"}]}]}]}
status: {flavorsReservation: [{name: spot, resources: [{name: nvidia.com/gpu, total: "2"}]}]}
`)
		clusterQueue.SetNamespace("")
		group := schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: version, Resource: "clusterqueues"}
		require.NoError(t, f.Dynamic.Tracker().Create(group, clusterQueue, ""))
		for _, resource := range []string{"clusterqueues", "localqueues", "resourceflavors"} {
			serve(f, resource, version)
		}
		quotas, err := jobs.NewQueues(f.Registry).Quotas(t.Context())
		require.NoError(t, err)
		assert.True(t, quotas.Holds(queue, corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}), version)
		assert.False(t, quotas.Holds(queue, corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("3")}), version)
	}
}

func TestThereAreNoQuotasWhereKueueIsNot(t *testing.T) {
	f := newFixture(t)
	serve(f, "localqueues", "none")
	quotas, err := jobs.NewQueues(f.Registry).Quotas(t.Context())
	require.NoError(t, err)
	assert.Nil(t, quotas)

	f = newFixture(t)
	f.Dynamic.PrependReactor("list", "localqueues", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(jobs.KueueWorkloads[0].GroupResource(), "", errors.New("no rule"))
	})
	_, err = jobs.NewQueues(f.Registry).Quotas(t.Context())
	require.ErrorContains(t, err, "list the localqueues of Kueue")
}

// TestTheRayClusterOfAQueuedRayJobIsSuspendedByTheWorkloadOfTheRayJob: Kueue makes none for what a job that it admits has made.
func TestTheRayClusterOfAQueuedRayJobIsSuspendedByTheWorkloadOfTheRayJob(t *testing.T) {
	queued := strings.Replace(jobstest.RayJob, "uid: uid-rj", "uid: uid-rj, labels: {kueue.x-k8s.io/queue-name: gpu}", 1)
	workload := strings.NewReplacer("uid-train", "uid-rj", "batch/v1, kind: Job, name: train", "ray.io/v1, kind: RayJob, name: rj").Replace(workloadOfTrain)
	f := newKueueFixture(t, "v1beta1", queued, jobstest.RayClusterOfRayJob, workload)
	cluster := jobstest.Parse(t, jobstest.RayClusterOfRayJob).GetName()
	job := f.Get("raycluster", cluster)
	require.Equal(t, "rayjob", job.System)
	queue, isQueued := job.Queue()
	assert.True(t, isQueued)
	assert.Equal(t, "gpu", queue.Name)
	require.NoError(t, f.Registry.Suspend(t.Context(), job, jobs.HeldForReclaim))
	writes := f.Writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0], "patch rayjobs ")
	assert.NotContains(t, writes[0], `"suspend":true`)
	assert.Equal(t, `patch workloads {"metadata":{"uid":"uid-workload"},"spec":{"active":false}}`, writes[1])
}

// The Workload is read once: one that is deactivated at this moment is not activated again.
func TestAReclaimThatSuspendsAJobWhileItIsUnheldGoesBeforeKueue(t *testing.T) {
	f := newKueueFixture(t, "v1beta1", queuedJob, workloadOfTrain)
	require.NoError(t, f.Registry.Suspend(t.Context(), f.Get("job", "train"), jobs.HeldForReclaim))
	active := true
	f.Dynamic.PrependReactor("list", "workloads", func(action clienttesting.Action) (bool, runtime.Object, error) {
		handled, list, err := clienttesting.ObjectReaction(f.Dynamic.Tracker())(action)
		for i := range list.(*unstructured.UnstructuredList).Items {
			require.NoError(t, unstructured.SetNestedField(list.(*unstructured.UnstructuredList).Items[i].Object, active, "spec", "active"))
		}
		active = false
		return handled, list, err
	})
	f.Writes()
	require.NoError(t, f.Registry.Unhold(t.Context(), f.Get("job", "train")))
	for _, write := range f.Writes() {
		assert.NotContains(t, write, "patch workloads")
	}
}
