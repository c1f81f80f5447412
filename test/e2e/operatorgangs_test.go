package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
)

// startingGang is a job that is a gang on its first start, without being declared one.
type startingGang struct {
	// pool is that of its pods, whose Nodes they select.
	pool string
	// submit starts the operator and submits the job.
	submit func(s *jobSuite)
	// pods selects those that have to start together, which are n.
	pods string
	n    int
	// isLong leaves it to make test-all.
	isLong bool
}

var startingGangs = []startingGang{{
	pool: "jobset", pods: operators.LabelJobSet + "=set", n: 2,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.JobSet)
		s.submit(rigidJobSet(gpuTemplate("jobset")))
	},
}, {
	pool: "torch", pods: operators.LabelJobSet + "=torch", n: 2,
	submit: func(s *jobSuite) {
		s.runTrainer(operators.TorchDistributed)
		s.submit(torchTrainJob("torch", ""))
	},
}, {
	// The launcher is one of the three.
	pool: "deepspeed", pods: operators.LabelJobSet + "=deepspeed", n: 3,
	submit: func(s *jobSuite) {
		s.runTrainer(operators.DeepSpeedDistributed)
		s.submit(mpiTrainJob("deepspeed", ""))
	},
}, {
	pool: "mpi", pods: "training.kubeflow.org/job-name=mpi,training.kubeflow.org/job-role=worker", n: 2, isLong: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.MPIOperator)
		s.submit(strings.Replace(mpiJobV2(gpuTemplate("mpi")), "--min-np 1 ", "", 1))
	},
}, {
	pool: "lws", pods: operators.LabelLeaderWorkerSet + "=lws", n: 2, isLong: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.LeaderWorkerSet)
		s.submit(strings.Replace(leaderWorkerSet(gpuTemplate("lws")), "replicas: 2", "replicas: 1", 1))
	},
}, {
	pool: "ray", pods: "ray.io/cluster=ray,ray.io/node-type=worker", n: 2, isLong: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.KubeRay)
		s.submit(`
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray, labels: {ray.io/gang-scheduling-enabled: "true"}}
spec:
  headGroupSpec: {template: ` + systemTemplate("ray start --head") + `}
  workerGroupSpecs:
  - {groupName: gpu, replicas: 2, minReplicas: 2, maxReplicas: 2, template: ` + gpuTemplate("ray") + `}
`)
	},
}}

// gangsOfTrainingOperator are apart because one cluster has the MPI operator or the training operator: their definitions have one name.
var gangsOfTrainingOperator = []startingGang{{
	pool: "pytorch", pods: "training.kubeflow.org/job-name=pytorch", n: 2,
	submit: func(s *jobSuite) {
		s.submit(fmt.Sprintf(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: pytorch}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: %[1]s}
    Worker: {replicas: 1, template: %[1]s}
`, kubeflowTemplate("pytorch", "pytorch")))
	},
}, {
	pool: "tf", pods: "training.kubeflow.org/job-name=tf", n: 3,
	submit: func(s *jobSuite) { s.submit(tfJob("tf")) },
}, {
	pool: "jax", pods: "training.kubeflow.org/job-name=jax", n: 3,
	submit: func(s *jobSuite) { s.submit(jaxJob("jax")) },
}}

// TestJobsOfOperatorsAreBoughtAsAWholeOnTheirFirstStart submits a job of each system that is a gang without being declared one to a pool
// that has room for all of its pods but one. Nothing is bought before the room is there, and all of it then, at once.
func TestJobsOfOperatorsAreBoughtAsAWholeOnTheirFirstStart(t *testing.T) {
	t.Run("together", func(t *testing.T) { checkStartingGangs(t, startingGangs) })
	t.Run("training-operator", func(t *testing.T) {
		checkStartingGangs(t, gangsOfTrainingOperator, operators.TrainingOperator)
	})
}

func checkStartingGangs(t *testing.T, gangs []startingGang, systems ...operators.System) {
	var pools []alisim.Pool
	for _, gang := range gangs {
		pool := jobPool(gang.pool)
		pool.MaxSize = gang.n - 1
		pools = append(pools, pool)
	}
	s := startJobSuite(t, newWorld(pools...))
	s.runLeader()
	for _, system := range systems {
		operators.ForTest(t, s.Cluster, system)
	}
	t.Run("parts", func(t *testing.T) {
		for _, gang := range gangs {
			t.Run(gang.pool, func(t *testing.T) {
				if gang.isLong {
					rig.Long(t)
				}
				gang.check(s.subtest(t))
			})
		}
	})
}

func (g startingGang) check(s *jobSuite) {
	s.t.Helper()
	g.submit(s)
	s.awaitEvent("SpotGangDoesNotFit", "of its "+fmt.Sprint(g.n), "/"+g.pool)
	assert.Empty(s.t, s.purchasesOf(g.pool), "the others would wait for the last one")

	require.NoError(s.t, s.Cloud.PutGroup(jobPool(g.pool)))
	s.awaitRunningPods(g.pods, g.n)
	assert.Equal(s.t, []string{fmt.Sprint(g.n)}, s.purchasesOf(g.pool), "all of it is bought at once")
}
