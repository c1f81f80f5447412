package e2e

import (
	"fmt"
	"strings"

	"gpu-spot-autoscaler/test/operators"
)

// The jobs of this file are submitted by the tests of their systems, and by the measurement of all systems. The template is that of
// their workers.

// awaited is a field of gpuTemplate: the pods are not evicted before they acknowledge the request for a checkpoint.
const awaited = `metadata: {annotations: {gpu-spot.autoscaling/await-checkpoint: "true"}}`

// etJob has eight workers, of which two are enough.
func etJob(template string) string {
	return `
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata: {name: et, annotations: {job-supervisor.kube-ai.io/spot-instance: "true", job-supervisor.kube-ai.io/max-wait-time: "600"}}
spec:
  restartPolicy: OnFailure
  backoffLimit: 0
  etReplicaSpecs:
    launcher: {replicas: 1, template: ` + systemTemplate("horovodrun -np 8 --min-np 2 --max-np 8 --host-discovery-script /etc/edl/discover_hosts.sh python train.py") + `}
    worker: {replicas: 8, minReplicas: 2, maxReplicas: 8, restartPolicy: Always, template: ` + template + `}
`
}

// mpiJobV2 has two workers, of which one is enough.
func mpiJobV2(template string) string {
	return `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi}
spec:
  runPolicy: {backoffLimit: 0}
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: ` + systemTemplate("horovodrun -np 2 --min-np 1 --max-np 2 --host-discovery-script /etc/mpi/discover_hosts.sh --blacklist-cooldown-range 30 60 python train.py") + `}
    Worker: {replicas: 2, template: ` + template + `}
`
}

// leadingMPIJob has a launcher that trains beside its two workers. One of those is enough.
func leadingMPIJob(template string) string {
	launcher := strings.Replace(template, `[dlrover-run, "--nnodes=1:2", train.py]`,
		`[horovodrun, -np, "3", --min-np, "2", --max-np, "3", --host-discovery-script, /etc/mpi/discover_hosts.sh, python, train.py]`, 1)
	return `
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi-leads}
spec:
  runLauncherAsWorker: true
  runPolicy: {backoffLimit: 0}
  mpiReplicaSpecs:
    Launcher: {replicas: 1, template: ` + launcher + `}
    Worker: {replicas: 2, template: ` + template + `}
`
}

// arenaMPIJob is as Arena submits it, with three workers, all of which it needs.
func arenaMPIJob(template string) string {
	return `
apiVersion: kubeflow.org/v1alpha1
kind: MPIJob
metadata: {name: arena}
spec:
  replicas: 3
  backoffLimit: 5
  cleanPodPolicy: None
  launcherOnMaster: false
  mountsOnLauncher: true
  launcherResources: {limits: {cpu: "1"}}
  template: ` + template + `
`
}

// rigidJobSet needs both of its ranks, and may not restart.
func rigidJobSet(template string) string {
	return `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set}
spec:
  failurePolicy: {maxRestarts: 0}
  replicatedJobs:
  - {name: node, replicas: 2, template: {spec: {parallelism: 1, completions: 1, backoffLimit: 0, template: ` + template + `}}}
`
}

// trainJob needs both of its ranks, which may not fail.
func trainJob(template string) string {
	return `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: torch}
spec:
  template:
    spec:
      replicatedJobs:
      - {name: node, replicas: 1, template: {spec: {completionMode: Indexed, parallelism: 2, completions: 2, backoffLimit: 0, template: ` + template + `}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: trainjob}
spec: {runtimeRef: {kind: TrainingRuntime, name: torch}}
`
}

// trainJobWith is one of a runtime that the Trainer is installed with. It has so many nodes, of which it needs all, in the pool of its own
// name. The jobs are the replicated jobs that the runtime has.
func trainJobWith(runtime, name string, nodes int, jobs, metadata string) string {
	return fmt.Sprintf(`
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: %[2]s}
spec:
  runtimeRef: {kind: ClusterTrainingRuntime, name: %[1]s}
  trainer: {numNodes: %[3]d, command: [train], resourcesPerNode: {limits: {nvidia.com/gpu: 1}}}
  podTemplateOverrides:
  - {targetJobs: [%[4]s], %[5]s spec: {nodeSelector: {pool: %[2]s}}}
`, runtime, name, nodes, jobs, metadata)
}

// torchTrainJob has two nodes.
func torchTrainJob(name, metadata string) string {
	return trainJobWith("torch-distributed", name, 2, "{name: node}", metadata)
}

// mpiTrainJob has three nodes, one of which is the launcher.
func mpiTrainJob(name, metadata string) string {
	return trainJobWith("deepspeed-distributed", name, 3, "{name: launcher}, {name: node}", metadata)
}

// rigidJob needs its three ranks, which may not fail.
func rigidJob(template string) string {
	return `
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec: {completionMode: Indexed, parallelism: 3, completions: 3, backoffLimit: 0, template: ` + template + `}
`
}

// dlroverJob has two workers, of which one is enough.
func dlroverJob(template string) string {
	return `
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: dl}
spec:
  distributionStrategy: AllreduceStrategy
  replicaSpecs:
    dlrover-master: {template: ` + systemTemplate("python -m dlrover.python.master.main") + `}
    worker: {replicas: 2, restartCount: 3, template: ` + template + `}
`
}

// aiTrainingJob has two workers, of which one is enough.
func aiTrainingJob(template string) string { return aiTrainingJobWith("aitj", "129,137,143", template) }

// aiTrainingJobWith is such a job of which the operator replaces workers that ended with one of the exit codes.
func aiTrainingJobWith(name, exitCodes, template string) string {
	return `
apiVersion: kongming.cce.baiudbce.com/v1
kind: AITrainingJob
metadata: {name: ` + name + `}
spec:
  faultTolerant: true
  replicaSpecs:
    trainer:
      replicaType: worker
      replicas: 2
      minReplicas: 1
      maxReplicas: 2
      restartLimit: 3
      restartPolicy: OnNodeFailWithExitCode
      faultTolerantPolicy:
      - {exitCodes: "` + exitCodes + `", restartPolicy: ExitCode, restartScope: Pod}
      - {exceptionalEvent: "nodeNotReady,PodForceDeleted", restartPolicy: OnNodeFail, restartScope: Pod}
      template: ` + template + `
`
}

// rayJob needs both of its workers, and may not be tried again. The defaulting webhooks of Kueue 0.12.3 write objects of KubeRay anew from Go
// types (pkg/controller/jobs/rayjob/rayjob_webhook.go, RayStartParams in ray-operator v1.3.1): a group without rayStartParams gets null there,
// which the API server refuses.
func rayJob(template string) string {
	return `
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: rayjob}
spec:
  entrypoint: python train.py
  submissionMode: HTTPMode
  shutdownAfterJobFinishes: true
  backoffLimit: 0
  rayClusterSpec:
    headGroupSpec: {rayStartParams: {}, template: ` + systemTemplate("ray start --head") + `}
    workerGroupSpecs:
    - {groupName: gpu, rayStartParams: {}, replicas: 2, minReplicas: 2, maxReplicas: 2, template: ` + template + `}
`
}

// volcanoJob needs both of its workers.
func volcanoJob(template string) string {
	return `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vc}
spec:
  minAvailable: 2
  maxRetry: 3
  policies: [{event: PodEvicted, action: RestartJob}, {event: PodFailed, action: RestartJob}]
  tasks:
  - {name: worker, replicas: 2, template: ` + template + `}
`
}

// terminatedVolcanoJob needs one of its workers, and ends with any that it loses.
func terminatedVolcanoJob(template string) string {
	return `
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vc-ends}
spec:
  minAvailable: 1
  maxRetry: 3
  policies: [{event: PodEvicted, action: TerminateJob}]
  tasks:
  - {name: worker, replicas: 2, template: ` + template + `}
`
}

// leaderWorkerSet has two groups of two pods.
func leaderWorkerSet(template string) string {
	return `
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: lws}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    workerTemplate: ` + strings.Replace(template, "restartPolicy: Never", "restartPolicy: Always", 1) + `
`
}

// rayCluster has its head among the workers, in a pool of its own name.
func rayCluster(name, metadata string, fields ...string) string {
	return `
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ` + name + metadata + `}
spec:
  headGroupSpec: {rayStartParams: {}, template: ` + gpuTemplate(name, fields...) + `}
  workerGroupSpecs:
  - {groupName: gpu, rayStartParams: {}, replicas: 2, minReplicas: 1, maxReplicas: 2, template: ` + gpuTemplate(name, fields...) + `}
`
}

// queuedJob is in a queue of Kueue's. It needs all of its ranks, which may not fail.
func queuedJob(name, queue string, ranks int, template string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, labels: {%s: %s}}
spec: {suspend: true, completionMode: Indexed, parallelism: %[4]d, completions: %[4]d, backoffLimit: 0, template: %s}
`, name, operators.LabelQueue, queue, ranks, template)
}

// inQueue puts the object of a manifest into a queue of Kueue's.
func inQueue(queue, manifest string) string {
	return strings.Replace(manifest, "metadata: {", "metadata: {labels: {"+operators.LabelQueue+": "+queue+"}, ", 1)
}
