package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// DefaultTimeout bounds a call where Config.Timeout is zero.
const DefaultTimeout = 5 * time.Second

var errQueued = fmt.Errorf("suspended and resumed by Kueue: %w", ErrUnsupported)

func queued(object *unstructured.Unstructured) bool {
	return object.GetLabels()[api.LabelKueueQueue] != ""
}

// Config is what a Registry needs. The clients' budgets bound what it asks of the API server.
type Config struct {
	// Dynamic reads and changes the jobs.
	Dynamic dynamic.Interface
	// Metadata watches the definitions of their resources.
	Metadata metadata.Interface
	// Client finds launchers, and which versions of a resource are served.
	Client   kubernetes.Interface
	Recorder record.EventRecorder
	// Clock is the real one where nil.
	Clock clock.WithTicker
	// Timeout bounds each call, whatever it takes of requests; DefaultTimeout where zero.
	Timeout time.Duration
}

// Registry is all systems in one. It is safe for concurrent use, before and beside Run too.
type Registry struct {
	config    Config
	systems   []Adapter // whom a pod belongs to is asked in this order
	byName    map[string]Adapter
	kueue     *kueue
	*services                                           // which of them are on
	refreshes workqueue.TypedDelayingInterface[refresh] // nil beside Run; guarded by the mutex of services
	malformed atomic.Pointer[map[types.UID]string]      // what Held found last
}

// New returns a Registry of all known systems. Until Run has seen which of them are installed, each is taken to be.
func New(config Config) (*Registry, error) {
	if config.Dynamic == nil || config.Metadata == nil || config.Client == nil || config.Recorder == nil {
		return nil, errors.New("jobs: the registry needs a Dynamic, a Metadata and a Client, and a Recorder")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Timeout <= 0 {
		config.Timeout = DefaultTimeout
	}
	r := &Registry{config: config, byName: map[string]Adapter{}}
	c := &cluster{dynamic: config.Dynamic, client: config.Client, clock: config.Clock}
	r.systems, r.kueue = adapters(c), &kueue{c}
	for _, adapter := range r.systems {
		r.byName[adapter.System()] = adapter
	}
	r.services = newServices(config, r.systems)
	return r, nil
}

// Member tells which job a pod belongs to, and what it is there. It goes by the pod alone. A pod of no known system belongs
// to the job that its annotation names, else to its controller, else to itself; the system is then SystemPod.
func (r *Registry) Member(pod *corev1.Pod) Membership {
	member := r.member(pod)
	switch role := Role(pod.Annotations[api.AnnotationRole]); role {
	case RoleWorker, RoleHost, RoleLauncher:
		member.Role = role
	}
	return member
}

// Alone says whether the pod has nothing in common with others of its job but their controller: each has work of its own to
// save, and is lost by itself. So are pods of a ReplicaSet, and those of a batch Job that gives them no index, unless
// api.AnnotationJob makes them one job. It goes by the pod alone.
func (r *Registry) Alone(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || pod.Annotations[api.AnnotationJob] != "" {
		return false
	}
	switch r.member(pod).System {
	case SystemPod:
		return owner.Kind == "ReplicaSet" || owner.Kind == "ReplicationController"
	case systemBatchJob:
		_, indexed := pod.Annotations[batchv1.JobCompletionIndexAnnotation] // the Job controller writes it on all pods of an Indexed Job
		return !indexed
	}
	return false
}

func (r *Registry) member(pod *corev1.Pod) Membership {
	for _, adapter := range r.systems {
		if member, ok := adapter.Member(pod); ok {
			return member
		}
	}
	return genericMember(pod)
}

// Run watches which systems are installed and switches them on and off, until ctx ends. It is to be called once. Without it,
// nothing is Held, and every system is taken to be installed.
func (r *Registry) Run(ctx context.Context) error {
	refreshes := newRefreshes(r.config.Clock)
	r.setRefreshes(refreshes)
	var group sync.WaitGroup
	group.Go(func() { r.runRefreshes(ctx, refreshes) })
	defer group.Wait()
	defer refreshes.ShutDown()
	defer r.setRefreshes(nil)
	return r.services.run(ctx)
}

func (r *Registry) setRefreshes(queue workqueue.TypedDelayingInterface[refresh]) {
	r.services.mu.Lock()
	defer r.services.mu.Unlock()
	r.refreshes = queue
}

// Get reads the job's object from the API server. What it returns has another Ref where the pods are of an object that was
// made for a job: those of a RayCluster that belongs to a RayJob. The error wraps ErrNoObject where there is no object, and
// a FieldError where a field is missing or malformed.
func (r *Registry) Get(ctx context.Context, ref Ref) (Job, error) {
	adapter, err := r.adapter(ref)
	if err != nil {
		return Job{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.config.Timeout)
	defer cancel()
	return r.read(ctx, adapter, ref)
}

// child is an adapter to what jobs of another system may be made of.
type child interface {
	// Parent names the job that an object was made for, if it was.
	Parent(object *unstructured.Unstructured) (system, name string, ok bool)
}

func parentOf(adapter Adapter, object *unstructured.Unstructured) (system, name string, ok bool) {
	if child, is := adapter.(child); is {
		return child.Parent(object)
	}
	return "", "", false
}

func (r *Registry) read(ctx context.Context, adapter Adapter, ref Ref) (Job, error) {
	object, err := r.config.Dynamic.Resource(adapter.Resource()).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return Job{}, fmt.Errorf("reading %s: %w", ref, absent(err))
	}
	if system, name, ok := parentOf(adapter, object); ok && r.on(system) {
		parent := Ref{System: system, NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: name}}
		return r.read(ctx, r.byName[system], parent)
	}
	return readJob(adapter, object)
}

// readJob adds to what the adapter reads what is written the same way on the jobs of all systems.
func readJob(adapter Adapter, object *unstructured.Unstructured) (Job, error) {
	job, err := adapter.Read(object)
	if err == nil {
		err = readWishes(&job, object.GetAnnotations())
	}
	job.Ref = refTo(adapter, object)
	job.UID, job.Object = object.GetUID(), object
	for _, part := range parseParts(job.Namespace, object.GetAnnotations()[api.AnnotationHeldParts]) {
		if !slices.Contains(job.Parts, part) {
			job.Parts = append(job.Parts, part)
		}
	}
	if err != nil {
		return Job{}, fmt.Errorf("%s: %w", job.Ref, err)
	}
	return job, nil
}

// Held returns the jobs that carry api.LabelHeld, as the informers have them. Of a job that is malformed, only the Ref, the UID
// and the Object are set, and it is not left out, so that the others are not held up, nor is it forgotten.
func (r *Registry) Held() []Job {
	var held []Job
	malformed := map[types.UID]string{}
	for adapter, objects := range r.heldObjects() {
		for _, object := range objects {
			if _, _, copied := parentOf(adapter, object); copied {
				continue // its marks are a copy of its parent's: anybody may have made it
			}
			job, err := readJob(adapter, object)
			if err != nil {
				malformed[object.GetUID()] = err.Error()
				job = Job{Ref: refTo(adapter, object), UID: object.GetUID(), Object: object}
			}
			held = append(held, job)
		}
	}
	r.complain(malformed)
	return held
}

// complain logs what is malformed, each time that it is so in another way.
func (r *Registry) complain(malformed map[types.UID]string) {
	was := r.malformed.Swap(&malformed)
	for uid, problem := range malformed {
		if was == nil || (*was)[uid] != problem {
			klog.ErrorS(nil, "A job that is held cannot be read, and stays held", "problem", problem)
		}
	}
}

// Gang returns pods as the job would have them with so many workers, launcher included. What a job asks for is its owner's to
// write, so that nothing is rendered for which there is no room. See Adapter.
func (r *Registry) Gang(job Job, workers int, room Room) ([]*corev1.Pod, error) {
	adapter, err := r.adapter(job.Ref)
	if err != nil {
		return nil, err
	}
	pods, err := adapter.Gang(job, workers, room)
	if err != nil {
		return nil, fmt.Errorf("%s: the pods of its gang: %w", job.Ref, err)
	}
	return pods, nil
}

// adapter returns that of the job's system, if the system is installed.
func (r *Registry) adapter(ref Ref) (Adapter, error) {
	adapter, ok := r.byName[ref.System]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: its system is not known: %w", ref, ErrNoObject)
	case !r.on(ref.System):
		return nil, fmt.Errorf("%s: %s is not served: %w", ref, adapter.Resource().GroupResource(), ErrNoObject)
	}
	return adapter, nil
}

// absent makes ErrNoObject of the API server's answer that there is none.
func absent(err error) error {
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: %w", ErrNoObject, err)
	}
	return err
}
