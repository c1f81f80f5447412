package jobs

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	kubeflowGroup         = "kubeflow.org"
	labelKubeflowOperator = "training.kubeflow.org/operator-name"
	labelKubeflowJob      = "training.kubeflow.org/job-name"
	labelKubeflowType     = "training.kubeflow.org/replica-type"
	labelKubeflowIndex    = "training.kubeflow.org/replica-index"
	labelKubeflowRole     = "training.kubeflow.org/job-role"
	operatorPyTorch       = "pytorchjob-controller"
)

// pyTorchJob is the training operator's PyTorchJob.
//
// A worker that is lost comes back under the same name, which a job with an elasticPolicy copes with, at the price of one of
// its maxRestarts; one without starts over from its checkpoint. Workers meet at <job>-worker-0 unless the policy names
// another host, and at the Master where there is one: both go last. An elastic job without a Master succeeds when any of
// its workers exits with 0. Where the restartPolicy is Never, the first worker that goes is the end of the job, elastic or not.
type pyTorchJob struct{ setSuspend }

func newPyTorchJob(c *cluster) Adapter {
	return &pyTorchJob{setSuspend{
		system: &system{
			cluster: c, name: "pytorchjob", kind: "PyTorchJob",
			resource: schema.GroupVersionResource{Group: kubeflowGroup, Version: "v1", Resource: "pytorchjobs"},
		},
		path: []string{"spec", "runPolicy", "suspend"},
	}}
}

func (p *pyTorchJob) Member(pod *corev1.Pod) (Membership, bool) {
	name := pod.Labels[labelKubeflowJob]
	if pod.Labels[labelKubeflowOperator] != operatorPyTorch || name == "" {
		return Membership{}, false
	}
	role := RoleWorker
	if pod.Labels[labelKubeflowType] == "master" || pod.Labels[labelKubeflowIndex] == "0" {
		role = RoleHost
	}
	return Membership{Ref: p.ref(pod.Namespace, name), Role: role}, true
}

func (p *pyTorchJob) Read(object *unstructured.Unstructured) (Job, error) {
	master, worker, err := p.replicas(fieldsOf(object))
	if err != nil {
		return Job{}, err
	}
	job := Job{Replicas: master + worker, Finished: condition(object, "Succeeded", "Failed")}
	job.Min, job.Max = job.Replicas, job.Replicas
	spec, err := fieldsOf(object).section("spec")
	if err != nil {
		return Job{}, err
	}
	if spec.values["elasticPolicy"] != nil {
		if job.Min, job.Max, err = elasticBounds(spec, worker); err != nil {
			return Job{}, err
		}
	}
	policies, err := restartPolicies(spec, "pytorchReplicaSpecs", "OnFailure", "Master", "Worker")
	if err != nil {
		return Job{}, err
	}
	if slices.Contains(policies, "Never") {
		job.Min = job.Replicas
	}
	job.Suspended, err = fieldsOf(object).flagAt(p.path...)
	return job, err
}

// elasticBounds are those of the policy. A bound that is missing is the other one, and both are the number of workers.
func elasticBounds(spec fields, workers int) (least, most int, err error) {
	policy, err := spec.section("elasticPolicy")
	if err != nil {
		return 0, 0, err
	}
	if most, err = policy.count("maxReplicas", -1); err != nil {
		return 0, 0, err
	}
	least, err = policy.count("minReplicas", most)
	switch {
	case err != nil:
		return 0, 0, err
	case least < 0:
		return workers, workers, nil
	case most < 0:
		return least, least, nil
	}
	return least, most, nil
}

// replicas are the numbers of masters and of workers; none where there are no such.
func (p *pyTorchJob) replicas(object fields) (masters, workers int, err error) {
	specs, err := object.section("spec", "pytorchReplicaSpecs")
	if err != nil {
		return 0, 0, err
	}
	for _, kind := range []struct {
		name  string
		count *int
	}{{"Master", &masters}, {"Worker", &workers}} {
		spec, found, err := specs.anyCase(kind.name)
		if err != nil {
			return 0, 0, err
		}
		if !found {
			continue
		}
		if *kind.count, err = spec.count("replicas", 1); err != nil {
			return 0, 0, err
		}
	}
	return masters, workers, nil
}

// anyCase is section by a name that the operator accepts in upper and lower case.
func (f fields) anyCase(name string) (fields, bool, error) {
	for key := range f.values {
		if strings.EqualFold(key, name) && f.values[key] != nil {
			section, err := f.section(key)
			return section, err == nil, err
		}
	}
	return fields{}, false, nil
}

// restartPolicies are those of the replicas that there are of these kinds, or what the operator takes for one that is missing.
func restartPolicies(spec fields, specs, otherwise string, kinds ...string) (policies []string, err error) {
	holder, err := spec.section(specs)
	if err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		replicas, found, err := holder.anyCase(kind)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		policy, err := replicas.text("restartPolicy")
		if err != nil {
			return nil, err
		}
		if policy == "" {
			policy = otherwise
		}
		policies = append(policies, policy)
	}
	return policies, nil
}

func (p *pyTorchJob) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	object, err := objectOf(job)
	if err != nil {
		return nil, err
	}
	masters, _, err := p.replicas(object)
	if err != nil {
		return nil, err
	}
	masters = min(masters, workers)
	return kubeflowGang(job, room, object, "pytorchReplicaSpecs", operatorPyTorch,
		kubeflowReplicas{name: "Worker", replicas: workers - masters, role: RoleWorker},
		kubeflowReplicas{name: "Master", replicas: masters, role: RoleHost},
	)
}

// kubeflowReplicas is one kind of pods of a job of the training operator's.
type kubeflowReplicas struct {
	name     string
	replicas int
	role     Role
}

// kubeflowGang renders pods as the training operator does.
func kubeflowGang(job Job, room Room, object fields, specs, operator string, kinds ...kubeflowReplicas) ([]*corev1.Pod, error) {
	holder, err := object.section("spec", specs)
	if err != nil {
		return nil, err
	}
	var groups []replicaGroup
	for _, kind := range kinds {
		if kind.replicas == 0 {
			continue
		}
		spec, found, err := holder.anyCase(kind.name)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, holder.errorf(kind.name, "is missing")
		}
		template, err := spec.section("template")
		if err != nil {
			return nil, err
		}
		kindName := strings.ToLower(kind.name)
		groups = append(groups, replicaGroup{
			template: template, replicas: kind.replicas, role: kind.role, name: numbered(job.Name + "-" + kindName),
			labels: func(i int) map[string]string {
				return map[string]string{
					labelKubeflowOperator: operator, labelKubeflowJob: job.Name, labelKubeflowType: kindName, labelKubeflowIndex: strconv.Itoa(i),
				}
			},
		})
	}
	return gang(job, room, groups...)
}
