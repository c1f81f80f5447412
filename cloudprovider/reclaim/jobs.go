package reclaim

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// DefaultReplaceWait is how long a drain waits for the replacement to be on its way.
const DefaultReplaceWait = 30 * time.Second

const jobWorkers = 32

// Jobs is what the controller asks of the job systems. It is implemented by *jobs.Registry.
type Jobs interface {
	// Member is called for every pod of the cluster whenever it changes, and goes by the pod alone.
	Member(pod *corev1.Pod) jobs.Membership
	// Get reads the job's object. The error wraps jobs.ErrNoObject where it has none.
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	Warn(ctx context.Context, job jobs.Job, warning jobs.Warning) error
	Shrink(ctx context.Context, job jobs.Job, pods []string) error
	Suspend(ctx context.Context, job jobs.Job, reason jobs.Reason) error
}

// soloJobs is for clusters in which no job systems are known.
type soloJobs struct{}

var _ Jobs = soloJobs{}

func (soloJobs) Member(pod *corev1.Pod) jobs.Membership {
	ref := jobs.Ref{System: systemPod, NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}}
	return jobs.Membership{Ref: ref, Role: jobs.RoleWorker}
}

func (soloJobs) Get(_ context.Context, ref jobs.Ref) (jobs.Job, error) {
	return jobs.Job{}, fmt.Errorf("%s: %w", ref, jobs.ErrNoObject)
}

func (soloJobs) Warn(context.Context, jobs.Job, jobs.Warning) error { return jobs.ErrUnsupported }

func (soloJobs) Shrink(context.Context, jobs.Job, []string) error { return jobs.ErrUnsupported }

func (soloJobs) Suspend(context.Context, jobs.Job, jobs.Reason) error { return jobs.ErrUnsupported }

// systemPod is the system of pods that belong to no known one.
const systemPod = "pod"

// handshakes are those with the jobs that lose nodes.
type handshakes struct {
	// queue holds the jobs to look after.
	queue workqueue.TypedRateLimitingInterface[jobs.Ref]
	// asking are the calls to job systems that are under way.
	asking sync.WaitGroup
}

func (h *handshakes) init(clk clock.WithTicker) {
	h.queue = newQueue[jobs.Ref]("reclaim_jobs", clk)
}

// syncJob takes one step with a job.
func (c *Controller) syncJob(context.Context, jobs.Ref) error { return nil }
