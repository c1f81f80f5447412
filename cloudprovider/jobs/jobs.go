// Package jobs is the framework for training jobs: which pods belong to which job, how many workers a job can lose, and how
// it is shrunk, suspended, resumed and grown.
//
// Each job system has a package of its own below this one, which implements System and those of the optional interfaces
// that fit it: Suspender, Resizer, Grower, Stopper, HostsRefresher, Child, Starter, LauncherStarter, Grouper and Divided. Package systems lists
// them all, and the Registry asks them. The Go modules of the job systems are not imported: their objects are read and patched as
// unstructured data, and a system is off while the API server does not serve its resource.
package jobs

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names a job. It is comparable.
type Ref struct {
	// System is the name of the job's system, such as "pytorchjob".
	System string
	types.NamespacedName
}

// String is "<system>/<namespace>/<name>".
func (r Ref) String() string { return r.System + "/" + r.NamespacedName.String() }

// NewRef returns the Ref of a job.
func NewRef(system, namespace, name string) Ref {
	return Ref{System: system, NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Role says in which order the pods of a job are evicted: workers first, then hosts, then launchers.
type Role string

const (
	// RoleWorker is a rank that the others can do without.
	RoleWorker Role = "worker"
	// RoleHost is the pod at which the workers meet: the rendezvous host, master, chief or head.
	RoleHost Role = "host"
	// RoleLauncher is the pod whose end is the end of the job.
	RoleLauncher Role = "launcher"
)

// RoleOf returns the role of a pod from a name that the user chose for a group of pods, such as a task of Volcano.
func RoleOf(name string) Role {
	switch strings.ToLower(name) {
	case "launcher", "mpimaster", "driver":
		return RoleLauncher
	case "master", "chief", "head", "ps", "pserver", "scheduler":
		return RoleHost
	}
	return RoleWorker
}

// Membership is the job that a pod belongs to, and its role there.
type Membership struct {
	Ref
	Role Role
}

// Recovery says with how many workers a suspended job is resumed.
type Recovery string

const (
	// RecoverFull waits for capacity for all workers.
	RecoverFull Recovery = "full"
	// RecoverDynamic resumes with the minimum or more, and grows later.
	RecoverDynamic Recovery = "dynamic"
)

// Job is what the job's object says at one moment.
type Job struct {
	Ref
	UID types.UID
	// Min and Max bound the number of workers with which the job can train; Replicas is how many it asks for. All three are
	// equal for a job that is not elastic. Hosts count as workers where they train, launchers never do.
	Min, Max, Replicas int
	// Floor is the least to which annotations may lower Min: with fewer workers the system would fail the job, or not start it, whatever its
	// training code can do.
	Floor int
	// NeedsHosts is true if the job cannot go on once it loses one of its hosts, however many workers survive.
	NeedsHosts bool
	// Suspended is true whoever suspended the job, Finished when it has ended for good.
	Suspended, Finished bool
	// StopRequested is true from the start of Registry.Stop until the job is restarted or is not held any more. Stopped is true once the
	// job has ended for that, which its system shows as a failure: it is to be suspended, and is not Finished.
	StopRequested, Stopped bool
	// Recovery and MaxWait are what the annotations of the job ask for. MaxWait is zero for a job that may wait for ever.
	Recovery Recovery
	MaxWait  time.Duration
	// Ignored is which of the annotations cannot be read, nil if all can.
	Ignored error
	// Parts are other Refs that pods of the job may have, such as that of the RayCluster of a RayJob.
	Parts []Ref
	// Object is the job's object and must not be changed. It is nil for pods that belong to no known system.
	Object *unstructured.Unstructured
	// Problem is why a job that is held, or is to grow, cannot be read. The job has no more than its Ref, UID and Object then, and is to be
	// left as it is. Of a job that can be read it is why the job does not grow although it is to. It is nil for others.
	Problem error
}

// Refs returns the job's own Ref and those of its parts.
func (j Job) Refs() []Ref { return append([]Ref{j.Ref}, j.Parts...) }

// Warning announces to a job that it is about to lose nodes.
type Warning struct {
	// ID is the id of the request for a checkpoint. The job acknowledges with the same id.
	ID string
	// Deadline is when the first of the nodes is released.
	Deadline time.Time
	// IsMove is true if the job moves to spot instances until then, or stays where it is.
	IsMove bool
}

// HoldReason says why a job is suspended. It is written on the job.
type HoldReason string

const (
	// HeldForReclaim: too few workers would survive a reclaim. The job is resumed when there is capacity.
	HeldForReclaim HoldReason = "reclaim"
	// HeldForMaxWait: capacity did not come within the job's maximum wait. Only its owner resumes it.
	HeldForMaxWait HoldReason = "max-wait"
)

// ControllerOf returns the controller of an object if that is of the given API group and kind, else nil.
func ControllerOf(object metav1.Object, group, kind string) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(object)
	if owner == nil || owner.Kind != kind {
		return nil
	}
	if version, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || version.Group != group {
		return nil
	}
	return owner
}

// OwnerOf returns the owner of an object that is of the given API group and kind, its controller or not, else nil.
func OwnerOf(object metav1.Object, group, kind string) *metav1.OwnerReference {
	owners := object.GetOwnerReferences()
	for i := range owners {
		if version, err := schema.ParseGroupVersion(owners[i].APIVersion); err == nil && version.Group == group && owners[i].Kind == kind {
			return &owners[i]
		}
	}
	return nil
}

// IsControlledBy returns whether the controller of an object is the one with the given API group, kind and name.
func IsControlledBy(object metav1.Object, group, kind, name string) bool {
	owner := ControllerOf(object, group, kind)
	return owner != nil && owner.Name == name
}
