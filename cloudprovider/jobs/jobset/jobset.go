// Package jobset is the job system of JobSet, which the TrainJob of the Kubeflow Trainer makes too.
package jobset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "jobset"

const (
	labelJobSet        = "jobset.sigs.k8s.io/jobset-name"
	labelReplicatedJob = "jobset.sigs.k8s.io/replicatedjob-name"
	labelJobIndex      = "jobset.sigs.k8s.io/job-index"
	labelGlobalIndex   = "jobset.sigs.k8s.io/job-global-index"
	labelCoordinator   = "jobset.sigs.k8s.io/coordinator"
	labelPodIndex      = batchv1.JobCompletionIndexAnnotation

	nameLauncher = "launcher"
	pathJobs     = "spec.replicatedJobs"
)

var resource = schema.GroupVersionResource{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"}

// System is the JobSet, whether it is made by its user or by a TrainJob of the Kubeflow Trainer, which has the same name.
//
// A JobSet is not elastic: all its pods are one gang. A lost pod fails its Job unless the podFailurePolicy ignores DisruptionTarget, and a
// failed Job restarts all of them, as often as maxRestarts allows. Where every Job but the launcher ignores it by its first rule, the
// annotations of the JobSet may say that it can train with fewer pods: it has all of them made all the same. Nothing is
// counted when a JobSet is suspended. The pods meet at the coordinator, or else at the first pod of the first Job. A replicated job with the name
// "launcher" is the launcher. It is made with the others, and a TrainJob for MPI has it train as one of its nodes (runLauncherAsNode).
// Source: manifests/base/runtimes/deepspeed_distributed.yaml of the Trainer 2.1.0.
type System struct{ jobs.SuspendField }

var (
	_ jobs.System          = (*System)(nil)
	_ jobs.Suspender       = (*System)(nil)
	_ jobs.LauncherStarter = (*System)(nil)
)

// New returns the system.
func New(cluster jobs.Cluster) *System {
	return &System{jobs.NewSuspendField(cluster, resource, "spec", "suspend")}
}

// jobSet is what is read of a JobSet.
type jobSet struct {
	Spec struct {
		Suspend       bool `json:"suspend"`
		StartupPolicy struct {
			Order string `json:"startupPolicyOrder"`
		} `json:"startupPolicy"`
		ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	} `json:"spec"`
	Status struct {
		Conditions           []jobs.Condition `json:"conditions"`
		ReplicatedJobsStatus []struct {
			Name      string     `json:"name"`
			Succeeded jobs.Count `json:"succeeded"`
		} `json:"replicatedJobsStatus"`
	} `json:"status"`
}

type replicatedJob struct {
	Name     string      `json:"name"`
	Replicas *jobs.Count `json:"replicas"`
	// DependsOn is not empty if the Jobs are made only when others are ready or complete.
	DependsOn []struct{} `json:"dependsOn"`
	Template  struct {
		Spec *struct {
			Parallelism *jobs.Count               `json:"parallelism"`
			Policy      *batchv1.PodFailurePolicy `json:"podFailurePolicy"`
			Template    json.RawMessage           `json:"template"`
		} `json:"spec"`
	} `json:"template"`
}

// remainingJob is the Jobs of a replicated job that have yet to succeed: initializers do, and do not run again unless the JobSet restarts.
type remainingJob struct {
	name             string
	jobs, podsPerJob int
	// mayLosePods is true if the eviction of a pod fails no Job.
	mayLosePods bool
	path        string
	template    json.RawMessage
}

func (r remainingJob) pods() int { return r.jobs * r.podsPerJob }

func decode(object *unstructured.Unstructured) (*jobSet, []remainingJob, error) {
	set := &jobSet{}
	if err := jobs.Decode(object, set); err != nil {
		return nil, nil, err
	}
	if len(set.Spec.ReplicatedJobs) == 0 {
		return nil, nil, jobs.Missing(pathJobs)
	}
	succeeded := map[string]int{}
	for _, status := range set.Status.ReplicatedJobsStatus {
		succeeded[status.Name] = status.Succeeded.Int()
	}
	var remaining []remainingJob
	for i, replicated := range set.Spec.ReplicatedJobs {
		path, spec := fmt.Sprintf("%s[%d].template.spec", pathJobs, i), replicated.Template.Spec
		if spec == nil {
			return nil, nil, jobs.Missing(path)
		}
		if len(spec.Template) == 0 {
			return nil, nil, jobs.Missing(path + ".template")
		}
		if left := replicated.Replicas.Or(1) - succeeded[replicated.Name]; left > 0 {
			remaining = append(remaining, remainingJob{
				replicated.Name, left, spec.Parallelism.Or(1), ignoresDisruptions(spec.Policy), path + ".template", spec.Template})
		}
	}
	return set, remaining, nil
}

// workers returns how many pods there are but for the launcher's, those of Jobs that have succeeded included.
func (s *jobSet) workers() (pods int) {
	for _, replicated := range s.Spec.ReplicatedJobs {
		if spec := replicated.Template.Spec; spec != nil && replicated.Name != nameLauncher {
			pods += replicated.Replicas.Or(1) * spec.Parallelism.Or(1)
		}
	}
	return pods
}

// ignoresDisruptions returns whether the Job controller replaces a pod that was evicted, and counts no failure. The first rule that matches
// decides, and which exit codes the containers of an evicted pod have is unknown, so no rule about exit codes may stand before.
// Source: matchPodFailurePolicy in pkg/controller/job/pod_failure_policy.go of Kubernetes.
func ignoresDisruptions(policy *batchv1.PodFailurePolicy) bool {
	if policy == nil || len(policy.Rules) == 0 {
		return false
	}
	first := policy.Rules[0]
	return first.Action == batchv1.PodFailurePolicyActionIgnore &&
		slices.ContainsFunc(first.OnPodConditions, func(on batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return on.Type == corev1.DisruptionTarget && (on.Status == corev1.ConditionTrue || on.Status == "") // by default it is True
		})
}

func (*System) Name() string { return Name }

// Member goes by the Job that makes the pod, which has the name that the JobSet gives it.
// Source: GenJobName in pkg/util/placement/placement.go of JobSet 0.10.1.
func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	job = pod.Labels[labelJobSet]
	made := strings.Join([]string{job, pod.Labels[labelReplicatedJob], pod.Labels[labelJobIndex]}, "-")
	switch {
	case job == "" || !jobs.IsControlledBy(pod, batchv1.GroupName, "Job", made):
		return "", "", false
	case pod.Labels[labelReplicatedJob] == nameLauncher:
		return job, jobs.RoleLauncher, true
	case isCoordinator(pod.Labels):
		return job, jobs.RoleHost, true
	}
	return job, jobs.RoleWorker, true
}

// isCoordinator returns whether the other pods meet at the pod with these labels. The coordinator's label is the same on all
// pods: it is the host name of one of them.
func isCoordinator(labels map[string]string) bool {
	if coordinator, ok := labels[labelCoordinator]; ok {
		host, _, _ := strings.Cut(coordinator, ".")
		return host == strings.Join([]string{labels[labelJobSet], labels[labelReplicatedJob], labels[labelJobIndex], labels[labelPodIndex]}, "-")
	}
	return labels[labelGlobalIndex] == "0" && labels[labelPodIndex] == "0"
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	set, remaining, err := decode(object)
	if err != nil {
		return jobs.Job{}, err
	}
	pods, mayLosePods := 0, true
	for _, r := range remaining {
		if r.name == nameLauncher {
			continue
		}
		pods += r.pods()
		mayLosePods = mayLosePods && r.mayLosePods
	}
	floor := pods
	if mayLosePods {
		floor = 0
	}
	return jobs.Job{
		Min: pods, Max: set.workers(), Replicas: pods, Floor: floor, Suspended: set.Spec.Suspend,
		Finished: jobs.IsTrue(set.Status.Conditions, "Completed", "Failed"),
	}, nil
}

// LaunchersMayStart returns true: the Jobs of a JobSet are made at once, or in the order that StartsWith goes by.
func (*System) LaunchersMayStart() bool { return true }

// StartsWith returns one gang for a JobSet that makes all its Jobs at once. Where some of them have to wait for others, each replicated
// job is a gang of its own: the pods of all do not exist at the same time before they run.
// Source: StartupPolicyOptions and DependsOn in api/jobset/v1alpha2/jobset_types.go of JobSet 0.10.1, whose InOrder waits until the Jobs
// before are ready.
func (*System) StartsWith(job jobs.Job) (jobs.StartGangs, error) {
	set, remaining, err := decode(job.Object)
	if err != nil {
		return jobs.StartGangs{}, err
	}
	gangs := jobs.StartGangs{Size: min(job.Min, job.Replicas)}
	for _, r := range remaining {
		if r.name == nameLauncher {
			gangs.Size += r.pods()
		}
	}
	isOrdered := set.Spec.StartupPolicy.Order == "InOrder"
	for _, replicated := range set.Spec.ReplicatedJobs {
		isOrdered = isOrdered || len(replicated.DependsOn) > 0
	}
	if !isOrdered {
		return gangs, nil
	}
	gangs = jobs.StartGangs{Label: labelReplicatedJob, Sizes: map[string]int{}}
	for _, r := range remaining {
		gangs.Sizes[r.name] = r.pods()
	}
	return gangs, nil
}

// PodSets returns all pods, or fewer of them where the JobSet can train with fewer.
func (*System) PodSets(job jobs.Job, workers int) ([]jobs.PodSet, error) {
	_, remaining, err := decode(job.Object)
	if err != nil {
		return nil, err
	}
	workers = max(workers, job.Min) // after a restart it may need more than it had when it was held
	var sets []jobs.PodSet
	for _, r := range remaining {
		role, count := jobs.RoleWorker, min(r.pods(), workers)
		if r.name == nameLauncher {
			role, count = jobs.RoleLauncher, r.pods()
		} else {
			workers -= count
		}
		sets = append(sets, jobs.PodSet{
			Path: r.path, Template: r.template, Count: count, Role: role,
			Name: func(i int) string {
				return fmt.Sprintf("%s-%s-%d-%d", job.Name, r.name, i/r.podsPerJob, i%r.podsPerJob)
			},
			Labels: func(i int) map[string]string {
				return map[string]string{
					labelJobSet: job.Name, labelReplicatedJob: r.name,
					labelJobIndex: strconv.Itoa(i / r.podsPerJob), labelPodIndex: strconv.Itoa(i % r.podsPerJob),
				}
			},
		})
	}
	return sets, nil
}
