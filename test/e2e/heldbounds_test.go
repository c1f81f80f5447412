package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// createHeldJob creates an Indexed Job that was suspended for a reclaim, as a restored backup would have it.
func createHeldJob(s *jobSuite, name string, workers int) {
	s.t.Helper()
	s.submit(fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata:
  name: %[1]s
  labels: {gpu-spot.autoscaling/held: suspended}
  annotations: {gpu-spot.autoscaling/held-reason: reclaim, gpu-spot.autoscaling/held-since: "%[4]s", gpu-spot.autoscaling/held-replicas: "%[2]d"}
spec: {suspend: true, completionMode: Indexed, parallelism: %[2]d, completions: %[2]d, template: %[3]s}
`, name, workers, gpuTemplate(name), time.Now().UTC().Format(time.RFC3339)))
}

func TestNothingIsBoughtForAHeldJobOf300000Workers(t *testing.T) {
	s := newJobSuite(t, "large", "small")
	s.runRealOperator(operators.MPIOperator) // the API server itself lets an indexed Job have no more than 100,000
	s.submit(fmt.Sprintf(`
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: large
  labels: {gpu-spot.autoscaling/held: suspended}
  annotations: {gpu-spot.autoscaling/held-reason: reclaim, gpu-spot.autoscaling/held-since: "%s", gpu-spot.autoscaling/held-replicas: "300000"}
spec:
  runPolicy: {suspend: true}
  mpiReplicaSpecs:
    Launcher: {template: %s}
    Worker: {replicas: 300000, template: %s}
`, time.Now().UTC().Format(time.RFC3339), systemTemplate("mpirun train"), gpuTemplate("large")))
	s.awaitEvent("SpotJobTooLarge", "300000 pods of spec.mpiReplicaSpecs.Worker.template are asked for", "capacity for 48 at most")
	createHeldJob(s, "small", 2)
	s.awaitField(batchJobs, "small", "spec.suspend", false)
	s.awaitRunningPods("job-name=small", 2)
	assert.Empty(t, s.instances("asg-large"))
	assert.Equal(t, 1, countEvents(s, "MPIJob", "large", "SpotJobTooLarge"))
	assert.Equal(t, true, s.field(operators.MPIJobs, "large", "spec.runPolicy.suspend"))
}

func TestWhatIsBoughtForAHeldJobIsWithinTheQuotaOfItsNamespace(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld(), "bounded")
	quotas := s.Client.CoreV1().ResourceQuotas(metav1.NamespaceDefault)
	bound := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("2")}},
	}
	_, err := quotas.Create(t.Context(), bound, metav1.CreateOptions{})
	require.NoError(t, err)
	s.eventually("the quota is counted", func(ctx context.Context) (bool, error) {
		got, err := quotas.Get(ctx, bound.Name, metav1.GetOptions{})
		return err == nil && len(got.Status.Hard) > 0, err
	})
	s.runLeader()
	createHeldJob(s, "bounded", 3)
	s.awaitEvent("SpotJobOverQuota", "ResourceQuota gpus of namespace default leaves room for 2 of 3 pods")
	rig.Always(t, 5*time.Second, "nothing is bought", func(context.Context) (bool, error) { return len(s.instances("asg-bounded")) == 0, nil })

	patchObject(s, corev1.SchemeGroupVersion.WithResource("resourcequotas"), metav1.NamespaceDefault, bound.Name, `{spec: {hard: {requests.nvidia.com/gpu: "3"}}}`)
	s.awaitField(batchJobs, "bounded", "spec.suspend", false)
	s.awaitRunningPods("job-name=bounded", 3)
	assert.Len(t, s.instances("asg-bounded"), 3)
}
