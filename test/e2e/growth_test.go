package e2e

import (
	"context"
	"strconv"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/standin"
)

// awaitGrowth waits until the job was grown to so many workers, which run, and returns them.
func awaitGrowth(s *jobSuite, of schema.GroupVersionResource, kind, name, pods string, workers int) []corev1.Pod {
	s.t.Helper()
	s.awaitJobEvent(kind, name, "SpotJobGrown", 1)
	s.eventually(name+" says how far it was grown", func(ctx context.Context) (bool, error) {
		job, err := s.getObject(ctx, of, name)
		return err == nil && job.GetAnnotations()[api.AnnotationGrownTo] == strconv.Itoa(workers), err
	})
	return s.awaitRunningPods(pods, workers)
}

// elasticJobGrowsAndComesBackWithAllOfItsWorkers has spot instances bought for more workers than the job asks for.
func elasticJobGrowsAndComesBackWithAllOfItsWorkers(s *jobSuite) {
	s.submit(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: grows, labels: {gpu-spot.autoscaling/grow: buy}}
spec:
  runPolicy: {backoffLimit: 1}
  elasticPolicy: {minReplicas: 2, maxReplicas: 4, rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker: {replicas: 2, restartPolicy: OnFailure, template: ` + kubeflowTemplate("pytorch", "grows") + `}
`)
	const pods = "training.kubeflow.org/job-name=grows"
	workers := awaitGrowth(s, operators.PyTorchJobs, "PyTorchJob", "grows", pods, 4)
	assert.EqualValues(s.t, 4, s.field(operators.PyTorchJobs, "grows", "spec.pytorchReplicaSpecs.Worker.replicas"))
	awaitRunningCondition(s, operators.PyTorchJobs, "grows")

	checkSuspendedAndResumed(s, operators.PyTorchJobs, "PyTorchJob", "grows", pods, 4, workers[1:])
	assert.EqualValues(s.t, 4, s.field(operators.PyTorchJobs, "grows", "spec.pytorchReplicaSpecs.Worker.replicas"))
	s.requireBought("grows", 2+2+3)
	finishJob(s, operators.PyTorchJobs, "grows", s.awaitRunningPods(pods, 4)...)
}

// mpiJobGrowsAndIsLeftAloneWhenItIsMadeSmaller grows a job of Horovod, whose owner then undoes it.
func mpiJobGrowsAndIsLeftAloneWhenItIsMadeSmaller(s *jobSuite) {
	s.runRealOperator(operators.MPIOperator)
	s.submit(`
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi-grows, labels: {gpu-spot.autoscaling/grow: buy}}
spec:
  runPolicy: {backoffLimit: 0}
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: ` + systemTemplate("horovodrun -np 2 --min-np 1 --max-np 4 --host-discovery-script /etc/mpi/discover_hosts.sh python train.py") + `}
    Worker: {replicas: 2, template: ` + gpuTemplate("mpi-grows") + `}
`)
	const workersOf = "training.kubeflow.org/job-name=mpi-grows,training.kubeflow.org/job-role=worker"
	awaitGrowth(s, operators.MPIJobs, "MPIJob", "mpi-grows", workersOf, 4)
	s.eventually("the launcher is told of all hosts", func(ctx context.Context) (bool, error) {
		config, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, "mpi-grows-config", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return strings.Contains(config.Data["discover_hosts.sh"], "mpi-grows-worker-3"), nil
	})
	assert.Nil(s.t, s.field(batchJobs, "mpi-grows-launcher", "status.failed"))

	patchObject(s, operators.MPIJobs, metav1.NamespaceDefault, "mpi-grows", `{spec: {mpiReplicaSpecs: {Worker: {replicas: 3}}}}`)
	s.awaitRunningPods(workersOf, 3)
	s.requireBought("mpi-grows", 2+2)
}

// trainingJobGrowsOnNodesThatAreThere buys nothing for it.
func trainingJobGrowsOnNodesThatAreThere(s *jobSuite) {
	s.runOperator(standin.NewETOperator)
	s.submit(`{apiVersion: v1, kind: Pod, metadata: {name: was-there, labels: {app: was-there}},
  spec: {nodeSelector: {pool: et-grows}, containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: 1}}}]}}`)
	s.awaitRunningPods("app=was-there", 1)
	s.submit(`
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: et-grows, labels: {gpu-spot.autoscaling/grow: free}}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: ` + systemTemplate("horovodrun python train.py") + `}
    worker: {replicas: 2, minReplicas: 1, maxReplicas: 4, template: ` + gpuTemplate("et-grows") + `}
`)
	const workersOf = "training-job-name=et-grows,training-job-role=worker"
	s.awaitRunningPods(workersOf, 2)
	require.NoError(s.t, s.Client.CoreV1().Pods(metav1.NamespaceDefault).Delete(s.t.Context(), "was-there", metav1.DeleteOptions{}))
	awaitGrowth(s, standin.TrainingJobs, "TrainingJob", "et-grows", workersOf, 3)
	assert.EqualValues(s.t, 3, s.field(standin.TrainingJobs, "et-grows", "spec.etReplicaSpecs.worker.replicas"))
	s.requireBought("et-grows", 2+1)
}
