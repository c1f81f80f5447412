package jobs

import (
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	labelDLRoverJob   = "elasticjob.dlrover/name"
	labelDLRoverType  = "elasticjob.dlrover/replica-type"
	labelDLRoverIndex = "elasticjob.dlrover/replica-index"
	labelDLRoverRank  = "elasticjob.dlrover/rank-index"
	dlroverMaster     = "dlrover-master"
)

// dlrover is DLRover's ElasticJob.
//
// Its master makes a worker that is lost anew at once, under the next index and with the same rank, up to a number of
// times; the agent in the others keeps the state in memory, and writes it out at SIGTERM. Training goes on with no fewer
// nodes than the first number of the workers' --nnodes. The master is the job: it is made again itself, as often as its
// restartCount says, and should be kept off spot nodes.
//
// It cannot be suspended: its field of that name keeps the master from making pods, and ends none of those that run.
type dlrover struct{ *system }

func newDLRover(c *cluster) Adapter {
	return &dlrover{&system{
		cluster: c, name: "dlrover", kind: "ElasticJob",
		resource: schema.GroupVersionResource{Group: "elastic.iml.github.io", Version: "v1alpha1", Resource: "elasticjobs"},
	}}
}

func (d *dlrover) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelDLRoverJob]
	if name == "" {
		return Membership{}, false
	}
	return Membership{Ref: d.ref(pod.Namespace, name), Role: dlroverRole(pod.Labels[labelDLRoverType])}, true
}

func dlroverRole(kind string) Role {
	switch kind {
	case dlroverMaster, "master":
		return RoleLauncher
	case "chief", "ps":
		return RoleHost
	}
	return RoleWorker
}

// nodes is what dlrover-run and torchrun take for the number of nodes. The upper bound is the number of workers, by name or
// in figures.
var nodes = regexp.MustCompile(`--nnodes[=\s]+["']?(\d+)(?::(\d+)?)?`)

func (d *dlrover) Read(object *unstructured.Unstructured) (Job, error) {
	worker, err := fieldsOf(object).section("spec", "replicaSpecs", "worker")
	if err != nil {
		return Job{}, err
	}
	var job Job
	if job.Replicas, err = worker.count("replicas", 0); err != nil {
		return Job{}, err
	}
	job.Min, job.Max = job.Replicas, job.Replicas
	podSpec, err := worker.maybe("template", "spec")
	if err != nil {
		return Job{}, err
	}
	command, err := commandLine(podSpec)
	if err != nil {
		return Job{}, err
	}
	if found := nodes.FindStringSubmatch(command); found != nil {
		least, _ := strconv.Atoi(found[1])
		job.Min = min(least, job.Replicas)
		if most, err := strconv.Atoi(found[2]); err == nil {
			job.Max = max(most, job.Replicas)
		}
	}
	phase, err := phase(object, "phase")
	job.Finished = phase == "Succeeded" || phase == "Failed"
	return job, err
}

func (d *dlrover) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	specs, err := object.section("spec", "replicaSpecs")
	if err != nil {
		return nil, err
	}
	var groups []replicaGroup
	for kind := range specs.values {
		spec, err := specs.section(kind)
		if err != nil {
			return nil, err
		}
		replicas, err := spec.count("replicas", 0)
		if err != nil {
			return nil, err
		}
		template, err := spec.section("template")
		if err != nil {
			return nil, err
		}
		switch kind {
		case "worker":
			replicas = workers
		case dlroverMaster:
			replicas = 1
		}
		groups = append(groups, replicaGroup{
			template: template, replicas: replicas, role: dlroverRole(kind), name: numbered(job.Name + "-edljob-" + kind),
			labels: func(i int) map[string]string {
				return map[string]string{
					labelDLRoverJob: job.Name, labelDLRoverType: kind, labelDLRoverIndex: strconv.Itoa(i), labelDLRoverRank: strconv.Itoa(i),
				}
			},
		})
	}
	slices.SortFunc(groups, byRole)
	return gang(job, room, groups...)
}
