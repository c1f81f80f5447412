package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const indexedJob = `
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  uid: uid-train
spec:
  parallelism: 4
  completions: 4
  completionMode: Indexed
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers: [{name: train, image: torch, resources: {limits: {nvidia.com/gpu: 2}}}]
status: {active: 4}
`

const pyTorchElastic = `
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: imagenet, uid: uid-imagenet, annotations: {gpu-spot.autoscaling/recovery: dynamic}}
spec:
  elasticPolicy: {rdzvBackend: c10d, minReplicas: 2, maxReplicas: 4, maxRestarts: 100}
  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      restartPolicy: OnFailure
      template:
        spec:
          containers: [{name: pytorch, image: torch, resources: {limits: {nvidia.com/gpu: 1}}}]
  runPolicy: {suspend: false}
status:
  conditions: [{type: Created, status: "True"}, {type: Running, status: "True"}]
`

const pyTorchMaster = `
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert, uid: uid-bert}
spec:
  pytorchReplicaSpecs:
    Master:
      template: {spec: {containers: [{name: pytorch, image: torch, resources: {limits: {nvidia.com/gpu: 1}}}]}}
    Worker:
      replicas: 3
      template: {spec: {containers: [{name: pytorch, image: torch, resources: {limits: {nvidia.com/gpu: 1}}}]}}
`

const mpiElastic = `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: tf, uid: uid-tf}
spec:
  slotsPerWorker: 2
  runPolicy: {cleanPodPolicy: Running, suspend: false}
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: launcher
              image: horovod
              command: [horovodrun]
              args: [--min-np, "3", --max-np, "16", --host-discovery-script, /etc/mpi/discover_hosts.sh, python, train.py]
    Worker:
      replicas: 4
      template:
        spec: {containers: [{name: worker, image: horovod, resources: {limits: {nvidia.com/gpu: 2}}}]}
`

const mpiLauncher = `
apiVersion: v1
kind: Pod
metadata:
  namespace: ml
  name: tf-launcher-x7x
  labels: {training.kubeflow.org/operator-name: mpi-operator, training.kubeflow.org/job-name: tf, training.kubeflow.org/job-role: launcher}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: tf-launcher, uid: u, controller: true}]
status: {phase: Running}
`

const jobSetTrain = `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: llm, uid: uid-llm}
spec:
  suspend: false
  replicatedJobs:
    - name: dataset-initializer
      template: {spec: {template: {spec: {containers: [{name: init, image: init}]}}}}
    - name: node
      replicas: 2
      template:
        spec:
          parallelism: 3
          completions: 3
          completionMode: Indexed
          template: {spec: {containers: [{name: trainer, image: torch, resources: {limits: {nvidia.com/gpu: 8}}}]}}
status:
  replicatedJobsStatus: [{name: dataset-initializer, succeeded: 1, ready: 0}, {name: node, ready: 2, succeeded: 0}]
`

const trainJob = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: llm, uid: uid-trainjob}
spec: {runtimeRef: {name: torch-distributed}, suspend: false}
`

var jobSetOfTrainJob = strings.Replace(jobSetTrain, "uid: uid-llm",
	"uid: uid-llm, ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: llm, uid: uid-trainjob, controller: true}]", 1)

const elasticJob = `
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: nanogpt, uid: uid-nanogpt}
spec:
  distributionStrategy: AllreduceStrategy
  replicaSpecs:
    worker:
      replicas: 4
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: main
              image: dlrover
              command: [/bin/bash, -c, "dlrover-run --network-check --nnodes=2:$NODE_NUM --nproc_per_node=1 train.py"]
              resources: {limits: {nvidia.com/gpu: 1}}
    dlrover-master:
      replicas: 1
      template: {spec: {containers: [{name: main, image: dlrover}]}}
status: {phase: Running}
`

const aiJob = `
apiVersion: kongming.cce.baiudbce.com/v1
kind: AITrainingJob
metadata: {name: horovod, uid: uid-horovod}
spec:
  faultTolerant: true
  frameworkType: horovod
  schedulerName: volcano
  replicaSpecs:
    launcher:
      replicas: 1
      replicaType: master
      template: {spec: {containers: [{name: aitj-0, image: horovod}]}}
    trainer:
      replicas: 3
      minReplicas: 1
      maxReplicas: 5
      replicaType: worker
      restartPolicy: OnNodeFailWithExitCode
      template: {spec: {containers: [{name: aitj-0, image: horovod, resources: {limits: {nvidia.com/gpu: 1}}}]}}
status: {phase: Running}
`

const rayCluster1 = `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: rc, uid: uid-rc}
spec:
  headGroupSpec:
    rayStartParams: {}
    template: {spec: {containers: [{name: ray-head, image: ray}]}}
  workerGroupSpecs:
    - {groupName: big, replicas: 2, minReplicas: 1, maxReplicas: 4, numOfHosts: 2,
       template: {spec: {containers: [{name: ray, image: ray, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
    - {groupName: small, replicas: 3, minReplicas: 1, maxReplicas: 3,
       template: {spec: {containers: [{name: ray, image: ray, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
    - {groupName: off, replicas: 3, minReplicas: 3, maxReplicas: 3, suspend: true,
       template: {spec: {containers: [{name: ray, image: ray}]}}}
`

const rayJob1 = `
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: rj, uid: uid-rj}
spec:
  entrypoint: python train.py
  shutdownAfterJobFinishes: true
  suspend: false
  rayClusterSpec:
    headGroupSpec:
      template: {spec: {containers: [{name: ray-head, image: ray}]}}
    workerGroupSpecs:
      - {groupName: gpu, replicas: 2, minReplicas: 1, maxReplicas: 4,
         template: {spec: {containers: [{name: ray, image: ray, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
status: {jobDeploymentStatus: Running, rayClusterName: rc}
`

var rayClusterOfRayJob = strings.Replace(rayCluster1, "uid: uid-rc",
	"uid: uid-rc, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: rj, uid: uid-rj, controller: true}]", 1)

const vcJob = `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: resnet, uid: uid-resnet}
spec:
  schedulerName: volcano
  minAvailable: 4
  maxRetry: 3
  queue: default
  tasks:
    - {name: mpimaster, replicas: 1, policies: [{event: TaskCompleted, action: CompleteJob}],
       template: {spec: {containers: [{name: mpimaster, image: horovod}]}}}
    - {name: worker, replicas: 5,
       template: {spec: {containers: [{name: worker, image: horovod, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
status: {state: {phase: Running}, minAvailable: 4, running: 6}
`

func pod(name, labels, owner string) string {
	text := fmt.Sprintf("kind: Pod\nmetadata:\n  name: %s\n  labels: {%s}\n", name, labels)
	if owner != "" {
		text += fmt.Sprintf("  ownerReferences: [{%s, uid: u, controller: true}]\n", owner)
	}
	return text
}

func TestMembers(t *testing.T) {
	kubeflow := "training.kubeflow.org/operator-name: %s, training.kubeflow.org/job-name: j, training.kubeflow.org/replica-type: %s, training.kubeflow.org/replica-index: \"%d\""
	batch := "apiVersion: batch/v1, kind: Job, name: j-x"
	jobset := "jobset.sigs.k8s.io/jobset-name: j, jobset.sigs.k8s.io/replicatedjob-name: %s, jobset.sigs.k8s.io/job-index: \"%d\", " +
		"jobset.sigs.k8s.io/job-global-index: \"%d\", batch.kubernetes.io/job-completion-index: \"%d\", batch.kubernetes.io/job-name: j-x"
	coordinator := jobset + ", jobset.sigs.k8s.io/coordinator: j-node-1-2.j"
	for _, test := range []struct {
		name, pod string
		want      Membership
	}{
		{"rendezvous host of an elastic PyTorchJob", pod("j-worker-0", fmt.Sprintf(kubeflow, "pytorchjob-controller", "worker", 0)+", training.kubeflow.org/job-role: master", ""), Membership{refOf("pytorchjob", "j"), RoleHost}},
		{"worker of a PyTorchJob", pod("j-worker-1", fmt.Sprintf(kubeflow, "pytorchjob-controller", "worker", 1), ""), Membership{refOf("pytorchjob", "j"), RoleWorker}},
		{"master of a PyTorchJob", pod("j-master-0", fmt.Sprintf(kubeflow, "pytorchjob-controller", "master", 0), ""), Membership{refOf("pytorchjob", "j"), RoleHost}},
		{"pod of a TFJob, which is of no known system", pod("j-ps-0", fmt.Sprintf(kubeflow, "tfjob-controller", "ps", 0), "apiVersion: kubeflow.org/v1, kind: TFJob, name: j"), Membership{refOf(SystemPod, "tfjob.j"), RoleWorker}},
		{"launcher of the mpi-operator, which a Job owns", mpiLauncher, Membership{refOf("mpijob", "tf"), RoleLauncher}},
		{"worker of the mpi-operator", pod("j-worker-1", "training.kubeflow.org/operator-name: mpi-operator, training.kubeflow.org/job-name: j, training.kubeflow.org/job-role: worker", ""), Membership{refOf("mpijob", "j"), RoleWorker}},
		{"launcher of the training operator", pod("j-launcher", fmt.Sprintf(kubeflow, "mpijob-controller", "launcher", 0)+", training.kubeflow.org/job-role: master", ""), Membership{refOf("mpijob-v1", "j"), RoleLauncher}},
		{"worker of the training operator's MPIJob", pod("j-worker-0", fmt.Sprintf(kubeflow, "mpijob-controller", "worker", 0), ""), Membership{refOf("mpijob-v1", "j"), RoleWorker}},
		{"first pod of a JobSet", pod("j-node-0-0-x", fmt.Sprintf(jobset, "node", 0, 0, 0), batch), Membership{refOf("jobset", "j"), RoleHost}},
		{"first pod of the second Job of a JobSet", pod("j-node-1-0-x", fmt.Sprintf(jobset, "node", 1, 1, 0), batch), Membership{refOf("jobset", "j"), RoleWorker}},
		{"coordinator of a JobSet", pod("j-node-1-2-x", fmt.Sprintf(coordinator, "node", 1, 1, 2), batch), Membership{refOf("jobset", "j"), RoleHost}},
		{"first pod of a JobSet that has a coordinator", pod("j-node-0-0-x", fmt.Sprintf(coordinator, "node", 0, 0, 0), batch), Membership{refOf("jobset", "j"), RoleWorker}},
		{"launcher of a JobSet", pod("j-launcher-0-0-x", fmt.Sprintf(jobset, "launcher", 0, 0, 0), batch), Membership{refOf("jobset", "j"), RoleLauncher}},
		{"pod of a Job", pod("j-x-abcde", "batch.kubernetes.io/job-name: j-x", batch), Membership{refOf("job", "j-x"), RoleWorker}},
		{"pod of another group's Job", pod("j-x-abcde", "a: b", "apiVersion: example.com/v1, kind: Job, name: j-x"), Membership{refOf(SystemPod, "job.j-x"), RoleWorker}},
		{"master of DLRover", pod("elasticjob-j-dlrover-master-0", "elasticjob.dlrover/name: j, elasticjob.dlrover/replica-type: dlrover-master", ""), Membership{refOf("dlrover", "j"), RoleLauncher}},
		{"worker of DLRover", pod("j-edljob-worker-0", "app: dlrover, elasticjob.dlrover/name: j, elasticjob.dlrover/replica-type: worker, elasticjob.dlrover/rank-index: \"0\"", ""), Membership{refOf("dlrover", "j"), RoleWorker}},
		{"parameter server of DLRover", pod("j-edljob-ps-0", "elasticjob.dlrover/name: j, elasticjob.dlrover/replica-type: ps", ""), Membership{refOf("dlrover", "j"), RoleHost}},
		{"launcher of an AITrainingJob", pod("my-job-launcher-0", "", "apiVersion: kongming.cce.baiudbce.com/v1, kind: AITrainingJob, name: my-job"), Membership{refOf("aitrainingjob", "my-job"), RoleLauncher}},
		{"trainer of an AITrainingJob", pod("my-job-trainer-0", "", "apiVersion: kongming.cce.baiudbce.com/v1, kind: AITrainingJob, name: my-job"), Membership{refOf("aitrainingjob", "my-job"), RoleWorker}},
		{"head of a RayCluster", pod("rc-head", "ray.io/cluster: rc, ray.io/node-type: head, ray.io/group: headgroup", ""), Membership{refOf("raycluster", "rc"), RoleLauncher}},
		{"worker of a RayCluster", pod("rc-big-worker-x", "ray.io/cluster: rc, ray.io/node-type: worker, ray.io/group: big", ""), Membership{refOf("raycluster", "rc"), RoleWorker}},
		{"submitter of a RayJob", pod("rj-abcde", "ray.io/originated-from-cr-name: rj, ray.io/originated-from-crd: RayJob", batch), Membership{refOf("rayjob", "rj"), RoleLauncher}},
		{"master of a Volcano job", pod("resnet-mpimaster-0", "volcano.sh/job-name: resnet, volcano.sh/task-spec: mpimaster", "apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: resnet"), Membership{refOf("vcjob", "resnet"), RoleLauncher}},
		{"worker of a Volcano job", pod("resnet-worker-0", "volcano.sh/job-name: resnet, volcano.sh/task-spec: worker", ""), Membership{refOf("vcjob", "resnet"), RoleWorker}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			assert.Equal(t, test.want, w.registry.Member(podOf(t, test.pod)))
		})
	}
}

func TestBounds(t *testing.T) {
	change := func(document, from, to string) string {
		require.Contains(t, document, from)
		return strings.Replace(document, from, to, 1)
	}
	type bounds struct{ Min, Max, Replicas int }
	for name, test := range map[string]struct {
		system, job, document string
		want                  bounds
	}{
		"an Indexed Job is one gang":                          {"job", "train", indexedJob, bounds{4, 4, 4}},
		"an Indexed Job whose annotations say otherwise":      {"job", "train", change(indexedJob, "metadata:\n", "metadata:\n  annotations: {gpu-spot.autoscaling/min-replicas: \"1\"}\n"), bounds{1, 4, 4}},
		"an Indexed Job of which a part has succeeded":        {"job", "train", change(indexedJob, "status: {active: 4}", "status: {active: 1, succeeded: 3}"), bounds{1, 4, 1}},
		"an Indexed Job of fewer pods than at a time":         {"job", "train", change(indexedJob, "completions: 4", "completions: 3"), bounds{3, 4, 3}},
		"pods of another Job are on their own":                {"job", "train", change(indexedJob, "completionMode: Indexed", "completionMode: NonIndexed"), bounds{0, 4, 4}},
		"a Job of one":                                        {"job", "train", change(indexedJob, "parallelism: 4", "parallelism: 1"), bounds{0, 1, 1}},
		"a Job that says nothing":                             {"job", "train", change(change(indexedJob, "  parallelism: 4\n", ""), "  completionMode: Indexed\n", ""), bounds{0, 1, 1}},
		"a PyTorchJob with a policy":                          {"pytorchjob", "imagenet", pyTorchElastic, bounds{2, 4, 3}},
		"a PyTorchJob whose policy has a maximum only":        {"pytorchjob", "imagenet", change(pyTorchElastic, "minReplicas: 2, ", ""), bounds{4, 4, 3}},
		"a PyTorchJob whose policy has a minimum only":        {"pytorchjob", "imagenet", change(pyTorchElastic, "maxReplicas: 4, ", ""), bounds{2, 2, 3}},
		"a PyTorchJob whose policy has no bounds":             {"pytorchjob", "imagenet", change(pyTorchElastic, "minReplicas: 2, maxReplicas: 4, ", ""), bounds{3, 3, 3}},
		"a PyTorchJob without a policy needs all":             {"pytorchjob", "bert", pyTorchMaster, bounds{4, 4, 4}},
		"an MPIJob under horovodrun, in workers of two slots": {"mpijob", "tf", mpiElastic, bounds{2, 8, 4}},
		"an MPIJob under mpirun needs all":                    {"mpijob", "tf", change(mpiElastic, `--min-np, "3", --max-np, "16", `, ""), bounds{4, 4, 4}},
		"an MPIJob of the training operator":                  {"mpijob-v1", "tf", change(change(mpiElastic, "v2beta1", "v1"), "    Worker:\n", "    Worker:\n      restartPolicy: ExitCode\n"), bounds{2, 8, 4}},
		"an MPIJob of the training operator, by default":      {"mpijob-v1", "tf", change(mpiElastic, "v2beta1", "v1"), bounds{4, 8, 4}},
		"a JobSet needs all that have not ended":              {"jobset", "llm", jobSetTrain, bounds{6, 6, 6}},
		"a JobSet that initializes":                           {"jobset", "llm", change(jobSetTrain, "succeeded: 1", "succeeded: 0"), bounds{7, 7, 7}},
		"a JobSet of which one Job of two has succeeded":      {"jobset", "llm", change(jobSetTrain, "ready: 2, succeeded: 0", "ready: 1, succeeded: 1"), bounds{3, 3, 3}},
		"an ElasticJob with a range of nodes":                 {"dlrover", "nanogpt", elasticJob, bounds{2, 4, 4}},
		"an ElasticJob with a range in figures":               {"dlrover", "nanogpt", change(elasticJob, "2:$NODE_NUM", "1:6"), bounds{1, 6, 4}},
		"an ElasticJob with a number of nodes":                {"dlrover", "nanogpt", change(elasticJob, "2:$NODE_NUM", "$NODE_NUM"), bounds{4, 4, 4}},
		"an AITrainingJob, without its launcher":              {"aitrainingjob", "horovod", aiJob, bounds{1, 5, 3}},
		"an AITrainingJob that is not elastic":                {"aitrainingjob", "horovod", change(aiJob, "faultTolerant: true", "faultTolerant: false"), bounds{3, 3, 3}},
		"a RayCluster, in pods, without what is suspended":    {"raycluster", "rc", rayCluster1, bounds{3, 11, 7}},
		"a RayJob":                            {"rayjob", "rj", rayJob1, bounds{1, 4, 2}},
		"a Volcano job, without its launcher": {"vcjob", "resnet", vcJob, bounds{3, 5, 5}},
		"a Volcano job that restarts when a pod is evicted": {"vcjob", "resnet", change(vcJob, "  queue: default\n", "  queue: default\n  policies: [{event: PodEvicted, action: RestartJob}]\n"), bounds{5, 5, 5}},
		"a Volcano job with a task that restarts it":        {"vcjob", "resnet", change(vcJob, "replicas: 5,", "replicas: 5, policies: [{events: [PodFailed, Unknown], action: RestartJob}],"), bounds{5, 5, 5}},
		"a Volcano job without minAvailable":                {"vcjob", "resnet", change(vcJob, "  minAvailable: 4\n", ""), bounds{5, 5, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.document)
			job := w.get(test.system, test.job)
			assert.Equal(t, test.want, bounds{job.Min, job.Max, job.Replicas})
			assert.False(t, job.Suspended || job.Finished)
		})
	}
}

func TestWhatHasEnded(t *testing.T) {
	condition := "status: {conditions: [{type: %s, status: \"%s\"}]}\n"
	for name, test := range map[string]struct {
		system, job, document string
		want                  bool
	}{
		"Job":                         {"job", "train", strings.Replace(indexedJob, "status: {active: 4}", fmt.Sprintf(condition, "Complete", "True"), 1), true},
		"Job that has not failed":     {"job", "train", strings.Replace(indexedJob, "status: {active: 4}", fmt.Sprintf(condition, "Failed", "False"), 1), false},
		"PyTorchJob":                  {"pytorchjob", "bert", pyTorchMaster + fmt.Sprintf(condition, "Succeeded", "True"), true},
		"PyTorchJob that restarts":    {"pytorchjob", "bert", pyTorchMaster + fmt.Sprintf(condition, "Restarting", "True"), false},
		"MPIJob":                      {"mpijob", "tf", mpiElastic + fmt.Sprintf(condition, "Failed", "True"), true},
		"ElasticJob":                  {"dlrover", "nanogpt", strings.Replace(elasticJob, "phase: Running", "phase: Succeeded", 1), true},
		"AITrainingJob":               {"aitrainingjob", "horovod", strings.Replace(aiJob, "phase: Running", "phase: Succeed", 1), true},
		"RayJob":                      {"rayjob", "rj", strings.Replace(rayJob1, "jobDeploymentStatus: Running", "jobDeploymentStatus: Complete", 1), true},
		"Volcano job":                 {"vcjob", "resnet", strings.Replace(vcJob, "phase: Running", "phase: Completed", 1), true},
		"Volcano job that is aborted": {"vcjob", "resnet", strings.Replace(vcJob, "phase: Running", "phase: Aborted", 1), false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.document)
			job := w.get(test.system, test.job)
			assert.Equal(t, test.want, job.Finished)
			if test.want {
				w.writes()
				err := w.registry.Suspend(context.Background(), job, ReasonReclaim)
				assert.True(t, err == nil || errors.Is(err, ErrUnsupported), "%v", err)
				assert.Empty(t, w.writes(), "it is left in peace")
			}
		})
	}
}

func TestGangs(t *testing.T) {
	for name, test := range map[string]struct {
		system, job, document string
		workers               int
		want                  string
		gpus                  int64
	}{
		"Job":                {"job", "train", indexedJob, 2, "train-0 worker, train-1 worker", 4},
		"elastic PyTorchJob": {"pytorchjob", "imagenet", pyTorchElastic, 2, "imagenet-worker-0 worker, imagenet-worker-1 worker", 2},
		"PyTorchJob":         {"pytorchjob", "bert", pyTorchMaster, 3, "bert-worker-0 worker, bert-worker-1 worker, bert-master-0 host", 3},
		"MPIJob":             {"mpijob", "tf", mpiElastic, 2, "tf-worker-0 worker, tf-worker-1 worker, tf-launcher-0 launcher", 4},
		"JobSet, whole at all times": {"jobset", "llm", jobSetTrain, 1,
			"llm-node-0-0 worker, llm-node-0-1 worker, llm-node-0-2 worker, llm-node-1-0 worker, llm-node-1-1 worker, llm-node-1-2 worker", 48},
		"ElasticJob":    {"dlrover", "nanogpt", elasticJob, 2, "nanogpt-edljob-worker-0 worker, nanogpt-edljob-worker-1 worker, nanogpt-edljob-dlrover-master-0 launcher", 2},
		"AITrainingJob": {"aitrainingjob", "horovod", aiJob, 2, "horovod-trainer-0 worker, horovod-trainer-1 worker, horovod-launcher-0 launcher", 2},
		"RayCluster, each group's minimum first": {"raycluster", "rc", rayCluster1, 4,
			"rc-big-worker-0 worker, rc-big-worker-1 worker, rc-big-worker-2 worker, rc-small-worker-0 worker, rc-headgroup-head-0 launcher", 25},
		"RayJob":      {"rayjob", "rj", rayJob1, 1, "rj-gpu-worker-0 worker, rj-headgroup-head-0 launcher", 8},
		"Volcano job": {"vcjob", "resnet", vcJob, 2, "resnet-worker-0 worker, resnet-worker-1 worker, resnet-mpimaster-0 launcher", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.document)
			names, gpus := w.gangOf(w.get(test.system, test.job), test.workers)
			assert.Equal(t, test.want, strings.Join(names, ", "))
			assert.Equal(t, test.gpus, gpus)
		})
	}
}

func TestSuspendIsOnePatchAndResumeUndoesIt(t *testing.T) {
	for name, test := range map[string]struct{ system, job, document, replicas, field string }{
		"Job":        {"job", "train", indexedJob, "4", `"spec":{"suspend":%t}`},
		"PyTorchJob": {"pytorchjob", "imagenet", pyTorchElastic, "3", `"spec":{"runPolicy":{"suspend":%t}}`},
		"MPIJob":     {"mpijob", "tf", mpiElastic, "4", `"spec":{"runPolicy":{"suspend":%t}}`},
		"MPIJob v1":  {"mpijob-v1", "tf", strings.Replace(mpiElastic, "v2beta1", "v1", 1), "4", `"spec":{"runPolicy":{"suspend":%t}}`},
		"JobSet":     {"jobset", "llm", jobSetTrain, "6", `"spec":{"suspend":%t}`},
		"RayCluster": {"raycluster", "rc", rayCluster1, "7", `"spec":{"suspend":%t}`},
		"RayJob":     {"rayjob", "rj", rayJob1, "2", `"spec":{"suspend":%t}`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.document)
			ctx := context.Background()
			job := w.get(test.system, test.job)
			resource := w.registry.byName[test.system].Resource()

			require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
			parts := ""
			if len(job.Parts) > 0 {
				parts = fmt.Sprintf(`"gpu-spot.autoscaling/held-parts":%q,`, formatParts(job.Parts))
			}
			assert.Equal(t, []string{fmt.Sprintf(`patch %s {"metadata":{"annotations":{%s"gpu-spot.autoscaling/held-reason":"reclaim","gpu-spot.autoscaling/held-replicas":%q,`+
				`"gpu-spot.autoscaling/held-since":%q},"labels":{"gpu-spot.autoscaling/held":"suspended"},"uid":%q},%s}`,
				resource.Resource, parts, test.replicas, epochText, job.UID, fmt.Sprintf(test.field, true))}, w.writes())
			assert.Equal(t, []string{ReasonSuspended}, w.events())
			now := w.get(test.system, test.job)
			assert.True(t, now.Suspended)
			assert.Equal(t, job.Replicas, now.Replicas)

			w.writes()
			require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
			assert.Empty(t, w.writes(), "the same again")
			assert.Empty(t, w.events())

			w.clock.SetTime(epoch.Add(3600e9))
			require.NoError(t, w.registry.Suspend(ctx, job, ReasonMaxWait))
			writes := w.writes()
			assert.Len(t, writes, 1, "for another reason")
			assert.Contains(t, writes[0], `"gpu-spot.autoscaling/held-reason":"max-wait"`)
			assert.Contains(t, writes[0], epochText, "it has been held since then")
			assert.Equal(t, []string{ReasonTimedOut}, w.events())

			require.NoError(t, w.registry.Resume(ctx, job, job.Replicas))
			assert.Equal(t, []string{fmt.Sprintf(`patch %s {"metadata":{"annotations":{"gpu-spot.autoscaling/held-parts":null,"gpu-spot.autoscaling/held-reason":null,"gpu-spot.autoscaling/held-replicas":null,`+
				`"gpu-spot.autoscaling/held-since":null},"labels":{"gpu-spot.autoscaling/held":null},"uid":%q},%s}`,
				resource.Resource, job.UID, fmt.Sprintf(test.field, false))}, w.writes())
			assert.Equal(t, []string{ReasonResumed}, w.events())
			assert.False(t, w.get(test.system, test.job).Suspended)

			w.writes()
			require.NoError(t, w.registry.Resume(ctx, job, job.Replicas))
			assert.Empty(t, w.writes(), "the same again")
		})
	}
}

func TestAJobThatItsOwnerSuspendedIsNotMarkedNorResumed(t *testing.T) {
	w := newWorld(t, strings.Replace(pyTorchElastic, "suspend: false", "suspend: true", 1))
	job := w.get("pytorchjob", "imagenet")
	require.True(t, job.Suspended)
	require.NoError(t, w.registry.Suspend(context.Background(), job, ReasonReclaim))
	require.NoError(t, w.registry.Resume(context.Background(), job, 3))
	assert.Empty(t, w.writes())
	assert.Empty(t, w.events())
}

func TestAnOperatorThatDoesNotKnowSuspensionLeavesNoMarks(t *testing.T) {
	w := newWorld(t, strings.Replace(pyTorchElastic, "  runPolicy: {suspend: false}\n", "", 1))
	resource := w.registry.byName["pytorchjob"].Resource()
	w.pruneOnPatch(resource, "spec", "runPolicy")
	require.ErrorIs(t, w.registry.Suspend(context.Background(), w.get("pytorchjob", "imagenet"), ReasonReclaim), ErrUnsupported)
	assert.Empty(t, w.object(resource, "imagenet").GetLabels())
	assert.Empty(t, w.events())
}

func TestWhatCannotBeSuspended(t *testing.T) {
	owned := strings.Replace(indexedJob, "  uid: uid-train\n", "  uid: uid-train\n  ownerReferences: [{apiVersion: x.io/v1, kind: Workflow, name: w, uid: u, controller: true}]\n", 1)
	served := strings.Replace(rayClusterOfRayJob, "kind: RayJob, name: rj", "kind: RayService, name: rs", 1)
	for name, test := range map[string]struct{ system, job, document string }{
		"ElasticJob":                         {"dlrover", "nanogpt", elasticJob},
		"AITrainingJob":                      {"aitrainingjob", "horovod", aiJob},
		"Job of another controller":          {"job", "train", owned},
		"RayCluster of a RayService":         {"raycluster", "rc", served},
		"RayJob that leaves its cluster":     {"rayjob", "rj", strings.Replace(rayJob1, "  shutdownAfterJobFinishes: true\n", "", 1)},
		"RayJob on a cluster of others":      {"rayjob", "rj", strings.Replace(rayJob1, "  suspend: false\n", "  clusterSelector: {ray.io/cluster: rc}\n", 1)},
		"Volcano job with one retry left":    {"vcjob", "resnet", strings.Replace(vcJob, "running: 6", "running: 6, retryCount: 2", 1)},
		"Volcano job with no retries at all": {"vcjob", "resnet", strings.Replace(vcJob, "maxRetry: 3", "maxRetry: 1", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.document)
			require.ErrorIs(t, w.registry.Suspend(context.Background(), w.get(test.system, test.job), ReasonReclaim), ErrUnsupported)
			assert.Empty(t, w.writes())
		})
	}
}

func TestJobsThatHealByThemselvesNeedNothingToShrinkOrGrow(t *testing.T) {
	for name, test := range map[string]struct{ system, job, document string }{
		"Job": {"job", "train", indexedJob}, "PyTorchJob": {"pytorchjob", "imagenet", pyTorchElastic}, "MPIJob": {"mpijob", "tf", mpiElastic},
		"ElasticJob": {"dlrover", "nanogpt", elasticJob}, "AITrainingJob": {"aitrainingjob", "horovod", aiJob},
		"RayCluster": {"raycluster", "rc", rayCluster1}, "Volcano job": {"vcjob", "resnet", vcJob},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.document)
			job := w.get(test.system, test.job)
			require.NoError(t, w.registry.Shrink(context.Background(), job, []string{test.job + "-worker-1"}))
			require.NoError(t, w.registry.Grow(context.Background(), job, 3))
			assert.Empty(t, w.writes())
			assert.Empty(t, w.events())
		})
	}
}

func TestAJobSetIsSuspendedThroughItsTrainJob(t *testing.T) {
	w := newWorld(t, jobSetOfTrainJob, trainJob)
	ctx := context.Background()
	job := w.get("jobset", "llm")
	require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
	writes := w.writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0], `patch jobsets {"metadata":{"annotations":{"gpu-spot.autoscaling/held-reason":"reclaim"`)
	assert.NotContains(t, writes[0], `"spec"`)
	assert.Equal(t, `patch trainjobs {"metadata":{"uid":"uid-trainjob"},"spec":{"suspend":true}}`, writes[1])

	jobSets := w.registry.byName["jobset"].Resource()
	require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
	assert.Len(t, w.writes(), 2, "a leader may have died between the two")
	w.set(jobSets, "llm", true, "spec", "suspend") // as the trainer does
	w.writes()
	require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
	assert.Empty(t, w.writes())

	require.NoError(t, w.registry.Resume(ctx, job, 6))
	writes = w.writes()
	require.Len(t, writes, 2)
	assert.Equal(t, `patch trainjobs {"metadata":{"uid":"uid-trainjob"},"spec":{"suspend":false}}`, writes[0])
	assert.Empty(t, w.object(jobSets, "llm").GetLabels())
}

func TestATrainJobOfKueueIsLeftToIt(t *testing.T) {
	w := newWorld(t, jobSetOfTrainJob, strings.Replace(trainJob, "name: llm,", "name: llm, labels: {kueue.x-k8s.io/queue-name: gpu},", 1))
	require.ErrorIs(t, w.registry.Suspend(context.Background(), w.get("jobset", "llm"), ReasonReclaim), ErrUnsupported)
	assert.Empty(t, w.writes())
}

func TestARayClusterStandsForItsRayJob(t *testing.T) {
	w := newWorld(t, rayClusterOfRayJob, rayJob1)
	job := w.get("raycluster", "rc")
	assert.Equal(t, refOf("rayjob", "rj"), job.Ref)
	assert.EqualValues(t, "uid-rj", job.UID)
	require.NoError(t, w.registry.Suspend(context.Background(), job, ReasonReclaim))
	assert.Len(t, w.writes(), 1)

	job = w.get("rayjob", "rj")
	assert.True(t, job.Suspended)
	var busy *BusyError
	_, err := w.registry.Gang(job, 2, anyRoom)
	require.ErrorAs(t, err, &busy, "the operator has yet to delete the old cluster")
	w.set(w.registry.byName["rayjob"].Resource(), "rj", "Suspended", "status", "jobDeploymentStatus")
	w.set(w.registry.byName["rayjob"].Resource(), "rj", "", "status", "rayClusterName")
	job = w.get("rayjob", "rj")
	assert.Equal(t, []Ref{refOf("raycluster", "rc")}, job.Parts, "pods of the old cluster may still be there")
	names, _ := w.gangOf(job, 2)
	assert.Len(t, names, 3)
	require.NoError(t, w.registry.Resume(context.Background(), job, 2))
	assert.Empty(t, w.get("rayjob", "rj").Parts)
}

func TestAVolcanoJobIsSuspendedAndResumedByCommands(t *testing.T) {
	w := newWorld(t, vcJob)
	ctx := context.Background()
	job := w.get("vcjob", "resnet")
	resource := w.registry.byName["vcjob"].Resource()
	require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
	writes := w.writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0], `"labels":{"gpu-spot.autoscaling/held":"suspended"}`)
	assert.Equal(t, "create commands resnet-spot-abortjob-0 null", writes[1])
	command := w.object(volcanoCommands, "resnet-spot-abortjob-0")
	assert.Equal(t, "AbortJob", command.Object["action"])
	assert.Equal(t, map[string]any{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "resnet", "uid": "uid-resnet", "controller": true}, command.Object["target"])
	assert.EqualValues(t, "uid-resnet", command.GetOwnerReferences()[0].UID)

	require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim), "while the first is on its way")
	w.obey("resnet-spot-abortjob-0")
	w.set(resource, "resnet", "Aborted", "status", "state", "phase")
	w.writes()
	require.NoError(t, w.registry.Suspend(ctx, job, ReasonReclaim))
	assert.Empty(t, w.writes())
	assert.True(t, w.get("vcjob", "resnet").Suspended)

	w.writes()
	require.NoError(t, w.registry.Resume(ctx, job, 5))
	writes = w.writes()
	require.Len(t, writes, 2)
	assert.Contains(t, writes[0]+writes[1], "create commands resnet-spot-resumejob-0 null")
	assert.Empty(t, w.object(resource, "resnet").GetLabels())
	assert.Equal(t, "ResumeJob", w.object(volcanoCommands, "resnet-spot-resumejob-0").Object["action"])

	require.NoError(t, w.registry.Resume(ctx, job, 5))
	assert.Empty(t, w.writes())
}

func TestMissingAndMalformedFieldsAreNamed(t *testing.T) {
	for name, test := range map[string]struct{ system, job, document, from, to, path string }{
		"Job without a spec":             {"job", "train", indexedJob, "spec:\n  parallelism", "specification:\n  parallelism", "spec"},
		"Job with a word for a number":   {"job", "train", indexedJob, "parallelism: 4", "parallelism: four", "spec.parallelism"},
		"Job with a word for a flag":     {"job", "train", indexedJob, "backoffLimit: 0", "suspend: maybe", "spec.suspend"},
		"PyTorchJob without replicas":    {"pytorchjob", "imagenet", pyTorchElastic, "pytorchReplicaSpecs", "replicaSpecs", "spec.pytorchReplicaSpecs"},
		"PyTorchJob with an odd policy":  {"pytorchjob", "imagenet", pyTorchElastic, "minReplicas: 2", "minReplicas: [2]", "spec.elasticPolicy.minReplicas"},
		"MPIJob without workers":         {"mpijob", "tf", mpiElastic, "    Worker:\n", "    Workers:\n", "spec.mpiReplicaSpecs.Worker"},
		"MPIJob with odd arguments":      {"mpijob", "tf", mpiElastic, "args: [--min-np", "args: [3, --min-np", "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].args"},
		"JobSet without jobs":            {"jobset", "llm", jobSetTrain, "replicatedJobs:", "jobs:", "spec.replicatedJobs"},
		"JobSet with a job without spec": {"jobset", "llm", jobSetTrain, "template: {spec: {template: {spec: {containers: [{name: init", "template: {specs: {template: {spec: {containers: [{name: init", "spec.replicatedJobs[0].template.spec"},
		"ElasticJob without workers":     {"dlrover", "nanogpt", elasticJob, "    worker:\n", "    workers:\n", "spec.replicaSpecs.worker"},
		"AITrainingJob":                  {"aitrainingjob", "horovod", aiJob, "maxReplicas: 5", "maxReplicas: many", "spec.replicaSpecs.trainer.maxReplicas"},
		"RayCluster":                     {"raycluster", "rc", rayCluster1, "maxReplicas: 4", "maxReplicas: -4", "spec.workerGroupSpecs[0].maxReplicas"},
		"RayJob without a cluster":       {"rayjob", "rj", rayJob1, "rayClusterSpec", "raySpec", "spec.rayClusterSpec"},
		"Volcano job without tasks":      {"vcjob", "resnet", vcJob, "tasks:", "roles:", "spec.tasks"},
		"Volcano job with an odd task":   {"vcjob", "resnet", vcJob, "replicas: 5", "replicas: 5.5", "spec.tasks[1].replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, test.document, test.from)
			w := newWorld(t, strings.Replace(test.document, test.from, test.to, 1))
			_, err := w.registry.Get(context.Background(), refOf(test.system, test.job))
			var field *FieldError
			require.ErrorAs(t, err, &field)
			assert.Equal(t, test.path, field.Path)
			assert.ErrorContains(t, err, refOf(test.system, test.job).String())
		})
	}
}

func TestNothingIsReadFromAnEmptyObject(t *testing.T) {
	w := newWorld(t)
	for name, adapter := range w.registry.byName {
		_, err := adapter.Read(parse(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: x}}", adapter.Resource().GroupVersion(), adapter.Kind())))
		var field *FieldError
		assert.ErrorAs(t, err, &field, name)
		_, err = adapter.Gang(Job{Ref: refOf(name, "x")}, 1, anyRoom)
		assert.Error(t, err, name)
	}
}
