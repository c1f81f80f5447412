package jobs

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// System is one kind of job. Its methods are pure and safe for concurrent use. A system whose jobs cope by themselves with
// the loss of workers, and that cannot be suspended, needs no more than this.
type System interface {
	// Name is the lower-case name used in Refs and as the label of metrics.
	Name() string
	// Resource is the resource of the job's object, in the one version that the system reads and writes.
	Resource() schema.GroupVersionResource
	// Member returns the name of the job that the pod belongs to and the pod's role. It goes by the pod alone. The pod's owner decides: the
	// job, or an object that the system makes for the job, by the name that the system gives it. Labels, which whoever makes a pod may copy
	// from another, make no pod part of a job, and only tell the role. Systems are asked in the order in which they are registered, and
	// the first that knows the pod has it.
	Member(pod *corev1.Pod) (job string, role Role, ok bool)
	// Read returns the bounds and the state of a job. The Registry adds the Ref, the UID, the Object and what the owner's
	// annotations say. The error is a FieldError where a field is missing or malformed.
	Read(object *unstructured.Unstructured) (Job, error)
	// PodSets returns the pods that the job would have with so many workers, launcher included. The job has an Object. The
	// error is a BusyError while the system has yet to end the job's former pods.
	PodSets(job Job, workers int) ([]PodSet, error)
}

// The optional interfaces change the cluster. Each call is idempotent: a new leader may repeat it after any of its steps.
// changed is false where there was nothing to do. The error is a BusyError where the call has to be repeated later, and
// wraps ErrUnsupported where the system cannot do it with this job. All are safe for concurrent use.

// Suspender is implemented by systems whose jobs can be suspended.
type Suspender interface {
	// Suspend ends all pods of the job without a failure counted, and notes on the job that this project did it, and why. A job
	// that somebody else has suspended is left as it is.
	Suspend(ctx context.Context, job Job, reason HoldReason) (changed bool, err error)
	// Resume undoes Suspend, with so many workers where the system can choose.
	Resume(ctx context.Context, job Job, workers int) (changed bool, err error)
}

// Resizer is implemented by systems that have to be asked to take workers out of a job and to add them again. Jobs of other
// systems lose workers and get them back without being asked.
type Resizer interface {
	// Shrink takes the named worker pods out of the job, before they are evicted. The caller has made sure that Min workers
	// survive.
	Shrink(ctx context.Context, job Job, pods []string) (changed bool, err error)
	// Shrinking returns those of the pods that the system has yet to take out of the job, sorted.
	Shrinking(ctx context.Context, job Job, pods []string) ([]string, error)
	// CancelShrink withdraws each Shrink of these pods that the system has not begun. One that it may have begun a moment ago it
	// leaves to CancelStaleShrinks.
	CancelShrink(ctx context.Context, job types.NamespacedName, pods []string) error
	// CancelStaleShrinks withdraws each Shrink that the system has not begun and of whose pods none exists any more. Pods of the
	// same names that were made since are others. The error is a BusyError while there is a Shrink that the system has not begun
	// and of whose pods some exist, or that it may have begun a moment ago.
	CancelStaleShrinks(ctx context.Context, job types.NamespacedName) error
	// Grow brings a job that was shrunk to so many workers, and removes the held label once it has all that it had.
	Grow(ctx context.Context, job Job, workers int) (changed bool, err error)
}

// Grower is implemented by systems whose jobs can be given more workers than they ask for, while they run.
type Grower interface {
	// CheckGrowth returns why the job cannot be given more workers, nil if it can. The error wraps ErrUnsupported. It goes by the object
	// alone.
	CheckGrowth(job Job) error
	// GrowBeyond has the job ask for so many workers, no more than its maximum, and writes the patch of GrownPatch with that. The call is
	// idempotent. The error is a BusyError where it has to be repeated later.
	GrowBeyond(ctx context.Context, job Job, workers int) (changed bool, err error)
}

// Stopper is implemented by systems whose jobs may listen for a request to save their work and to stop.
type Stopper interface {
	// Stop asks the job's workers, and returns how many of them answered.
	Stop(ctx context.Context, job Job) (heard int, err error)
}

// HostsRefresher is implemented by systems whose launcher reads its list of workers from a file that the kubelet refreshes
// late.
type HostsRefresher interface {
	// RefreshHosts has the kubelet refresh the file at once. It is called some time after workers have gone or come.
	RefreshHosts(ctx context.Context, ref Ref) error
}

// Child is implemented by systems whose objects may be made by a job of another system.
type Child interface {
	// Parent returns the system and the name of the job that an object was made for, if it was.
	Parent(object *unstructured.Unstructured) (system, name string, ok bool)
}

// Starter is implemented by systems whose jobs do nothing before several of their pods run.
type Starter interface {
	// StartsWith returns which pods of the job have to start together. The job has an Object.
	StartsWith(job Job) (StartGangs, error)
}

// LauncherStarter is a Starter of whose jobs the launchers may be among the pods that start together. Those of other systems are not.
type LauncherStarter interface {
	Starter
	// LaunchersMayStart returns whether StartsWith says it of launchers, too. If it does, it names those that do not in Except.
	LaunchersMayStart() bool
}

// StartGangs says which pods of a job have to start together. Its launchers are not among them, because some operators make them only once
// the workers run, unless the system is a LauncherStarter.
type StartGangs struct {
	// Label is the label of pods by whose value they are in different gangs. Without it all pods of the job are in one.
	Label string
	// Size is how many pods of each gang have to run at least. Sizes is that for some values of the label. Below two, the pods are in
	// no gang.
	Size  int
	Sizes map[string]int
	// Except are labels of pods that are in no gang, because they start before the others or after them.
	Except map[string]string
}

// Of returns the part of the job that the pod starts with, "" for the whole job, and how many pods of that have to run at least.
func (g StartGangs) Of(pod *corev1.Pod) (part string, size int) {
	if len(g.Except) > 0 && labels.SelectorFromSet(g.Except).Matches(labels.Set(pod.Labels)) {
		return "", 0
	}
	part, size = pod.Labels[g.Label], g.Size
	if own, ok := g.Sizes[part]; ok {
		size = own
	}
	return part, size
}

// Starts knows which pods have to start together. It is safe for concurrent use.
type Starts struct{ registry *Registry }

// NewStarts returns the Starts of the systems of a Registry.
func NewStarts(registry *Registry) Starts { return Starts{registry} }

// JobOf returns the job of the pod if the pod may have to start together with others of it: GangsOf says whether. It goes by the pod
// alone, and by its role in the job system, whatever role its annotation gives it.
func (s Starts) JobOf(pod *corev1.Pod) (ref Ref, ok bool) {
	member, system := s.registry.member(pod)
	if _, starts := system.(Starter); !starts {
		return Ref{}, false
	}
	if with, ok := system.(LauncherStarter); member.Role == RoleLauncher && !(ok && with.LaunchersMayStart()) {
		return Ref{}, false
	}
	return member.Ref, true
}

// GangsOf reads the job's object, and returns which of its pods have to start together. The errors are those of Registry.Get.
func (s Starts) GangsOf(ctx context.Context, ref Ref) (StartGangs, error) {
	job, err := s.registry.Get(ctx, ref)
	if err != nil {
		return StartGangs{}, err
	}
	starter, ok := s.registry.byName[job.System].(Starter)
	if !ok {
		return StartGangs{}, nil
	}
	return starter.StartsWith(job)
}

// Divided is implemented by systems whose jobs have parts that do not need each other.
type Divided interface {
	// UnitOf returns the name of the pod's unit: those pods of its job that save their work, and lose it, together. It is the name of the
	// pod if that has nothing in common with others but their controller, and empty if all pods of the job are one unit. The pod is one
	// for which Member returns ok.
	UnitOf(pod *corev1.Pod) string
}

// Grouper is implemented by systems that make an object for each job, without which it is not known how many of its pods start together.
type Grouper interface {
	// Group returns that object as the system would make it for a job that was just submitted, and writes its name on the pods that name
	// it. It is nil for a job without one.
	Group(job Job, pods []*corev1.Pod) (*unstructured.Unstructured, error)
}
