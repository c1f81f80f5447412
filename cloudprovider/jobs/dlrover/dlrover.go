// Package dlrover is the job system of DLRover: the ElasticJob.
package dlrover

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "dlrover"

const (
	labelJob   = "elasticjob.dlrover/name"
	labelType  = "elasticjob.dlrover/replica-type"
	labelIndex = "elasticjob.dlrover/replica-index"
	labelRank  = "elasticjob.dlrover/rank-index"

	typeMaster = "dlrover-master"
	typeWorker = "worker"
	pathSpecs  = "spec.replicaSpecs"
)

var resource = schema.GroupVersionResource{Group: "elastic.iml.github.io", Version: "v1alpha1", Resource: "elasticjobs"}

// System is DLRover's ElasticJob.
//
// The job's master replaces a lost worker at once, under the next index and with the same rank, up to a number of times. The
// agents of the other workers keep the state in memory, and write it out at SIGTERM. Training goes on with no fewer nodes
// than the first number of the workers' --nnodes. The master is the job: it is made again as often as its restartCount says,
// and should be kept off spot nodes.
//
// An ElasticJob cannot be suspended: spec.suspend keeps the master from making pods, and ends none of those that run.
type System struct{}

var _ jobs.System = (*System)(nil)

// New returns the system.
func New() *System { return &System{} }

// elasticJob is what is read of an ElasticJob.
type elasticJob struct {
	Spec struct {
		ReplicaSpecs map[string]*struct {
			Replicas jobs.Count      `json:"replicas"`
			Template json.RawMessage `json:"template"`
		} `json:"replicaSpecs"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

func (*System) Name() string                          { return Name }
func (*System) Resource() schema.GroupVersionResource { return resource }

// Member goes by the owner of the pod, which is not its controller for the pods that the master makes.
// Source: create_owner_reference in dlrover/python/scheduler/kubernetes.py of DLRover.
func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.OwnerOf(pod, resource.Group, "ElasticJob")
	if owner == nil {
		return "", "", false
	}
	return owner.Name, roleOf(pod.Labels[labelType]), true
}

func roleOf(kind string) jobs.Role {
	switch kind {
	case typeMaster, "master":
		return jobs.RoleLauncher
	case "chief", "ps":
		return jobs.RoleHost
	}
	return jobs.RoleWorker
}

// nnodes matches the number of nodes that dlrover-run and torchrun are given. The upper bound is a number or the name of a
// variable, which has the number of workers.
var nnodes = regexp.MustCompile(`--nnodes[=\s]+["']?(\d+)(?::(\d+)?)?`)

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	var job elasticJob
	if err := jobs.Decode(object, &job); err != nil {
		return jobs.Job{}, err
	}
	path := pathSpecs + "." + typeWorker
	worker := job.Spec.ReplicaSpecs[typeWorker]
	if worker == nil {
		return jobs.Job{}, jobs.Missing(path)
	}
	replicas := worker.Replicas.Int()
	read := jobs.Job{
		Min: replicas, Max: replicas, Replicas: replicas,
		Finished: job.Status.Phase == "Succeeded" || job.Status.Phase == "Failed",
	}
	command, err := jobs.CommandLine(worker.Template, path+".template")
	if err != nil {
		return jobs.Job{}, err
	}
	if found := nnodes.FindStringSubmatch(command); found != nil {
		least, _ := strconv.Atoi(found[1])
		read.Min = min(least, replicas)
		if most, err := strconv.Atoi(found[2]); err == nil {
			read.Max = max(most, replicas)
		}
	}
	return read, nil
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	var job elasticJob
	if err := jobs.Decode(of.Object, &job); err != nil {
		return nil, err
	}
	if len(job.Spec.ReplicaSpecs) == 0 {
		return nil, jobs.Missing(pathSpecs)
	}
	var sets []jobs.PodSet
	for _, kind := range slices.Sorted(maps.Keys(job.Spec.ReplicaSpecs)) {
		spec := job.Spec.ReplicaSpecs[kind]
		if spec == nil {
			return nil, jobs.Missing(pathSpecs + "." + kind)
		}
		count := spec.Replicas.Int()
		switch kind {
		case typeWorker:
			count = workers
		case typeMaster:
			count = 1
		}
		sets = append(sets, jobs.PodSet{
			Path: pathSpecs + "." + kind + ".template", Template: spec.Template, Count: count, Role: roleOf(kind),
			NamePrefix: of.Name + "-edljob-" + kind,
			Labels: func(i int) map[string]string {
				return map[string]string{labelJob: of.Name, labelType: kind, labelIndex: strconv.Itoa(i), labelRank: strconv.Itoa(i)}
			},
		})
	}
	return sets, nil
}
