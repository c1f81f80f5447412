// Package etjob is the job system of et-operator: the TrainingJob, which `arena submit etjob` makes.
package etjob

import (
	"encoding/json"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// Name is the name of the system.
const Name = "trainingjob"

const (
	group      = "kai.alibabacloud.com"
	labelGroup = "group-name"
	labelJob   = "training-job-name"
	labelRole  = "training-job-role"
	labelIndex = "replica-index"

	roleLauncher = "launcher"
	roleWorker   = "worker"

	phaseCreated   = "Created"
	phaseRunning   = "Running"
	phaseScaling   = "Scaling"
	phaseSuspended = "Suspended"
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"

	pathWorker   = "spec.etReplicaSpecs.worker"
	pathLauncher = "spec.etReplicaSpecs.launcher"
)

var (
	resource  = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "trainingjobs"}
	scaleIns  = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "scaleins"}
	scaleOuts = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "scaleouts"}
)

// System is et-operator's TrainingJob: Horovod Elastic.
//
// The operator replaces a worker that was deleted, under a new index, only where the workers' restartPolicy is Always, and Horovod puts a
// host that failed on a blacklist. So workers are taken out of the job by a ScaleIn before they are evicted, and put back by
// a ScaleOut. The operator works on one of either at a time, and does not look at minReplicas. The loss of the launcher is
// the loss of the job.
//
// It is suspended and resumed as Elastic-Job-Supervisor does it: by an annotation, at which the operator deletes all pods
// without a grace period. The job does not come back by itself when the annotation is removed: phase and conditions have to
// be reset, and the ConfigMap with the list of hosts deleted.
//
// Source: et-operator, commit 96806fb, pkg/controllers: handleWorkersFailed, DeleteWorkerPods and createConfigMap in worker.go; checkSuspended,
// ReconcileJobs, cleanupAll, doSteps and needRestartJob in trainingjob_controller.go; setTrainingJobScaler and executeScaling in scaler.go;
// syncLauncherState in launcher.go; JobSuspended in api/v1/constants.go. Of the blacklist,
// horovod/runner/elastic/registration.py. Elastic-Job-Supervisor has no public source.
type System struct{ cluster jobs.Cluster }

var (
	_ jobs.System    = (*System)(nil)
	_ jobs.Suspender = (*System)(nil)
	_ jobs.Resizer   = (*System)(nil)
	_ jobs.Stopper   = (*System)(nil)
	_ jobs.Grower    = (*System)(nil)
)

// New returns the system.
func New(cluster jobs.Cluster) *System { return &System{cluster} }

// trainingJob is what is read of a TrainingJob.
type trainingJob struct {
	Spec struct {
		RestartPolicy string      `json:"restartPolicy"`
		BackoffLimit  *jobs.Count `json:"backoffLimit"`
		ReplicaSpecs  struct {
			Worker   *replicaSpec `json:"worker"`
			Launcher *replicaSpec `json:"launcher"`
		} `json:"etReplicaSpecs"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
		// TargetWorkers are the pods that the operator takes for the job's workers, none before it has made them.
		// CurrentWorkers are those of them that are there.
		TargetWorkers  []string   `json:"targetWorkers"`
		CurrentWorkers []string   `json:"currentWorkers"`
		RestartCount   jobs.Count `json:"restartCount"`
		// Conditions are emptied at each restart. completionTime is not: it stays that of the first end.
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

type condition struct {
	jobs.Condition
	LastTransitionTime string `json:"lastTransitionTime"`
}

type replicaSpec struct {
	Replicas      *jobs.Count     `json:"replicas"`
	MinReplicas   *jobs.Count     `json:"minReplicas"`
	MaxReplicas   *jobs.Count     `json:"maxReplicas"`
	RestartPolicy string          `json:"restartPolicy"`
	Template      json.RawMessage `json:"template"`
}

func decode(object *unstructured.Unstructured) (*trainingJob, error) {
	job := &trainingJob{}
	if err := jobs.Decode(object, job); err != nil {
		return nil, err
	}
	if job.Spec.ReplicaSpecs.Worker == nil {
		return nil, jobs.Missing(pathWorker)
	}
	return job, nil
}

func (*System) Name() string                          { return Name }
func (*System) Resource() schema.GroupVersionResource { return resource }

func (*System) Member(pod *corev1.Pod) (job string, role jobs.Role, ok bool) {
	owner := jobs.ControllerOf(pod, group, "TrainingJob")
	if owner == nil {
		return "", "", false
	}
	if pod.Labels[labelRole] == roleLauncher {
		return owner.Name, jobs.RoleLauncher, true
	}
	return owner.Name, jobs.RoleWorker, true
}

func (*System) Read(object *unstructured.Unstructured) (jobs.Job, error) {
	job, err := decode(object)
	if err != nil {
		return jobs.Job{}, err
	}
	worker, targets := job.Spec.ReplicaSpecs.Worker, len(job.Status.TargetWorkers)
	asked := worker.Replicas.Or(1)
	read := jobs.Job{Replicas: asked, Min: worker.MinReplicas.Or(asked), Max: worker.MaxReplicas.Or(max(asked, targets))}
	if targets > 0 {
		read.Replicas = targets
	}
	annotations := object.GetAnnotations()
	if worker.MaxReplicas == nil { // a job that was resumed with fewer workers asks for fewer
		read.Max = max(read.Max, jobs.HeldReplicas(object))
	}
	if jobs.HeldAs(object.GetLabels()[api.LabelHeld]) == jobs.HeldShrunk {
		read.Replicas = job.lastingWorkers(read.Replicas)
	}
	phase := job.Status.Phase
	if phase == "" || phase == phaseCreated {
		// The launcher is not started before all workers run, and a lost worker may not be replaced.
		read.Min, read.Floor = max(read.Min, read.Replicas), read.Replicas
		read.Max = max(read.Max, read.Min)
	}
	read.Suspended = phase == phaseSuspended || annotations[api.AnnotationSupervisorSuspended] == "true"
	read.StopRequested = annotations[api.AnnotationStopRequested] != ""
	read.Stopped = phase == phaseFailed && job.failedSince(annotations[api.AnnotationStopRequested])
	read.Finished = phase == phaseSucceeded || (phase == phaseFailed && !job.willRestart() && !read.Stopped)
	return read, nil
}

// lastingWorkers returns how many of the workers that the operator takes for the job's are there, or will be. A worker that was
// lost other than by a ScaleIn stays among them, and is replaced only where the workers' restartPolicy is Always. It returns
// otherwise where the status does not show which workers are there.
func (j *trainingJob) lastingWorkers(otherwise int) int {
	if j.Spec.ReplicaSpecs.Worker.RestartPolicy == "Always" || j.Status.Phase != phaseRunning || len(j.Status.CurrentWorkers) == 0 {
		return otherwise
	}
	return len(intersection(j.Status.TargetWorkers, j.Status.CurrentWorkers))
}

// failedSince returns whether the job has failed since then. It is true if the status does not say when the job failed, and false
// if the time that is asked about is malformed or empty.
func (j *trainingJob) failedSince(text string) bool {
	since, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return false
	}
	for _, c := range j.Status.Conditions {
		if c.Type == phaseFailed && c.Status == metav1.ConditionTrue {
			failed, err := time.Parse(time.RFC3339, c.LastTransitionTime)
			return err != nil || !failed.Before(since)
		}
	}
	return true
}

// willRestart returns whether the operator will start a job that has failed once more.
func (j *trainingJob) willRestart() bool {
	return j.Spec.RestartPolicy == "OnFailure" && j.Status.RestartCount.Int() < j.Spec.BackoffLimit.Or(6)
}

// withReplicasToHold returns the job with the Replicas that are written on it when it is held: without workers that were lost
// before and for which others were added, but no fewer than it asks for.
func withReplicasToHold(job jobs.Job) (jobs.Job, error) {
	object, err := decode(job.Object)
	if err != nil {
		return job, err
	}
	job.Replicas = min(job.Replicas, max(object.lastingWorkers(job.Replicas), object.Spec.ReplicaSpecs.Worker.Replicas.Or(1)))
	return job, nil
}

// intersection returns what both lists have, sorted, once each.
func intersection(list, other []string) []string {
	return sets.List(sets.New(list...).Intersection(sets.New(other...)))
}

func (*System) PodSets(of jobs.Job, workers int) ([]jobs.PodSet, error) {
	job, err := decode(of.Object)
	if err != nil {
		return nil, err
	}
	launcher := job.Spec.ReplicaSpecs.Launcher
	if launcher == nil {
		return nil, jobs.Missing(pathLauncher)
	}
	labels := func(role string) map[string]string {
		return map[string]string{labelGroup: group, labelJob: of.Name, labelRole: role}
	}
	return []jobs.PodSet{
		{
			Path: pathWorker + ".template", Template: job.Spec.ReplicaSpecs.Worker.Template, Count: workers, Role: jobs.RoleWorker,
			NamePrefix: of.Name + "-worker",
			Labels: func(i int) map[string]string {
				labels := labels(roleWorker)
				labels[labelIndex] = strconv.Itoa(i)
				return labels
			},
		},
		{
			Path: pathLauncher + ".template", Template: launcher.Template, Count: 1, Role: jobs.RoleLauncher,
			Name:   func(int) string { return of.Name + "-launcher" },
			Labels: func(int) map[string]string { return labels(roleLauncher) },
		},
	}, nil
}
