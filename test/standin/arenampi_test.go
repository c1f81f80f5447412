package standin

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const arenaMPI = `
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: job}
spec:
  replicas: 2
  template: {spec: {restartPolicy: Never, containers: [{name: mpi, resources: {limits: {nvidia.com/gpu: 1}}}]}}
`

// arena is a cluster with Arena's operator. StatefulSets and Jobs do in it what the test says.
type arena struct{ *fixture }

func newArena(t *testing.T) arena { return arena{newFixture(t, arenaMPIKinds)} }

// workers returns how many the operator wants.
func (a arena) workers() int32 {
	a.t.Helper()
	set, err := a.AppsV1().StatefulSets("default").Get(a.t.Context(), "job-worker", metav1.GetOptions{})
	require.NoError(a.t, err)
	return *set.Spec.Replicas
}

// ready has so many workers ready.
func (a arena) ready(n int32) {
	a.t.Helper()
	sets := a.AppsV1().StatefulSets("default")
	set, err := sets.Get(a.t.Context(), "job-worker", metav1.GetOptions{})
	require.NoError(a.t, err)
	set.Status.ReadyReplicas = n
	_, err = sets.UpdateStatus(a.t.Context(), set, metav1.UpdateOptions{})
	require.NoError(a.t, err)
}

// launchers returns the Jobs that make them.
func (a arena) launchers() []batchv1.Job {
	a.t.Helper()
	list, err := a.BatchV1().Jobs("default").List(a.t.Context(), metav1.ListOptions{})
	require.NoError(a.t, err)
	return list.Items
}

// count writes what has become of the launchers so far.
func (a arena) count(status batchv1.JobStatus) {
	a.t.Helper()
	jobs := a.BatchV1().Jobs("default")
	job, err := jobs.Get(a.t.Context(), "job-launcher", metav1.GetOptions{})
	require.NoError(a.t, err)
	job.Status = status
	_, err = jobs.UpdateStatus(a.t.Context(), job, metav1.UpdateOptions{})
	require.NoError(a.t, err)
}

// pod makes one of the job that runs.
func (a arena) pod(name, role string) {
	a.t.Helper()
	job := arenaMPIJob{}
	job.Name = "job"
	_, err := a.CoreV1().Pods("default").Create(a.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: job.labels(role)},
	}, metav1.CreateOptions{})
	require.NoError(a.t, err)
	a.end(name, corev1.PodRunning, 0)
}

func TestArenaMakesTheLauncherWhenAllWorkersAreReady(t *testing.T) {
	a := newArena(t)
	a.submit(ArenaMPIJobs, arenaMPI)
	a.round(2)
	require.EqualValues(t, 2, a.workers())
	a.ready(1)
	a.round(1)
	require.Empty(t, a.launchers())
	a.ready(2)
	a.round(1)
	require.Len(t, a.launchers(), 1)
	a.count(batchv1.JobStatus{Active: 1})
	a.round(1)
	assert.Equal(t, launcherActive, a.at(ArenaMPIJobs, "job", "status.launcherStatus"))
	assert.EqualValues(t, 2, a.at(ArenaMPIJobs, "job", "status.workerReplicas"))
}

func TestArenaTakesTheWorkersAwayAfterTheFirstFailureOnly(t *testing.T) {
	for policy, want := range map[string][]int32{`null`: {2, 0, 2}, `"All"`: {2, 0, 2}, `"Running"`: {2, 0, 2}, `"None"`: {2, 2, 2}} {
		t.Run(policy, func(t *testing.T) {
			a := newArena(t)
			a.submit(ArenaMPIJobs, arenaMPI)
			a.patch(ArenaMPIJobs, "job", `{"spec":{"cleanPodPolicy":`+policy+`}}`)
			a.round(1)
			a.ready(2)
			a.round(1)
			var have []int32
			for failed := range int32(3) {
				a.count(batchv1.JobStatus{Active: 1, Failed: failed})
				a.round(1)
				have = append(have, a.workers())
			}
			assert.Equal(t, want, have)
		})
	}
}

func TestArenaLeavesAloneWhatRunsInAJobThatIsQueued(t *testing.T) {
	a := newArena(t)
	a.submit(ArenaMPIJobs, arenaMPI)
	a.round(1)
	a.ready(2)
	a.round(1)
	a.patch(ArenaMPIJobs, "job", `{"metadata":{"annotations":{"scheduling.x-k8s.io/suspend":"true"}}}`)
	a.round(2)
	assert.EqualValues(t, 2, a.workers())
	assert.Len(t, a.launchers(), 1)
}

func TestArenaLauncherEndsWithARankThatIsLost(t *testing.T) {
	a := newArena(t)
	a.submit(ArenaMPIJobs, arenaMPI)
	a.pod("job-worker-0", roleWorker)
	a.pod("job-worker-1", roleWorker)
	a.pod("first", roleLauncher)
	a.round(2)
	require.Equal(t, corev1.PodRunning, a.all()["first"].Status.Phase)
	a.lose("job-worker-1")
	a.pod("second", roleLauncher)
	a.round(1)
	assert.Equal(t, corev1.PodFailed, a.all()["first"].Status.Phase, "it has lost a rank")
	assert.Equal(t, corev1.PodFailed, a.all()["second"].Status.Phase, "it cannot start all of its own")
	a.pod("job-worker-1", roleWorker)
	a.pod("third", roleLauncher)
	a.round(2)
	assert.Equal(t, corev1.PodRunning, a.all()["third"].Status.Phase)
}
