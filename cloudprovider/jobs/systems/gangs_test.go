package systems_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

// elasticJobSet can train with two pods.
var elasticJobSet = strings.NewReplacer("uid: uid-llm", `uid: uid-llm, annotations: {gpu-spot.autoscaling/min-replicas: "2"}`,
	"          parallelism: 3\n", "          parallelism: 3\n          podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}\n",
).Replace(jobstest.JobSet)

func TestGangs(t *testing.T) {
	covered := sets.New[string]()
	for name, test := range map[string]struct {
		system, job, document string
		workers               int
		want                  string
		gpus                  int64
	}{
		"Job":                {"job", "train", jobstest.IndexedJob, 2, "train-0 worker, train-1 worker", 4},
		"elastic PyTorchJob": {"pytorchjob", "imagenet", jobstest.ElasticPyTorchJob, 2, "imagenet-worker-0 worker, imagenet-worker-1 worker", 2},
		"PyTorchJob":         {"pytorchjob", "bert", jobstest.PyTorchJob, 3, "bert-worker-0 worker, bert-worker-1 worker, bert-master-0 host", 3},
		"TFJob, with its hosts": {"tfjob", "ctr", jobstest.TFJob, 5,
			"ctr-worker-0 worker, ctr-worker-1 worker, ctr-ps-0 host, ctr-ps-1 host, ctr-chief-0 host", 3},
		"JAXJob": {"jaxjob", "gemma", jobstest.JAXJob, 3, "gemma-worker-0 worker, gemma-worker-1 worker, gemma-worker-2 worker", 24},
		"MPIJob": {"mpijob", "tf", jobstest.ElasticMPIJob, 2, "tf-worker-0 worker, tf-worker-1 worker, tf-launcher-0 launcher", 4},
		"MPIJob of Arena, whose launcher has resources of its own": {"mpijob-v1alpha1", "resnet50", jobstest.ArenaMPIJob, 2,
			"resnet50-worker-0 worker, resnet50-worker-1 worker, resnet50-launcher-0 launcher", 8},
		"JobSet, whole at all times": {"jobset", "llm", jobstest.JobSet, 1,
			"llm-node-0-0 worker, llm-node-0-1 worker, llm-node-0-2 worker, llm-node-1-0 worker, llm-node-1-1 worker, llm-node-1-2 worker", 48},
		"JobSet that can train with fewer": {"jobset", "llm", elasticJobSet, 4,
			"llm-node-0-0 worker, llm-node-0-1 worker, llm-node-0-2 worker, llm-node-1-0 worker", 32},
		"TrainJob": {"jobset", "llm", jobstest.JobSetOfTrainJob, 6,
			"llm-node-0-0 worker, llm-node-0-1 worker, llm-node-0-2 worker, llm-node-1-0 worker, llm-node-1-1 worker, llm-node-1-2 worker", 48},
		"TrainJob for MPI, whose launcher trains": {"jobset", "deepspeed", jobstest.JobSetOfMPITrainJob, 3,
			"deepspeed-node-0-0 worker, deepspeed-node-0-1 worker, deepspeed-node-0-2 worker, deepspeed-launcher-0-0 launcher", 32},
		"ElasticJob":    {"dlrover", "nanogpt", jobstest.ElasticJob, 2, "nanogpt-edljob-worker-0 worker, nanogpt-edljob-worker-1 worker, nanogpt-edljob-dlrover-master-0 launcher", 2},
		"AITrainingJob": {"aitrainingjob", "horovod", jobstest.AITrainingJob, 2, "horovod-trainer-0 worker, horovod-trainer-1 worker, horovod-launcher-0 launcher", 2},
		"RayCluster, each group's minimum first": {"raycluster", "rc", jobstest.RayCluster, 4,
			"rc-big-worker-0 worker, rc-big-worker-1 worker, rc-big-worker-2 worker, rc-small-worker-0 worker, rc-headgroup-head-0 launcher", 25},
		"RayJob": {"rayjob", "rj", jobstest.RayJob, 1, "rj-gpu-worker-0 worker, rj-headgroup-head-0 launcher", 8},
		"LeaderWorkerSet": {"leaderworkerset", "vllm", jobstest.LeaderWorkerSet, 6,
			"vllm-0-1 worker, vllm-0-2 worker, vllm-1-1 worker, vllm-1-2 worker, vllm-0 host, vllm-1 host", 34},
		"LeaderWorkerSet with one template": {"leaderworkerset", "vllm", strings.Replace(jobstest.LeaderWorkerSet, "leaderTemplate", "noTemplate", 1), 6,
			"vllm-0-1 worker, vllm-0-2 worker, vllm-1-1 worker, vllm-1-2 worker, vllm-0 host, vllm-1 host", 48},
		"Volcano job": {"vcjob", "resnet", jobstest.VolcanoJob, 2, "resnet-worker-0 worker, resnet-worker-1 worker, resnet-mpimaster-0 launcher", 2},
	} {
		covered.Insert(test.system)
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.document)
			names, gpus := f.GangOf(f.Get(test.system, test.job), test.workers)
			assert.Equal(t, test.want, strings.Join(names, ", "))
			assert.Equal(t, test.gpus, gpus, "GPUs of all these pods")
		})
	}
	requireEverySystem(t, covered, "trainingjob", "mpijob-v1")
}

func TestNoPodIsMadeOfAJobForWhichThereIsNoRoom(t *testing.T) {
	const template = `template: {spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}`
	f := newFixture(t)
	covered := sets.New[string]()
	for system, spec := range map[string]string{
		"job":             `{parallelism: 300000, completionMode: Indexed, ` + template + `}`,
		"pytorchjob":      `{pytorchReplicaSpecs: {Worker: {replicas: 300000, ` + template + `}}}`,
		"tfjob":           `{tfReplicaSpecs: {Worker: {replicas: 300000, ` + template + `}}}`,
		"jaxjob":          `{jaxReplicaSpecs: {Worker: {replicas: 300000, ` + template + `}}}`,
		"mpijob":          `{mpiReplicaSpecs: {Worker: {replicas: 300000, ` + template + `}, Launcher: {` + template + `}}}`,
		"trainingjob":     `{etReplicaSpecs: {worker: {replicas: 300000, ` + template + `}, launcher: {` + template + `}}}`,
		"jobset":          `{replicatedJobs: [{name: w, replicas: 1000000000, template: {spec: {parallelism: 1000000000, ` + template + `}}}]}`,
		"raycluster":      `{headGroupSpec: {` + template + `}, workerGroupSpecs: [{groupName: w, replicas: 300000, minReplicas: 0, maxReplicas: 300000, ` + template + `}]}`,
		"rayjob":          `{rayClusterSpec: {headGroupSpec: {` + template + `}, workerGroupSpecs: [{groupName: w, replicas: 300000, ` + template + `}]}}`,
		"mpijob-v1alpha1": `{replicas: 300000, ` + template + `}`,
		"dlrover":         `{replicaSpecs: {worker: {replicas: 300000, ` + template + `}, dlrover-master: {` + template + `}}}`,
		"aitrainingjob":   `{replicaSpecs: {trainer: {replicas: 300000, ` + template + `}}}`,
		"leaderworkerset": `{replicas: 1000000000, leaderWorkerTemplate: {size: 1000000000, workerT` + template[1:] + `}}`,
		"vcjob":           `{tasks: [{name: launcher, replicas: 2000000000, ` + template + `}, {name: w, replicas: 300000, ` + template + `}]}`,
	} {
		covered.Insert(system)
		object := jobstest.Parse(t, `{apiVersion: `+f.Resource(system).GroupVersion().String()+`, kind: Any, metadata: {name: big}, spec: `+spec+`}`)
		require.NoError(t, f.Dynamic.Tracker().Create(f.Resource(system), object, "ml"))
		job := f.Get(system, "big")
		rooms := 0
		pods, err := f.Registry.Gang(job, job.Replicas, func(*corev1.Pod) int { rooms++; return 24 })
		var large *jobs.TooManyPodsError
		assert.ErrorAs(t, err, &large, system)
		assert.Empty(t, pods, system)
		assert.Less(t, rooms, 10, "%s: one pod of each template was made at most", system)
		_, err = f.Registry.Gang(job, job.Replicas, jobstest.AnyNumber)
		assert.ErrorAs(t, err, &large, "%s: however large the pools are", system)
	}
	requireEverySystem(t, covered, "mpijob-v1")
}

func TestEachGroupOfALeaderWorkerSetStartsAsAGang(t *testing.T) {
	labels := "leaderworkerset.sigs.k8s.io/name: vllm, leaderworkerset.sigs.k8s.io/group-index: \"1\", leaderworkerset.sigs.k8s.io/worker-index: \"%d\""
	leader := jobstest.ParsePod(t, pod("vllm-1", fmt.Sprintf(labels, 0), "apiVersion: apps/v1, kind: StatefulSet, name: vllm"))
	worker := jobstest.ParsePod(t, pod("vllm-1-1", fmt.Sprintf(labels, 1), "apiVersion: apps/v1, kind: StatefulSet, name: vllm-1"))
	type start struct {
		part string
		size int
	}
	for name, test := range map[string]struct {
		from, to       string
		leader, worker start
	}{
		"all at once":                      {"", "", start{"1", 3}, start{"1", 3}},
		"once the leader is ready":         {"LeaderCreated", "LeaderReady", start{}, start{"1", 2}},
		"once the leader has its Node":     {"uid: uid-vllm", "uid: uid-vllm, annotations: {leaderworkerset.sigs.k8s.io/exclusive-topology: rack}", start{}, start{"1", 2}},
		"a group of one, which is no gang": {"size: 3", "size: 1", start{"1", 1}, start{"1", 1}},
	} {
		t.Run(name, func(t *testing.T) {
			starts := jobs.NewStarts(newFixture(t, strings.Replace(jobstest.LeaderWorkerSet, test.from, test.to, 1)).Registry)
			for pod, want := range map[*corev1.Pod]start{leader: test.leader, worker: test.worker} {
				ref, ok := starts.JobOf(pod)
				require.True(t, ok)
				gangs, err := starts.GangsOf(t.Context(), ref)
				require.NoError(t, err)
				part, size := gangs.Of(pod)
				assert.Equal(t, want, start{part, size}, pod.Name)
			}
		})
	}
}

func TestTheLauncherOfAnMPIJobStartsWithTheWorkersWhereItTrains(t *testing.T) {
	worker := jobstest.ParsePod(t, pod("tf-worker-1", "training.kubeflow.org/operator-name: mpi-operator, training.kubeflow.org/job-name: tf, training.kubeflow.org/job-role: worker",
		"apiVersion: kubeflow.org/v2beta1, name: tf, kind: MPIJob"))
	launcher := jobstest.ParsePod(t, jobstest.MPILauncher)
	for name, test := range map[string]struct {
		fields           string
		worker, launcher int
	}{
		"it does not train":                     {"", 2, 0},
		"it trains":                             {"runLauncherAsWorker: true", 2, 2},
		"it trains, once the workers are ready": {"runLauncherAsWorker: true, launcherCreationPolicy: WaitForWorkersReady", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			document := jobstest.ElasticMPIJob
			for _, field := range strings.Split(test.fields, ", ") {
				document = strings.Replace(document, "  runPolicy", "  "+field+"\n  runPolicy", 1)
			}
			starts := jobs.NewStarts(newFixture(t, document).Registry)
			for pod, want := range map[*corev1.Pod]int{worker: test.worker, launcher: test.launcher} {
				ref, ok := starts.JobOf(pod)
				require.True(t, ok)
				gangs, err := starts.GangsOf(t.Context(), ref)
				require.NoError(t, err)
				_, size := gangs.Of(pod)
				assert.Equal(t, want, size, pod.Name)
			}
		})
	}
}
