package jobstest

import (
	_ "embed"
	"strings"
)

// Objects of job systems, as YAML. Tests change what they need with strings.Replace.
var (
	// TrainingJob is as `arena submit etjob --workers=4 --min-workers=2 --max-workers=8 --spot-instance --max-wait-time=600` renders it,
	// with the status that et-operator gives it.
	//
	//go:embed examples/trainingjob.yaml
	TrainingJob string
	// IndexedJob is a Job with four pods that train together.
	//
	//go:embed examples/indexedjob.yaml
	IndexedJob string
	// ElasticPyTorchJob has two to four workers.
	//
	//go:embed examples/elasticpytorchjob.yaml
	ElasticPyTorchJob string
	// PyTorchJob has a master and three workers, and is not elastic.
	//
	//go:embed examples/pytorchjob.yaml
	PyTorchJob string
	// TFJob has a chief, two parameter servers and four workers.
	//
	//go:embed examples/tfjob.yaml
	TFJob string
	// JAXJob has three workers.
	//
	//go:embed examples/jaxjob.yaml
	JAXJob string
	// ElasticMPIJob runs Horovod Elastic, with two slots for each worker.
	//
	//go:embed examples/elasticmpijob.yaml
	ElasticMPIJob string
	// MPILauncher is the launcher pod of ElasticMPIJob.
	//
	//go:embed examples/mpilauncher.yaml
	MPILauncher string
	// ArenaMPIJob is as `arena submit mpi --workers=2 --gpus=4` renders it, with the status that Arena's operator gives it.
	//
	//go:embed examples/arenampijob.yaml
	ArenaMPIJob string
	// JobSet is one that the Kubeflow Trainer makes, with an initializer that has ended.
	//
	//go:embed examples/jobset.yaml
	JobSet string
	// JobSetOfMPITrainJob is one that the Kubeflow Trainer makes with its runtime for DeepSpeed, of four nodes, one of which is the launcher.
	//
	//go:embed examples/jobsetofmpitrainjob.yaml
	JobSetOfMPITrainJob string
	// TrainJob is the one of JobSetOfTrainJob.
	//
	//go:embed examples/trainjob.yaml
	TrainJob string
	// ElasticJob is one of DLRover.
	//
	//go:embed examples/elasticjob.yaml
	ElasticJob string
	// AITrainingJob runs Horovod.
	//
	//go:embed examples/aitrainingjob.yaml
	AITrainingJob string
	// RayCluster has two groups of workers, and one that is suspended.
	//
	//go:embed examples/raycluster.yaml
	RayCluster string
	// RayJob runs on the cluster rc.
	//
	//go:embed examples/rayjob.yaml
	RayJob string
	// LeaderWorkerSet has two groups of a leader and two workers.
	//
	//go:embed examples/leaderworkerset.yaml
	LeaderWorkerSet string
	// VolcanoJob has a launcher and five workers.
	//
	//go:embed examples/volcanojob.yaml
	VolcanoJob string
	// JobSetOfTrainJob is JobSet, made by TrainJob.
	JobSetOfTrainJob = strings.Replace(JobSet, "uid: uid-llm",
		"uid: uid-llm, ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: llm, uid: uid-trainjob, controller: true}]", 1)
	// RayClusterOfRayJob is RayCluster, made for RayJob.
	RayClusterOfRayJob = strings.Replace(RayCluster, "uid: uid-rc",
		"uid: uid-rc, ownerReferences: [{apiVersion: ray.io/v1, kind: RayJob, name: rj, uid: uid-rj, controller: true}]", 1)
)
