package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// SystemPod is the system of pods that belong to no known one. Such jobs have no object.
const SystemPod = "pod"

// DefaultTimeout bounds a call where Config.Timeout is zero.
const DefaultTimeout = 5 * time.Second

// Config is what a Registry needs. The clients' rate limits bound how many requests it sends to the API server.
type Config struct {
	// Cluster reads and changes the jobs.
	Cluster Cluster
	// Systems are all job systems, in the order in which they are asked whether a pod is theirs. All of package
	// systems returns them.
	Systems []System
	// Metadata watches the definitions of the systems' resources.
	Metadata metadata.Interface
	Recorder record.EventRecorder
	// Timeout bounds each call with all of its requests; Resume and Grow may take longCall times as long. DefaultTimeout where zero.
	Timeout time.Duration
}

// Registry is all job systems in one. It is safe for concurrent use, also before and while Run runs.
type Registry struct {
	config    Config
	byName    map[string]System
	kueue     kueue
	installed *installed
	hosts     *hostsQueue

	ignored *ignored
	*watched
}

// New returns a Registry. Until Run has found out which systems are installed, each is taken to be.
func New(config Config) (*Registry, error) {
	if config.Cluster.Dynamic == nil || config.Cluster.Client == nil || config.Cluster.Clock == nil || config.Metadata == nil || config.Recorder == nil {
		return nil, errors.New("jobs: the registry needs a Cluster, a Metadata client and a Recorder")
	}
	if config.Timeout <= 0 {
		config.Timeout = DefaultTimeout
	}
	r := &Registry{
		config: config, byName: map[string]System{}, kueue: kueue{config.Cluster, &servedVersion{clock: config.Cluster.Clock}}, installed: newInstalled(config), ignored: newIgnored(config.Recorder),
	}
	r.watched = &watched{installed: r.installed, ignored: r.ignored}
	r.hosts = &hostsQueue{clock: config.Cluster.Clock, refresh: r.refreshHosts}
	for _, system := range config.Systems {
		if r.byName[system.Name()] != nil {
			return nil, fmt.Errorf("jobs: two systems have the name %s", system.Name())
		}
		r.byName[system.Name()] = system
	}
	return r, nil
}

// Run watches which systems are installed and switches them on and off, until ctx ends. It is to be called once. Before it
// runs, nothing is Held and every system is taken to be installed.
func (r *Registry) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	running.Go(r.hosts.start(ctx))
	return r.installed.run(ctx)
}

// HasSynced returns whether it is known which systems are installed, and which of their jobs are held.
func (r *Registry) HasSynced() bool { return r.installed.hasSynced() }

// Member returns which job a pod belongs to, and its role there. It goes by the pod alone. A pod of no known system belongs
// to the job that its annotation names, else to its controller, else to itself; the system is SystemPod then.
func (r *Registry) Member(pod *corev1.Pod) Membership {
	member, _ := r.member(pod)
	switch role := Role(pod.Annotations[api.AnnotationRole]); role {
	case RoleWorker, RoleHost, RoleLauncher:
		member.Role = role
	}
	return member
}

// member returns the system too, nil where no system knows the pod.
func (r *Registry) member(pod *corev1.Pod) (Membership, System) {
	for _, system := range r.config.Systems {
		if job, role, ok := system.Member(pod); ok {
			return Membership{Ref: NewRef(system.Name(), pod.Namespace, job), Role: role}, system
		}
	}
	return genericMember(pod), nil
}

// genericMember returns the job that api.AnnotationJob names, else the pod's controller, else the pod as a job of its own.
func genericMember(pod *corev1.Pod) Membership {
	name := pod.Name
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		name = strings.ToLower(owner.Kind) + "." + owner.Name
	}
	if job := pod.Annotations[api.AnnotationJob]; job != "" {
		name = job
	}
	return Membership{Ref: NewRef(SystemPod, pod.Namespace, name), Role: RoleWorker}
}

// isOfReplicaSet returns whether the pod is one of a Deployment, or of a controller like it.
func isOfReplicaSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && (owner.Kind == "ReplicaSet" || owner.Kind == "ReplicationController")
}

// UnitOf returns the name of the pod's unit: those pods of its job that save their work, and lose it, together. It is empty if all pods
// of the job are one unit, as they are if api.AnnotationJob says so. Pods of a ReplicaSet, and those of a batch Job that gives them no
// index, are each a unit of their own. It goes by the pod alone.
func (r *Registry) UnitOf(pod *corev1.Pod) string {
	if pod.Annotations[api.AnnotationJob] != "" {
		return ""
	}
	_, system := r.member(pod)
	if divided, ok := system.(Divided); ok {
		return divided.UnitOf(pod)
	}
	if system == nil && isOfReplicaSet(pod) {
		return pod.Name
	}
	return ""
}

// PartOf returns whether the pod is part of a job: of a known system, a batch Job among them, or one that its annotation names.
// The pod is vital if the job cannot go on without it: the workers meet at it, or it launches them.
func (r *Registry) PartOf(pod *corev1.Pod) (ofJob, isVital bool) {
	member := r.Member(pod)
	ofJob = member.System != SystemPod || pod.Annotations[api.AnnotationJob] != ""
	return ofJob, ofJob && member.Role != RoleWorker
}

// Get reads the job's object from the API server. The job that it returns has another Ref where the object was made for a job
// of another system, such as a RayCluster for a RayJob. The error wraps ErrNoObject where there is no object, and a
// FieldError where a field is missing or malformed.
func (r *Registry) Get(ctx context.Context, ref Ref) (Job, error) {
	system, err := r.system(ref)
	if err != nil {
		return Job{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	return r.get(ctx, system, ref)
}

func (r *Registry) get(ctx context.Context, system System, ref Ref) (Job, error) {
	object, err := r.config.Cluster.Dynamic.Resource(system.Resource()).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return Job{}, fmt.Errorf("read %s: %w", ref, withErrNoObject(err))
	}
	if parent, name, ok := parentOf(system, object); ok && r.installed.has(parent) {
		return r.get(ctx, r.byName[parent], NewRef(parent, ref.Namespace, name))
	}
	job, err := read(system, object)
	r.ignored.record(job)
	return job, err
}

func parentOf(system System, object *unstructured.Unstructured) (parent, name string, ok bool) {
	if child, is := system.(Child); is {
		return child.Parent(object)
	}
	return "", "", false
}

// read adds to what the system reads what is written in the same way on the jobs of all systems.
func read(system System, object *unstructured.Unstructured) (Job, error) {
	ref := NewRef(system.Name(), object.GetNamespace(), object.GetName())
	job, err := system.Read(object)
	if err != nil {
		return Job{}, fmt.Errorf("%s: %w", ref, err)
	}
	job.Ignored = readSettings(&job, object.GetAnnotations())
	job.Ref, job.UID, job.Object = ref, object.GetUID(), object
	for _, part := range parseParts(job.Namespace, object.GetAnnotations()[api.AnnotationHeldParts]) {
		if !slices.Contains(job.Parts, part) {
			job.Parts = append(job.Parts, part)
		}
	}
	return job, nil
}

// Gang returns the pods that the job would have with so many workers, launcher included. They have names and labels but no
// UID and no owner. If they state their work, they say how much of it is saved. No pod is made where there could not be capacity for all of them, as the number is the owner's to write: the error
// is a TooManyPodsError then, and a BusyError while the job's former pods are being ended.
func (r *Registry) Gang(job Job, workers int, most MostPods) ([]*corev1.Pod, error) {
	system, err := r.system(job.Ref)
	if err != nil {
		return nil, err
	}
	if job.Object == nil {
		return nil, fmt.Errorf("%s: %w", job.Ref, ErrNoObject)
	}
	sets, err := system.PodSets(job, workers)
	if err == nil {
		var pods []*corev1.Pod
		if pods, err = newPods(job, sets, most); err == nil {
			for _, pod := range pods {
				job.SavedWork().noteOn(pod)
			}
			return pods, nil
		}
	}
	return nil, fmt.Errorf("%s: the pods of its gang: %w", job.Ref, err)
}

// system returns the job's system, if that is installed.
func (r *Registry) system(ref Ref) (System, error) {
	system, ok := r.byName[ref.System]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: its system is not known: %w", ref, ErrNoObject)
	case !r.installed.has(ref.System):
		return nil, fmt.Errorf("%s: %s is not served: %w", ref, system.Resource().GroupResource(), ErrNoObject)
	}
	return system, nil
}
