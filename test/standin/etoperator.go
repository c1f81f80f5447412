package standin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Resources of et-operator.
var (
	TrainingJobs = schema.GroupVersionResource{Group: "kai.alibabacloud.com", Version: "v1alpha1", Resource: "trainingjobs"}
	ScaleIns     = TrainingJobs.GroupVersion().WithResource("scaleins")
	ScaleOuts    = TrainingJobs.GroupVersion().WithResource("scaleouts")
)

const (
	// LabelTrainingJob names the TrainingJob of a pod.
	LabelTrainingJob = "training-job-name"
	// AnnotationHostfile on a launcher is the hostfile that it would have: names of workers, separated by spaces.
	AnnotationHostfile = "test.gpu-spot.autoscaling/hostfile"

	labelETGroup  = "group-name"
	labelETRole   = "training-job-role"
	labelETIndex  = "replica-index"
	labelScaleOut = "scaleout-name"

	// AnnotationBusy on a TrainingJob, with any value, says that the one worker that looks after all TrainingJobs is busy with
	// another.
	AnnotationBusy = "test.gpu-spot.autoscaling/operator-busy"

	annotationSuspended = "job-supervisor.kube-ai.io/job-suspended"

	roleLauncher = "launcher"
	roleWorker   = "worker"

	restartAlways    = "Always"
	restartOnFailure = "OnFailure"

	hostfileKey         = "hostfile"
	defaultETBackoff    = 6
	defaultScaleTimeout = 60 * time.Second
)

type trainingJob struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		RestartPolicy  string `json:"restartPolicy"`
		BackoffLimit   *int32 `json:"backoffLimit"`
		ETReplicaSpecs struct {
			Launcher etReplicas `json:"launcher"`
			Worker   etReplicas `json:"worker"`
		} `json:"etReplicaSpecs"`
	} `json:"spec"`
	Status trainingJobStatus `json:"status"`
}

type etReplicas struct {
	Replicas      int                    `json:"replicas"`
	RestartPolicy string                 `json:"restartPolicy"`
	Template      corev1.PodTemplateSpec `json:"template"`
}

// trainingJobStatus is what is kept. The workers are those that should be there and those that run. The conditions say
// which steps of starting were done: whoever wants a job to start anew has to reset them.
type trainingJobStatus struct {
	ETStatus       `json:",inline"`
	TargetWorkers  []string `json:"targetWorkers,omitempty"`
	CurrentWorkers []string `json:"currentWorkers,omitempty"`
	CurrentScaler  string   `json:"currentScaler,omitempty"`
	// CompletionTime is set at the first end only: it outlives restarts.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// ETStatus is common to jobs and scalers. Their definitions refuse a status without conditions or replicaStatuses.
type ETStatus struct {
	Phase           string                    `json:"phase,omitempty"`
	Conditions      conditions                `json:"conditions"`
	ReplicaStatuses map[string]replicasStatus `json:"replicaStatuses"`
	RestartCount    int32                     `json:"restartCount"`
}

type replicasStatus struct{}

// initialize makes a status that is not refused.
func (s *ETStatus) initialize() {
	if s.Conditions == nil {
		s.Conditions = conditions{}
	}
	if s.ReplicaStatuses == nil {
		s.ReplicaStatuses = map[string]replicasStatus{}
	}
}

const (
	phaseCreated   = "Created"
	phaseRunning   = "Running"
	phaseScaling   = "Scaling"
	phaseSuspended = "Suspended"
	phaseSucceeded = "Succeeded"
	phaseFailed    = "Failed"

	workersCreated  = "WorkersCreated"
	workersReady    = "WorkersReady"
	launcherCreated = "LauncherCreated"
)

// NewETOperator plays et-operator (github.com/AliyunContainerService/et-operator), and of Elastic-Job-Supervisor what it
// asks et-operator for.
//
// The workers come first, then the launcher with the hostfile of <job>-config, which is made only where there is none. A
// worker that is lost comes again under a new index where its restart policy is Always. The launcher's end is the job's;
// a failed job starts anew up to its backoff limit, without its conditions but with the completionTime of its first end. One
// ScaleIn or ScaleOut at a time, the newest first; a ScaleOut that is not done within its timeout is undone; the timeout
// counts from the condition Scaling, which is lost where the scaler has an owner that the operator did not set. A ScaleIn
// whose pods are all gone when it is begun deletes all workers. A job annotated job-suspended=true loses all its pods without
// grace, and stays suspended until its phase is reset.
//
// What it does to scalers follows scalein.go, scaleout.go, scaler.go and scalein_controller.go of commit 96806fb, how a job ends
// and is restarted launcher.go (syncLauncherState), status.go and trainingjob_controller.go (resetJobStatus).
//
// It has no services and no keys, runs nothing in the launcher (what the hostfile is rewritten to stands in the
// annotation AnnotationHostfile of the launcher) and does not wait for processes.
func NewETOperator(config *rest.Config) (*Operator, error) {
	return newOperator("et-operator", config, etKinds)
}

func etKinds(c cluster) []kind {
	et := &etOperator{c}
	return []kind{{ScaleIns, et.adopt}, {ScaleOuts, et.adopt}, {TrainingJobs, et.reconcile}}
}

type etOperator struct{ cluster }

func (o *etOperator) reconcile(ctx context.Context, object *unstructured.Unstructured) error {
	if _, busy := object.GetAnnotations()[AnnotationBusy]; busy {
		return nil
	}
	job, err := decode[trainingJob](object)
	if err != nil {
		return err
	}
	job.Status.initialize()
	all, err := o.pods(ctx, job.Namespace, map[string]string{labelETGroup: TrainingJobs.Group, LabelTrainingJob: job.Name})
	if err != nil {
		return err
	}
	launcher := all[job.Name+"-"+roleLauncher]
	workers := all
	delete(workers, job.Name+"-"+roleLauncher)

	if job.Annotations[annotationSuspended] == "true" {
		job.Status.Phase = phaseSuspended
		job.Status.Conditions.set(phaseSuspended, true)
	}
	switch job.Status.Phase {
	case phaseSuspended:
		err = o.delete(ctx, noGrace, append(values(workers), launcher)...)
	case phaseSucceeded:
		err = o.delete(ctx, noGrace, values(workers)...) // cleanPodPolicy: Running
	case phaseFailed:
		err = o.restart(ctx, &job, append(values(workers), launcher))
	case phaseScaling:
		job.Status.followLauncher(launcher)
		err = o.scale(ctx, object, &job, workers, launcher)
	default:
		err = o.step(ctx, object, &job, workers, launcher)
	}
	if err != nil {
		return err
	}
	return o.setStatus(ctx, TrainingJobs, object, &job.Status)
}

// step starts the job, or keeps it running.
func (o *etOperator) step(ctx context.Context, object *unstructured.Unstructured, job *trainingJob, workers map[string]*corev1.Pod, launcher *corev1.Pod) error {
	worker := job.Spec.ETReplicaSpecs.Worker
	create := job.Status.advance(job.Name, worker.Replicas, worker.RestartPolicy == restartAlways, workers, launcher)
	for _, name := range create {
		pod := newETPod(object, job, name)
		if name == job.Name+"-"+roleLauncher {
			hostfile, err := o.hostfile(ctx, object, job.Status.CurrentWorkers)
			if err != nil {
				return err
			}
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, AnnotationHostfile, hostfile)
		}
		if err := o.create(ctx, pod); err != nil {
			return err
		}
	}
	if job.Status.Phase != phaseRunning {
		return nil
	}
	if err := o.rewriteHostfile(ctx, launcher, job.Status.CurrentWorkers); err != nil {
		return err
	}
	return o.takeScaler(ctx, job)
}

// advance brings the status up to what the pods say, and returns the names of the pods to create.
func (s *trainingJobStatus) advance(job string, replicas int, restart bool, workers map[string]*corev1.Pod, launcher *corev1.Pod) (create []string) {
	if s.Phase == "" {
		s.Phase = phaseCreated
	}
	s.CurrentWorkers = nil
	for _, name := range s.TargetWorkers {
		if running(workers[name]) {
			s.CurrentWorkers = append(s.CurrentWorkers, name)
		}
	}
	switch {
	case !s.Conditions.has(workersCreated):
		s.TargetWorkers = nil
		for i := range replicas {
			s.TargetWorkers = append(s.TargetWorkers, workerName(job, i))
		}
		s.Conditions.set(workersCreated, true)
		return slices.Clone(s.TargetWorkers)
	case !s.Conditions.has(launcherCreated):
		if len(s.CurrentWorkers) >= replicas {
			s.Conditions.set(workersReady, true)
			s.Conditions.set(launcherCreated, true)
			create = append(create, job+"-"+roleLauncher)
		}
	default:
		s.followLauncher(launcher)
	}
	if restart && s.Phase != phaseSucceeded && s.Phase != phaseFailed {
		create = append(create, s.replaceLost(job, workers)...)
	}
	return create
}

func (s *trainingJobStatus) followLauncher(launcher *corev1.Pod) {
	switch {
	case launcher == nil || failed(launcher):
		s.end(phaseFailed, launcher)
	case succeeded(launcher):
		s.end(phaseSucceeded, launcher)
	case running(launcher) && s.Phase == phaseCreated:
		s.Phase = phaseRunning
	}
	s.Conditions.set(phaseRunning, s.Phase == phaseRunning || s.Phase == phaseScaling)
}

// end notes how the job has ended, and when, of which a launcher that was evicted is no end.
func (s *trainingJobStatus) end(as string, launcher *corev1.Pod) {
	now := metav1.Now()
	s.Phase = as
	if !s.Conditions.has(as) {
		s.Conditions = append(s.Conditions, condition{Type: as, Status: "True", LastTransitionTime: &now})
	}
	if isEvicted := launcher != nil && launcher.Status.Reason == "Evicted"; s.CompletionTime == nil && !isEvicted {
		s.CompletionTime = &now
	}
}

// replaceLost gives new names to the workers that have ended or are no more.
func (s *trainingJobStatus) replaceLost(job string, workers map[string]*corev1.Pod) (created []string) {
	next := s.nextIndex()
	for i, name := range s.TargetWorkers {
		if pod := workers[name]; pod != nil && !ended(pod) {
			continue
		}
		s.TargetWorkers[i] = workerName(job, next)
		created = append(created, s.TargetWorkers[i])
		next++
	}
	return created
}

func (s *trainingJobStatus) nextIndex() int {
	next := 0
	for _, name := range s.TargetWorkers {
		next = max(next, workerIndex(name)+1)
	}
	return next
}

// restart begins a failed job anew, or gives it up.
func (o *etOperator) restart(ctx context.Context, job *trainingJob, pods []*corev1.Pod) error {
	limit := int32(defaultETBackoff)
	if job.Spec.BackoffLimit != nil {
		limit = *job.Spec.BackoffLimit
	}
	if job.Spec.RestartPolicy == restartOnFailure && job.Status.RestartCount < limit {
		job.Status = trainingJobStatus{
			ETStatus:       ETStatus{Phase: phaseCreated, RestartCount: job.Status.RestartCount + 1},
			CompletionTime: job.Status.CompletionTime,
		}
		job.Status.initialize()
		return o.delete(ctx, noGrace, pods...)
	}
	return o.delete(ctx, noGrace, slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		return pod == nil || pod.Labels[labelETRole] == roleLauncher
	})...)
}

func workerName(job string, index int) string { return fmt.Sprintf("%s-%s-%d", job, roleWorker, index) }

func workerIndex(name string) int {
	index, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return index
}

// newETPod makes the launcher or the worker of that name.
func newETPod(object *unstructured.Unstructured, job *trainingJob, name string) *corev1.Pod {
	labels := map[string]string{labelETGroup: TrainingJobs.Group, LabelTrainingJob: job.Name, labelETRole: roleLauncher}
	template := job.Spec.ETReplicaSpecs.Launcher.Template
	if !strings.HasSuffix(name, "-"+roleLauncher) {
		labels[labelETRole], labels[labelETIndex] = roleWorker, strconv.Itoa(workerIndex(name))
		template = job.Spec.ETReplicaSpecs.Worker.Template
	}
	pod := newPod(object, template, name, labels)
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return pod
}

// hostfile is what <job>-config has. It is made of the workers where there is none.
func (o *etOperator) hostfile(ctx context.Context, object *unstructured.Unstructured, workers []string) (string, error) {
	maps := o.CoreV1().ConfigMaps(object.GetNamespace())
	name := object.GetName() + "-config"
	existing, err := maps.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return existing.Data[hostfileKey], nil
	}
	if !apierrors.IsNotFound(err) {
		return "", err
	}
	made, err := maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{controllerReference(object)}},
		Data:       map[string]string{hostfileKey: strings.Join(workers, " ")},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return made.Data[hostfileKey], nil
}

// rewriteHostfile is a command in the launcher for the real one.
func (o *etOperator) rewriteHostfile(ctx context.Context, launcher *corev1.Pod, workers []string) error {
	hosts := strings.Join(workers, " ")
	if launcher == nil || launcher.Annotations[AnnotationHostfile] == hosts {
		return nil
	}
	metav1.SetMetaDataAnnotation(&launcher.ObjectMeta, AnnotationHostfile, hosts)
	_, err := o.CoreV1().Pods(launcher.Namespace).Update(ctx, launcher, metav1.UpdateOptions{})
	return err
}
