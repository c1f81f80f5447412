// Package aitrainingjob is the job system of Baidu's CCE: the AITrainingJob.
package aitrainingjob

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "aitrainingjob"

const pathSpecs = "spec.replicaSpecs"

var resource = schema.GroupVersionResource{Group: "kongming.cce.baiudbce.com", Version: "v1", Resource: "aitrainingjobs"}

// System is the AITrainingJob: Horovod or Paddle, elastic where spec.faultTolerant is true and a lost worker is replaced.
//
// Its operator is not public. By its definition, and by the operator that it came from, a lost worker is replaced where the policies say
// so (see tolerance), up to restartLimit; otherwise the job ends with it. The job says which of its replicas are a master and its pods do
// not, so that a pod's role follows from its name: <job>-<replica>-<index>. An AITrainingJob has no field to suspend it.
type System struct{}

var _ jobs.System = (*System)(nil)

// New returns the system.
func New() *System { return &System{} }

// aiTrainingJob is what is read of an AITrainingJob.
type aiTrainingJob struct {
	Spec struct {
		FaultTolerant bool                    `json:"faultTolerant"`
		ReplicaSpecs  map[string]*replicaSpec `json:"replicaSpecs"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
		// RestartCount is how many pods of each replica were replaced.
		RestartCount map[string]jobs.Count `json:"RestartCount"`
	} `json:"status"`
}

type replicaSpec struct {
	tolerance
	Replicas            *jobs.Count     `json:"replicas"`
	MinReplicas         *jobs.Count     `json:"minReplicas"`
	MaxReplicas         *jobs.Count     `json:"maxReplicas"`
	RestartLimit        *jobs.Count     `json:"restartLimit"`
	FaultTolerantPolicy []tolerance     `json:"faultTolerantPolicy"`
	Template            json.RawMessage `json:"template"`
}

func (*System) Name() string                          { return Name }
func (*System) Resource() schema.GroupVersionResource { return resource }

func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, resource.Group, "AITrainingJob")
	if owner == nil {
		return "", "", false
	}
	replica, _, _ := strings.Cut(strings.TrimPrefix(pod.Name, owner.Name+"-"), "-")
	return owner.Name, jobs.RoleOf(replica), true
}

// replicas is one entry of spec.replicaSpecs.
type replicas struct {
	name                 string
	role                 jobs.Role
	least, most, current int
	// floor is that of jobs.Job.
	floor    int
	template json.RawMessage
}

func (r replicas) path() string { return pathSpecs + "." + r.name + ".template" }

func readReplicas(object *unstructured.Unstructured) (jobs.Job, []replicas, error) {
	var job aiTrainingJob
	if err := jobs.Decode(object, &job); err != nil {
		return jobs.Job{}, nil, err
	}
	if job.Spec.ReplicaSpecs == nil {
		return jobs.Job{}, nil, jobs.Missing(pathSpecs)
	}
	var all []replicas
	for _, name := range slices.Sorted(maps.Keys(job.Spec.ReplicaSpecs)) {
		spec := job.Spec.ReplicaSpecs[name]
		if spec == nil {
			return jobs.Job{}, nil, jobs.Missing(pathSpecs + "." + name)
		}
		r := spec.read(job.Spec.FaultTolerant, job.Status.RestartCount[name].Int())
		r.name, r.role = name, jobs.RoleOf(name)
		if len(r.template) == 0 {
			return jobs.Job{}, nil, jobs.Missing(r.path())
		}
		all = append(all, r)
	}
	hasEnded := slices.Contains([]string{"Succeed", "Failed", "Timeout", "Preempted", "NodeFail"}, job.Status.Phase)
	return jobs.Job{Finished: hasEnded}, all, nil
}

func (s *replicaSpec) read(isElastic bool, restarts int) replicas {
	r := replicas{current: s.Replicas.Or(1), template: s.Template}
	r.least, r.most, r.floor = r.current, r.current, r.current
	if isElastic {
		r.least, r.most = s.MinReplicas.Or(r.current), s.MaxReplicas.Or(r.current)
		r.current = min(max(r.current, r.least), r.most) // 0 asks for as many as there is capacity for
		r.floor = r.current - s.mayLose(r.current, restarts)
		r.least = max(r.least, r.floor)
	}
	return r
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	job, all, err := readReplicas(object)
	if err != nil {
		return jobs.Job{}, err
	}
	for _, r := range all {
		if r.role != jobs.RoleLauncher {
			job.Min, job.Max, job.Replicas, job.Floor = job.Min+r.least, job.Max+r.most, job.Replicas+r.current, job.Floor+r.floor
		}
	}
	return job, nil
}

func (*System) PodSets(job jobs.Job, workers int) ([]jobs.PodSet, error) {
	_, all, err := readReplicas(job.Object)
	if err != nil {
		return nil, err
	}
	var sets []jobs.PodSet
	for _, r := range all {
		count := r.current
		if r.role == jobs.RoleWorker {
			count = min(count, max(workers, 0))
		}
		if r.role != jobs.RoleLauncher {
			workers -= count
		}
		sets = append(sets, jobs.PodSet{
			Path: r.path(), Template: r.template, Count: count, Role: r.role, NamePrefix: job.Name + "-" + r.name,
			Labels: func(i int) map[string]string { return map[string]string{"replica-index": strconv.Itoa(i)} },
		})
	}
	return sets, nil
}
