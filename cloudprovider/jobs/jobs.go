// Package jobs knows the elastic training systems: which pods are whose, what a job can lose, and how each system is
// warned, shrunk, suspended, resumed and grown. There is one file per system. None of them is imported: their objects are
// read and changed as unstructured data, and an adapter is off while the definition of its resource is not installed.
package jobs

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Ref names a job. It is comparable.
type Ref struct {
	// System is that of the adapter, such as "pytorchjob".
	System string
	types.NamespacedName
}

// String is "<system>/<namespace>/<name>".
func (r Ref) String() string { return r.System + "/" + r.NamespacedName.String() }

// Role says when a pod may go: workers first, then hosts, then launchers.
type Role string

const (
	// RoleWorker is a rank that the others can do without.
	RoleWorker Role = "worker"
	// RoleHost is what the workers meet at: the rendezvous host, master, chief or head.
	RoleHost Role = "host"
	// RoleLauncher is the pod whose end is the job's end.
	RoleLauncher Role = "launcher"
)

// Membership is a pod's place in a job.
type Membership struct {
	Ref
	Role Role
}

// Recovery says with how many workers a suspended job comes back.
type Recovery string

const (
	// RecoverFull waits for the whole gang.
	RecoverFull Recovery = "full"
	// RecoverDynamic is content with the minimum, and grows later.
	RecoverDynamic Recovery = "dynamic"
)

// Job is what its object says at one moment.
type Job struct {
	Ref
	UID types.UID
	// Min and Max bound the number of workers with which the job can train; Replicas is how many it asks for. All three are
	// equal for a job that is not elastic. Hosts count as workers where they train, launchers never do.
	Min, Max, Replicas int
	// Suspended is true whoever suspended it, Finished when it has ended for good.
	Suspended, Finished bool
	// ToldToStop is true from when Registry.Stop began until the marks are taken off again, and Stopped once the job has ended
	// for that, as a failure: it is to be suspended, and is not Finished.
	ToldToStop, Stopped bool
	// Recovery and MaxWait are what the annotations of the job ask for. MaxWait is zero where the job may wait for ever.
	Recovery Recovery
	MaxWait  time.Duration
	// Parts are the other Refs that pods of the job may have: that of the RayCluster of a RayJob.
	Parts []Ref
	// Object is the job's, never to be changed; nil for pods that belong to no known system.
	Object *unstructured.Unstructured
}

// Warning is the word to a job that it is about to lose nodes.
type Warning struct {
	// ID is that of the request for a checkpoint, answered by the same id.
	ID string
	// Deadline is when the first of the nodes is released.
	Deadline time.Time
}

// Reason says why a job is suspended. It is written on the job.
type Reason string

const (
	// ReasonReclaim: too few workers would survive a reclaim. The job is resumed when it can be.
	ReasonReclaim Reason = "reclaim"
	// ReasonMaxWait: capacity did not come within its maximum wait. The job is left to its owner.
	ReasonMaxWait Reason = "max-wait"
)

var (
	// ErrUnsupported is returned for what a system cannot do, or what is not ours to do to this job.
	ErrUnsupported = errors.New("not supported by the job's system")
	// ErrNoObject is returned for jobs without an object: it is gone, its definition is not installed, or the pods belong to no
	// known system.
	ErrNoObject = errors.New("the job has no object")
)

// Room is for how many pods like this one there can be a place at most: a bound that may be too high, and never is too low.
type Room func(pod *corev1.Pod) int

// Adapter is one system. Member, Read and Gang are pure; the others change the cluster, are idempotent, and may be
// called again by a new leader after any of their steps. They return ErrUnchanged where nothing is to do, and a BusyError
// where they are to be called again. All are safe for concurrent use.
type Adapter interface {
	// System is the lower-case name used in Refs and metrics.
	System() string
	// Resource is that of the job's object, Kind its kind.
	Resource() schema.GroupVersionResource
	Kind() string
	// Member goes by the pod's labels and owners alone.
	Member(pod *corev1.Pod) (Membership, bool)
	// Read fails for fields that are missing or malformed, and names them.
	Read(object *unstructured.Unstructured) (Job, error)
	// Gang returns pods as the job would have them with so many workers, launcher included, for a simulation. They have
	// names and labels but no UID, and are nobody's. The error is a TooManyPodsError where there is no room for them.
	Gang(job Job, workers int, room Room) ([]*corev1.Pod, error)
	// Warn does what the system needs beside the annotations that all pods of the job get before.
	Warn(ctx context.Context, job Job, warning Warning) error
	// Shrink has the job go on without the named worker pods, before they are evicted. A job that copes with their loss by
	// itself needs nothing, and the call does nothing. The caller has made sure that Min workers survive.
	Shrink(ctx context.Context, job Job, pods []string) error
	// Suspend ends all pods of the job without a failure counted, and notes on the job that it was us, and why.
	Suspend(ctx context.Context, job Job, reason Reason) error
	// Resume undoes Suspend, with so many workers where the system can choose.
	Resume(ctx context.Context, job Job, workers int) error
	// Grow brings a job that was shrunk to so many workers. A job that grows by itself needs nothing.
	Grow(ctx context.Context, job Job, workers int) error
}
