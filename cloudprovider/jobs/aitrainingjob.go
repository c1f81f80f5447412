package jobs

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aiTrainingJob is the AITrainingJob of Baidu's CCE: Horovod or Paddle, elastic where spec.faultTolerant is true.
//
// Its operator is not public. As its definition has it, a worker that is lost is made anew where its faultTolerantPolicy
// names the exit code, or PodForceDeleted, which is a deletion with no grace: what a drain ends with. Whether a role is a
// master is in the job, not on its pods, so that on those it goes by the role's name: <job>-<role>-<index>. There is
// no field to suspend it.
type aiTrainingJob struct{ *system }

func newAITrainingJob(c *cluster) Adapter {
	return &aiTrainingJob{&system{
		cluster: c, name: "aitrainingjob", kind: "AITrainingJob",
		resource: schema.GroupVersionResource{Group: "kongming.cce.baiudbce.com", Version: "v1", Resource: "aitrainingjobs"},
	}}
}

func (a *aiTrainingJob) Member(pod *corev1.Pod) (Membership, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != a.kind || groupOf(owner.APIVersion) != a.resource.Group {
		return Membership{}, false
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(pod.Name, owner.Name+"-"), "-")
	return Membership{Ref: a.ref(pod.Namespace, owner.Name), Role: roleNamed(name)}, true
}

// roleNamed is for systems that let users name the kinds of pods: it goes by the names that are in use.
func roleNamed(name string) Role {
	switch strings.ToLower(name) {
	case "launcher", "mpimaster", "driver":
		return RoleLauncher
	case "master", "chief", "head", "ps", "pserver", "scheduler":
		return RoleHost
	}
	return RoleWorker
}

// aiReplicas is one entry of spec.replicaSpecs.
type aiReplicas struct {
	name                 string
	role                 Role
	least, most, current int
	template             fields
}

func (a *aiTrainingJob) replicas(object fields) ([]aiReplicas, error) {
	spec, err := object.section("spec")
	if err != nil {
		return nil, err
	}
	elastic, err := spec.flag("faultTolerant")
	if err != nil {
		return nil, err
	}
	specs, err := spec.section("replicaSpecs")
	if err != nil {
		return nil, err
	}
	var all []aiReplicas
	for _, name := range slices.Sorted(maps.Keys(specs.values)) {
		entry, err := specs.section(name)
		if err != nil {
			return nil, err
		}
		replicas, err := readAIReplicas(entry, elastic)
		if err != nil {
			return nil, err
		}
		replicas.name, replicas.role = name, roleNamed(name)
		all = append(all, replicas)
	}
	return all, nil
}

func readAIReplicas(entry fields, elastic bool) (r aiReplicas, err error) {
	if r.current, err = entry.count("replicas", 1); err != nil {
		return r, err
	}
	r.least, r.most = r.current, r.current
	if elastic {
		if r.least, err = entry.count("minReplicas", r.current); err != nil {
			return r, err
		}
		if r.most, err = entry.count("maxReplicas", r.current); err != nil {
			return r, err
		}
		r.current = min(max(r.current, r.least), r.most) // 0 asks for as many as there is room for
	}
	r.template, err = entry.section("template")
	return r, err
}

func (a *aiTrainingJob) Read(object *unstructured.Unstructured) (Job, error) {
	replicas, err := a.replicas(fieldsOf(object))
	if err != nil {
		return Job{}, err
	}
	var job Job
	for _, r := range replicas {
		if r.role != RoleLauncher {
			job.Min, job.Max, job.Replicas = job.Min+r.least, job.Max+r.most, job.Replicas+r.current
		}
	}
	phase, err := phase(object, "phase")
	job.Finished = slices.Contains([]string{"Succeed", "Failed", "Timeout", "Preempted", "NodeFail"}, phase)
	return job, err
}

func (a *aiTrainingJob) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	replicas, err := a.replicas(object)
	if err != nil {
		return nil, err
	}
	var groups []replicaGroup
	for _, r := range replicas {
		n := r.current
		if r.role == RoleWorker {
			n = min(n, max(workers, 0))
		}
		if r.role != RoleLauncher {
			workers -= n
		}
		groups = append(groups, replicaGroup{
			template: r.template, replicas: n, role: r.role, name: numbered(job.Name + "-" + r.name),
			labels: func(i int) map[string]string { return map[string]string{"replica-index": strconv.Itoa(i)} },
		})
	}
	slices.SortStableFunc(groups, byRole)
	return gang(job, room, groups...)
}
