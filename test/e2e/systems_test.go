package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/bench/report"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// measuredSystem is a job of one system, and what is measured of it while the Node of one of its workers is reclaimed.
type measuredSystem struct {
	name, pool string
	// isReal says that the system's own operator runs, and no stand-in.
	isReal bool
	// submit starts the operator and submits the job.
	submit func(*jobSuite)
	// workers selects those that are watched, all of which the job needs or has.
	workers string
	n       int
	// kind and job are those of the object that the autoscaler suspends.
	kind, job string
	// suspends says that the system can suspend the job or go on without the worker, so that nothing need be counted against its limit.
	suspends bool
	// countsAnyway is what it counts against that limit all the same.
	countsAnyway string
	// counts names what the system itself counts against its limit, and restarts reads it; empty and nil if it has no limit.
	counts   string
	restarts func(*jobSuite) int
}

// systemRow is what a reclaim cost the job of one system.
type systemRow struct {
	System       string `json:"system"`
	RealOperator bool   `json:"real_operator"`
	// Restarts is what the system counted; nil if it has no limit, so that it counts nothing.
	Restarts *int    `json:"restarts_counted"`
	LostWork float64 `json:"lost_work_s"`
	Downtime float64 `json:"downtime_s"`
	// Suspends says that the system can suspend the job, or go on with the workers that are left, and counts nothing then: Restarts has to
	// be 0.
	Suspends bool `json:"suspends"`
	// CountsAnyway is what the system counts although it can do one of that; empty if there is nothing.
	CountsAnyway string `json:"counts_anyway"`
	// Suspended says that this job was suspended, and did not go on with the workers that were left.
	Suspended bool `json:"suspended"`
	// Counts names what was read as restarts; empty if the system has no limit.
	Counts string `json:"counts"`
}

// systemRows are those of parallel subtests.
type systemRows struct {
	mu   sync.Mutex
	rows []systemRow
	aims []report.Aim
}

// TestReclaimOfEachJobSystem measures what the reclaim of one Node costs a job of each system, and writes it to the directory that
// BENCH_SYSTEMS names; make bench-systems runs it. An aim that is missed is told, and is no failure.
func TestReclaimOfEachJobSystem(t *testing.T) {
	out := os.Getenv("BENCH_SYSTEMS")
	if out == "" {
		t.Skip("a measurement: make bench-systems runs it")
	}
	began, rows := time.Now(), &systemRows{}
	t.Run("together", func(t *testing.T) { rows.measure(newMeasuredSuite(t, newWorld(), measuredSystems), measuredSystems) })
	// One cluster has the MPI operator, the training operator or Arena's: their definitions have one name.
	t.Run("training-operator", func(t *testing.T) {
		s := newMeasuredSuite(t, newWorld(), trainingOperatorSystems)
		operators.ForTest(t, s.Cluster, operators.TrainingOperator)
		createNodeForLaunchers(s)
		rows.measure(s, trainingOperatorSystems)
	})
	t.Run("arena", func(t *testing.T) { rows.measure(newMeasuredSuite(t, newWorld(), arenaSystems), arenaSystems) })
	for _, until := range []string{"ready", "bought"} {
		t.Run(until, func(t *testing.T) {
			systems := slowNodes(until)
			w := newWorld()
			w.BootDelay, w.DriverDelay = metav1.Duration{Duration: 15 * time.Second}, metav1.Duration{Duration: 10 * time.Second}
			s := newMeasuredSuite(t, w, systems, "--reclaim-replace-until="+until)
			operators.ForTest(t, s.Cluster, operators.TrainingOperator)
			rows.measure(s, systems)
		})
	}
	rows.write(t, out, began)
}

// newMeasuredSuite starts the world with a pool for each system, and an autoscaler with the flags.
func newMeasuredSuite(t *testing.T, w alisim.World, systems []measuredSystem, flags ...string) *jobSuite {
	t.Helper()
	var pools []string
	for _, system := range systems {
		pools = append(pools, system.pool)
	}
	s := startJobSuite(t, w, pools...)
	s.runLeader(flags...)
	return s
}

// slowNodes is the PyTorchJob where nodes take 25 s until they are ready, and its pods stay until the replacement is ready or only bought.
func slowNodes(until string) []measuredSystem {
	system := trainingOperatorSystems[0]
	system.name += ", slow nodes, --reclaim-replace-until=" + until
	return []measuredSystem{system}
}

// measure returns when all systems are measured.
func (r *systemRows) measure(s *jobSuite, systems []measuredSystem) {
	s.t.Run("parts", func(t *testing.T) {
		for _, system := range systems {
			t.Run(system.pool, func(t *testing.T) {
				row := system.measure(s.subtest(t))
				r.mu.Lock()
				defer r.mu.Unlock()
				r.rows = append(r.rows, row)
				if row.Suspends && row.Restarts != nil {
					r.aims = append(r.aims, report.AtMost(0, float64(*row.Restarts), "restarts_counted of %s", system.name))
				}
			})
		}
	})
}

func (m *measuredSystem) measure(s *jobSuite) systemRow {
	s.t.Helper()
	m.submit(s)
	pods := s.awaitRunningPods(m.workers, m.n)
	before := 0
	if m.restarts != nil {
		before = m.restarts(s)
	}
	work := s.recordWork(m.workers, m.n)
	reclaiming := s.reclaimNodesOf(pods[len(pods)-1])
	s.awaitGone(reclaiming)
	rig.Eventually(s.t, recovered, m.name+" is whole again", func(context.Context) (bool, error) { return work.over(), nil })
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(m.workers, m.n))

	work.mu.Lock()
	defer work.mu.Unlock()
	require.False(s.t, work.unsaved, "a worker of %s stopped before it was asked for a checkpoint", m.name)
	row := systemRow{
		System: m.name, RealOperator: m.isReal, Counts: m.counts,
		LostWork: rounded(work.lost), Downtime: rounded(work.whole.Sub(work.stopped)),
		Suspends: m.suspends && m.countsAnyway == "", CountsAnyway: m.countsAnyway,
		Suspended: countEvents(s, m.kind, m.job, "SpotJobSuspended") > 0,
	}
	if m.restarts != nil {
		row.Restarts = ptr.To(m.restarts(s) - before)
	}
	return row
}

// rounded is the duration in seconds, to a tenth: what is observed of pods comes no sooner.
func rounded(d time.Duration) float64 { return d.Round(100 * time.Millisecond).Seconds() }

// write writes the rows as JSON and as a table.
func (r *systemRows) write(t *testing.T, directory string, began time.Time) {
	t.Helper()
	slices.SortFunc(r.rows, func(a, b systemRow) int { return strings.Compare(a.System, b.System) })
	slices.SortFunc(r.aims, func(a, b report.Aim) int { return strings.Compare(a.Aim, b.Aim) })
	found := report.Report{
		Title: "What the reclaim of one node costs a job, by job system", Rows: r.rows, Aims: r.aims,
		Machine: report.ThisMachine(), Seconds: time.Since(began).Seconds(),
	}
	require.NoError(t, os.MkdirAll(directory, 0o755))
	require.NoError(t, found.Write(filepath.Join(directory, "systems.json")))
	table, err := os.Create(filepath.Join(directory, "systems.txt"))
	require.NoError(t, err)
	found.Print(table)
	require.NoError(t, table.Close())
}

var trainingOperatorSystems = []measuredSystem{{
	name: "training operator, PyTorchJob", pool: "elastic", isReal: true, suspends: true,
	submit:  func(s *jobSuite) { s.submit(pytorchJob("elastic", "OnFailure", 3)) },
	workers: "training.kubeflow.org/job-name=elastic", n: 3, kind: "PyTorchJob", job: "elastic",
	counts:   "Events PyTorchJobRestarting, replicaStatuses.Worker.failed",
	restarts: restartsOfTrainingOperator("PyTorchJob", operators.PyTorchJobs, "elastic", "Worker"),
}, {
	name: "training operator, TFJob", pool: "tf", isReal: true, suspends: true,
	submit:  func(s *jobSuite) { s.submit(tfJob("tf")) },
	workers: "training.kubeflow.org/job-name=tf", n: 3, kind: "TFJob", job: "tf",
	counts:   "Events TFJobRestarting, failed of replicaStatuses",
	restarts: restartsOfTrainingOperator("TFJob", operators.TFJobs, "tf", "Chief", "Worker"),
}, {
	name: "training operator, JAXJob", pool: "jax", isReal: true, suspends: true,
	submit:  func(s *jobSuite) { s.submit(jaxJob("jax")) },
	workers: "training.kubeflow.org/job-name=jax", n: 3, kind: "JAXJob", job: "jax",
	counts:   "Events JAXJobRestarting, replicaStatuses.Worker.failed",
	restarts: restartsOfTrainingOperator("JAXJob", operators.JAXJobs, "jax", "Worker"),
}, {
	name: "training operator, MPIJob v1", pool: "mpi", isReal: true, suspends: true,
	submit:  func(s *jobSuite) { s.submit(mpiJob("mpi", "restartPolicy: ExitCode,")) },
	workers: "training.kubeflow.org/job-name=mpi,training.kubeflow.org/replica-type=worker", n: 3, kind: "MPIJob", job: "mpi",
	counts:   "Events MPIJobRestarting, failed of replicaStatuses",
	restarts: restartsOfTrainingOperator("MPIJob", operators.KubeflowMPIJobsV1, "mpi", "Launcher", "Worker"),
}}

// restartsOfTrainingOperator reads what the training operator tells of restarts, and of failed replicas of the types.
func restartsOfTrainingOperator(kind string, of schema.GroupVersionResource, job string, types ...string) func(*jobSuite) int {
	return func(s *jobSuite) int {
		s.t.Helper()
		n := countEvents(s, kind, job, kind+"Restarting")
		for _, replicas := range types {
			n += s.number(of, job, "status.replicaStatuses."+replicas+".failed")
		}
		return n
	}
}

var arenaSystems = []measuredSystem{{
	name: "Arena's MPI operator, MPIJob v1alpha1", pool: "arena",
	submit: func(s *jobSuite) {
		s.runOperator(standin.NewArenaMPIOperator)
		s.submit(arenaMPIJob(gpuTemplate("arena", awaited)))
		s.awaitField(standin.ArenaMPIJobs, "arena", "status.launcherStatus", "Active")
	},
	workers: standin.LabelArenaMPIJob + "=arena," + standin.LabelArenaRole + "=worker", n: 3, kind: "MPIJob", job: "arena",
	counts:   "failed of the launcher's Job",
	restarts: func(s *jobSuite) int { return s.number(batchJobs, "arena-launcher", "status.failed") },
}}

// measuredSystems are those that one cluster can have together.
var measuredSystems = []measuredSystem{{
	name: "Kueue, Indexed Job", pool: "queued", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runKueue()
		s.submit(operators.Queue("gpu", metav1.NamespaceDefault, 3))
		s.submit(queuedJob("queued", "gpu", 3, gpuTemplate("queued", awaited)))
	},
	workers: "job-name=queued", n: 3, kind: "Job", job: "queued",
	counts:   "status.failed, requeueState.count of its Workload",
	restarts: func(s *jobSuite) int { return s.number(batchJobs, "queued", "status.failed") + requeuesOfKueue(s) },
}, {
	name: "MPI operator, MPIJob v2beta1", pool: "mpi", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.MPIOperator)
		s.submit(mpiJobV2(gpuTemplate("mpi", awaited)))
	},
	workers: "training.kubeflow.org/job-name=mpi,training.kubeflow.org/job-role=worker", n: 2, kind: "MPIJob", job: "mpi",
	counts: "failed of the launcher's Job, replicaStatuses.Worker.failed",
	restarts: func(s *jobSuite) int {
		return s.number(batchJobs, "mpi-launcher", "status.failed") + s.number(operators.MPIJobs, "mpi", "status.replicaStatuses.Worker.failed")
	},
}, {
	name: "JobSet", pool: "jobset", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.JobSet)
		s.submit(rigidJobSet(gpuTemplate("jobset", awaited)))
	},
	workers: operators.LabelJobSet + "=set", n: 2, kind: "JobSet", job: "set",
	counts: "status.restarts, failed of its Jobs",
	restarts: func(s *jobSuite) int {
		return s.number(operators.JobSets, "set", "status.restarts") +
			s.number(batchJobs, "set-node-0", "status.failed") + s.number(batchJobs, "set-node-1", "status.failed")
	},
}, {
	name: "Kubeflow Trainer, TrainJob", pool: "trainjob", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.JobSet)
		s.runRealOperator(operators.Trainer)
		s.submit(trainJob(gpuTemplate("trainjob", awaited)))
	},
	workers: operators.LabelJobSet + "=trainjob", n: 2, kind: "JobSet", job: "trainjob",
	counts: "status.restarts of its JobSet, failed of its Job",
	restarts: func(s *jobSuite) int {
		return s.number(operators.JobSets, "trainjob", "status.restarts") + s.number(batchJobs, "trainjob-node-0", "status.failed")
	},
}, {
	name: "Kubeflow Trainer, TrainJob for PyTorch", pool: "torch", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runTrainer(operators.TorchDistributed)
		s.submit(torchTrainJob("torch", awaited+","))
	},
	workers: operators.LabelJobSet + "=torch", n: 2, kind: "JobSet", job: "torch",
	counts: "status.restarts of its JobSet, failed of its Job",
	restarts: func(s *jobSuite) int {
		return s.number(operators.JobSets, "torch", "status.restarts") + s.number(batchJobs, "torch-node-0", "status.failed")
	},
}, {
	name: "Kubeflow Trainer, TrainJob for MPI", pool: "deepspeed", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runTrainer(operators.DeepSpeedDistributed)
		s.submit(mpiTrainJob("deepspeed", awaited+","))
	},
	workers: operators.LabelJobSet + "=deepspeed", n: 3, kind: "JobSet", job: "deepspeed",
	counts: "status.restarts of its JobSet, failed of its Jobs",
	restarts: func(s *jobSuite) int {
		return s.number(operators.JobSets, "deepspeed", "status.restarts") +
			s.number(batchJobs, "deepspeed-launcher-0", "status.failed") + s.number(batchJobs, "deepspeed-node-0", "status.failed")
	},
}, {
	name: "Kubernetes, Indexed Job", pool: "indexed", isReal: true, suspends: true,
	submit:  func(s *jobSuite) { s.submit(rigidJob(gpuTemplate("indexed", awaited))) },
	workers: "job-name=indexed", n: 3, kind: "Job", job: "indexed",
	counts:   "status.failed",
	restarts: func(s *jobSuite) int { return s.number(batchJobs, "indexed", "status.failed") },
}, {
	name: "LeaderWorkerSet", pool: "lws", isReal: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.LeaderWorkerSet)
		s.submit(leaderWorkerSet(gpuTemplate("lws", awaited)))
	},
	workers: operators.LabelLeaderWorkerSet + "=lws,leaderworkerset.sigs.k8s.io/group-index=0", n: 2, kind: "LeaderWorkerSet", job: "lws",
}, {
	name: "KubeRay, RayJob", pool: "rayjob", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.KubeRay)
		s.submit(rayJob(gpuTemplate("rayjob", `metadata: {labels: {job: rayjob}, annotations: {gpu-spot.autoscaling/await-checkpoint: "true"}}`)))
		s.awaitField(operators.RayJobs, "rayjob", "status.jobDeploymentStatus", "Running")
	},
	workers: "job=rayjob", n: 2, kind: "RayJob", job: "rayjob",
	counts:   "status.failed",
	restarts: func(s *jobSuite) int { return s.number(operators.RayJobs, "rayjob", "status.failed") },
}, {
	name: "KubeRay, RayCluster", pool: "ray", isReal: true, suspends: true,
	submit: func(s *jobSuite) {
		s.runRealOperator(operators.KubeRay)
		s.submit(rayCluster("ray", "", awaited))
	},
	workers: "ray.io/cluster=ray,ray.io/node-type=worker", n: 2, kind: "RayCluster", job: "ray",
}, {
	name: "et-operator, TrainingJob", pool: "et", suspends: true,
	submit: func(s *jobSuite) {
		s.runOperator(standin.NewETOperator)
		s.submit(etJob(gpuTemplate("et", awaited)))
		s.awaitField(standin.TrainingJobs, "et", "status.phase", "Running")
	},
	workers: etWorkers, n: 8, kind: "TrainingJob", job: "et",
	counts:   "status.restartCount",
	restarts: func(s *jobSuite) int { return s.number(standin.TrainingJobs, "et", "status.restartCount") },
}, {
	name: "Volcano, Job", pool: "volcano", suspends: true, countsAnyway: "one of status.retryCount, against maxRetry, whenever a job is resumed",
	submit: func(s *jobSuite) {
		s.runOperator(standin.NewVolcano)
		s.submit(volcanoJob(gpuTemplate("volcano", awaited)))
	},
	workers: standin.LabelVolcanoJob + "=vc", n: 2, kind: "Job", job: "vc",
	counts:   "status.retryCount",
	restarts: func(s *jobSuite) int { return s.number(standin.VolcanoJobs, "vc", "status.retryCount") },
}, {
	name: "DLRover, ElasticJob", pool: "dlrover", suspends: true, countsAnyway: "one of restartCount for each worker that is launched anew",
	submit: func(s *jobSuite) {
		s.runOperator(standin.NewDLRover)
		s.submit(dlroverJob(gpuTemplate("dlrover", awaited)))
	},
	workers: standin.LabelElasticJob + "=dl,elasticjob.dlrover/replica-type=worker", n: 2, kind: "ElasticJob", job: "dl",
	counts: "relaunch-count of its workers", restarts: relaunchesOfDLRover,
}, {
	name: "Baidu CCE, AITrainingJob", pool: "aitj", suspends: true, countsAnyway: "one of status.RestartCount, against restartLimit, for each pod that is replaced",
	submit: func(s *jobSuite) {
		s.runOperator(standin.NewAITrainingOperator)
		s.submit(aiTrainingJob(gpuTemplate("aitj", awaited)))
	},
	workers: standin.LabelAITrainingJob + "=aitj", n: 2, kind: "AITrainingJob", job: "aitj",
	counts:   "status.RestartCount",
	restarts: func(s *jobSuite) int { return s.number(standin.AITrainingJobs, "aitj", "status.RestartCount.trainer") },
}}

// number returns a field of the object that is a number; 0 if it is not set.
func (s *jobSuite) number(of schema.GroupVersionResource, name, path string) int {
	s.t.Helper()
	n, _ := s.field(of, name, path).(int64)
	return int(n)
}

// requeuesOfKueue counts those of all Workloads: only one job is queued.
func requeuesOfKueue(s *jobSuite) (n int) {
	s.t.Helper()
	workloads, err := s.objects.Resource(operators.Workloads).Namespace(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{})
	require.NoError(s.t, err)
	for _, workload := range workloads.Items {
		count, _, err := unstructured.NestedInt64(workload.Object, "status", "requeueState", "count")
		assert.NoError(s.t, err)
		n += int(count)
	}
	return n
}

func relaunchesOfDLRover(s *jobSuite) (n int) {
	s.t.Helper()
	pods, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).List(s.t.Context(), metav1.ListOptions{LabelSelector: standin.LabelElasticJob + "=dl"})
	require.NoError(s.t, err)
	for _, pod := range slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool { return pod.Labels[standin.LabelRelaunchCount] == "" }) {
		count, err := strconv.Atoi(pod.Labels[standin.LabelRelaunchCount])
		require.NoError(s.t, err)
		n += count
	}
	return n
}
