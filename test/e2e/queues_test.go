package e2e

import (
	"context"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// runKueue runs Kueue after the systems whose jobs are queued, whose definitions it looks for ever more rarely until it has found them.
func (s *jobSuite) runKueue() {
	s.t.Helper()
	for _, system := range []operators.System{operators.JobSet, operators.KubeRay, operators.Kueue} {
		s.runRealOperator(system)
	}
}

// jobOfKueueIsEndedByKueue: each pod that is evicted of it would count as failed, and to suspend it would be undone.
func jobOfKueueIsEndedByKueue(s *jobSuite) {
	s.runKueue()
	s.submit(operators.Queue("gpu", metav1.NamespaceDefault, 3))
	s.submit(queuedJob("queued", "gpu", 3, gpuTemplate("queued")))
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods("job-name=queued", 3)[:2]...)
	s.awaitJobEvent("Job", "queued", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("Job", "queued", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=queued", 3))
	s.awaitNotHeld(batchJobs, "queued")
	assert.Nil(s.t, s.field(batchJobs, "queued", "status.failed"))
	requireNoRequeueCounted(s, "Job", "queued")
	assert.Zero(s.t, countEvents(s, "Job", "queued", "SpotJobQueued"), "nobody else wanted its quota")
}

// jobWhoseQuotaIsTakenIsNotBoughtFor: in the queue, behind the job that lost its nodes, another one waits for the quota that this gives back.
func jobWhoseQuotaIsTakenIsNotBoughtFor(s *jobSuite) {
	s.runKueue()
	s.submit(operators.Queue("one", metav1.NamespaceDefault, 2))
	s.submit(queuedJob("yielding", "one", 2, gpuTemplate("yielding")))
	workers := s.awaitRunningPods("job-name=yielding", 2)
	s.submit(queuedJob("taking", "one", 2, gpuTemplate("yielding")))
	reclaiming := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("Job", "yielding", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=taking", 2))
	s.awaitJobEvent("Job", "yielding", "SpotJobQueued", 1)
	bought := boughtOfPool(s, "yielding") // while they changed places, pods of both existed
	s.awaitNotHeld(batchJobs, "yielding")
	rig.Eventually(s.t, recovered, "no nodes are kept but those of the other job", func(ctx context.Context) (bool, error) {
		nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "pool=yielding"})
		return err == nil && len(nodes.Items) == 2, err
	})
	assert.Equal(s.t, true, s.field(batchJobs, "yielding", "spec.suspend"), "until Kueue admits it")
	s.requireBought("yielding", bought)

	s.deleteJob("taking")
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=yielding", 2))
	assert.Nil(s.t, s.field(batchJobs, "yielding", "status.failed"))
	assert.Zero(s.t, countEvents(s, "Job", "yielding", "SpotJobResumed"))
	requireNoRequeueCounted(s, "Job", "yielding")
}

func jobSetOfKueueLosesNoRestart(s *jobSuite) {
	s.runKueue()
	s.submit(operators.Queue("sets", metav1.NamespaceDefault, 2))
	s.submit(inQueue("sets", rigidJobSet(gpuTemplate("queuedset"))))
	const pods = operators.LabelJobSet + "=set"
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods(pods, 2)[0])
	s.awaitJobEvent("JobSet", "set", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("JobSet", "set", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(pods, 2))
	s.awaitNotHeld(operators.JobSets, "set")
	assert.EqualValues(s.t, 0, s.field(operators.JobSets, "set", "status.restarts"))
	assert.Nil(s.t, s.field(operators.JobSets, "set", "status.terminalState"))
	requireNoRequeueCounted(s, "JobSet", "set")
	s.requireBought("queuedset", 2+1)
}

// rayJobOfKueueIsEndedByKueue is about a job whose pods are those of a RayCluster that it owns, which has no Workload of its own.
func rayJobOfKueueIsEndedByKueue(s *jobSuite) {
	s.runKueue()
	s.submit(operators.Queue("rays", metav1.NamespaceDefault, 2))
	s.submit(inQueue("rays", rayJob(gpuTemplate("queuedray", "metadata: {labels: {job: rayjob}}"))))
	requireRayJobComesBack(s)
	requireNoRequeueCounted(s, "RayJob", "rayjob")
	s.requireBought("queuedray", 2+1)
}

// deleteJob deletes the Job and its pods.
func (s *jobSuite) deleteJob(name string) {
	s.t.Helper()
	require.NoError(s.t, s.objects.Resource(batchJobs).Namespace(metav1.NamespaceDefault).Delete(s.t.Context(), name, metav1.DeleteOptions{
		PropagationPolicy: new(metav1.DeletePropagationBackground),
	}))
}

// requireNoRequeueCounted fails if the job's Workload is not active, or if Kueue counts against it that it was queued again.
func requireNoRequeueCounted(s *jobSuite, kind, name string) {
	s.t.Helper()
	workloads, err := s.objects.Resource(operators.Workloads).Namespace(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	i := slices.IndexFunc(workloads.Items, func(workload unstructured.Unstructured) bool {
		owner := metav1.GetControllerOf(&workload)
		return owner != nil && owner.Kind == kind && owner.Name == name
	})
	require.GreaterOrEqual(s.t, i, 0, "Workload of %s %s", kind, name)
	workload := workloads.Items[i].Object
	active, _, _ := unstructured.NestedBool(workload, "spec", "active")
	assert.True(s.t, active)
	requeues, _, _ := unstructured.NestedFieldNoCopy(workload, "status", "requeueState")
	assert.Nil(s.t, requeues)
}

// jobWithATopologyComesBackOnNodesThatAreReady: Kueue admits such a job only there, and its own replacement of a failed node is of no help, see
// docs/jobs.md. The nodes that the job starts on are bought for another one.
func jobWithATopologyComesBackOnNodesThatAreReady(s *jobSuite) {
	s.runKueue()
	const flavor = "kind: ResourceFlavor, metadata: {name: tas}"
	s.submit("{apiVersion: kueue.x-k8s.io/v1alpha1, kind: Topology, metadata: {name: nodes}, spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}}\n---" +
		strings.Replace(operators.Queue("tas", metav1.NamespaceDefault, 2), flavor, flavor+", spec: {topologyName: nodes, nodeLabels: {pool: queuedtas}}", 1))
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: before}
spec: {parallelism: 2, completions: 2, template: ` + gpuTemplate("queuedtas") + `}
`)
	s.awaitRunningPods("job-name=before", 2)
	s.deleteJob("before")
	s.submit(queuedJob("queuedtas", "tas", 2, gpuTemplate("queuedtas", `metadata: {annotations: {kueue.x-k8s.io/podset-unconstrained-topology: "true"}}`)))
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods("job-name=queuedtas", 2)[0])
	s.awaitJobEvent("Job", "queuedtas", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("Job", "queuedtas", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=queuedtas", 2))
	s.awaitNotHeld(batchJobs, "queuedtas")
	assert.Nil(s.t, s.field(batchJobs, "queuedtas", "status.failed"))
	requireNoRequeueCounted(s, "Job", "queuedtas")
	s.requireBought("queuedtas", 2+1)
}
