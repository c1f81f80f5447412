// Package supervisor is for jobs that cannot run: those that wait for capacity, and those that were suspended or shrunk.
//
//   - A job waits no longer than its maximum wait, from the creation of the first of its pods that is pending. Then nothing
//     is bought for it any more, it is suspended, and the nodes that were bought for it go back at once. What has become of
//     it then is its owner's to say.
//   - A job that was held for a reclaim is probed: the autoscaler's loop simulates, and where that helps buys for, the pods
//     that the job would have. When they fit nodes that are there and ready, the job is resumed, or grown.
//
// All of it follows from what is written on the jobs, pods and Nodes, so that a new leader goes on where the last one
// stopped. What is kept in memory is only when to look again.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

const (
	// workers is how many things are done at once; most of the time of each is waiting for an API.
	workers = 8
	// lookEvery is how often the jobs that are held are looked at.
	lookEvery = 2 * time.Second
)

// Jobs are the job systems. It is implemented by *jobs.Registry, where it is explained.
type Jobs interface {
	Member(pod *corev1.Pod) jobs.Membership
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	Held() []jobs.Job
	Gang(job jobs.Job, workers int, room jobs.Room) ([]*corev1.Pod, error)
	Suspend(ctx context.Context, job jobs.Job, reason jobs.Reason) error
	Resume(ctx context.Context, job jobs.Job, workers int) error
	Grow(ctx context.Context, job jobs.Job, workers int) error
}

// Pools are where nodes come from. It is implemented by *ess.Provider.
type Pools interface {
	// Releasable says whether the node is of a pool, lives, and is not being reclaimed.
	Releasable(node *corev1.Node) bool
	// Room is how many pods that ask for as much as this one the pools could hold at their maximum.
	Room(pod *corev1.Pod) int
	// Release gives back the node's instance at once. The error wraps ess.ErrBelowMinimum where its pool needs it.
	Release(node *corev1.Node) error
}

// Config is what a Supervisor is made of. All but Wake is required.
type Config struct {
	Jobs      Jobs
	Pools     Pools
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Recorder  record.EventRecorder
	Clock     clock.WithTicker
	// Wake asks for a loop, because there is something new to simulate.
	Wake func()
}

// Supervisor implements podlist.Supervision. It is safe for concurrent use.
type Supervisor struct {
	Config
	pods  cache.SharedIndexInformer
	nodes corelisters.NodeLister
	// quotas are the ResourceQuotas of namespaces.
	quotas corelisters.ResourceQuotaLister
	ready  []cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[task]
	// reads bounds how often jobs are read, so that a reclaim, which has to read them too, comes first.
	reads flowcontrol.RateLimiter

	mu      sync.Mutex
	started time.Time // zero until it runs
	crews   crews
	waits   map[jobs.Ref]*wait
	probes  map[string]*probe // by the String of the Ref
}

var _ podlist.Supervision = (*Supervisor)(nil)

// New makes a supervisor, which knows nothing until it runs. The informers must not have been started.
func New(config Config) (*Supervisor, error) {
	if config.Jobs == nil || config.Pools == nil || config.Client == nil || config.Informers == nil || config.Recorder == nil || config.Clock == nil {
		return nil, errors.New("supervisor: Jobs, Pools, Client, Informers, Recorder and Clock are required")
	}
	if config.Wake == nil {
		config.Wake = func() {}
	}
	nodes, quotas := config.Informers.Core().V1().Nodes(), config.Informers.Core().V1().ResourceQuotas()
	return &Supervisor{
		Config: config,
		pods:   config.Informers.Core().V1().Pods().Informer(),
		nodes:  nodes.Lister(),
		quotas: quotas.Lister(),
		ready:  []cache.InformerSynced{nodes.Informer().HasSynced, quotas.Informer().HasSynced},
		reads:  flowcontrol.NewTokenBucketRateLimiter(readQPS, readQPS),
		crews:  newCrews(config.Jobs.Member),
		waits:  map[jobs.Ref]*wait{},
		probes: map[string]*probe{},
	}, nil
}

// task is something to look at: the wait of a job, a job to be resumed or grown, or a node to be given back.
type task struct {
	kind taskKind
	ref  jobs.Ref
	node string
}

type taskKind int

const (
	taskWait taskKind = iota
	taskRecover
	taskGiveBack
)

// Run supervises until ctx ends. It is to be called once, by the leader, after the informers were started.
func (s *Supervisor) Run(ctx context.Context) error {
	s.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[task](time.Second, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[task]{Name: "supervisor", Clock: s.Clock})
	defer s.queue.ShutDown()
	s.mu.Lock()
	s.started = s.Clock.Now()
	s.mu.Unlock()
	unwatch, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer unwatch()
	if err := s.takeUpNodes(); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	for range workers {
		running.Go(func() {
			for s.next(ctx) {
			}
		})
	}
	running.Go(func() { s.lookOut(ctx) })
	<-ctx.Done()
	s.queue.ShutDown()
	return nil
}

// watch adds the handler here, not in New, so that only the leader has it.
func (s *Supervisor) watch(ctx context.Context) (unwatch func(), err error) {
	handler, err := s.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.podSeen(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { s.podSeen(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if lost, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = lost.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				s.podGone(pod)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	unwatch = func() {
		if err := s.pods.RemoveEventHandler(handler); err != nil {
			klog.FromContext(ctx).Error(err, "Removing the supervisor's handler")
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), append(s.ready, handler.HasSynced)...) {
		unwatch()
		return nil, fmt.Errorf("the caches did not fill: %w", context.Cause(ctx))
	}
	return unwatch, nil
}

func (s *Supervisor) podSeen(pod *corev1.Pod) {
	s.mu.Lock()
	ref, pending := s.crews.put(pod)
	waits := pending && s.waits[ref] == nil
	if waits {
		s.waits[ref] = &wait{}
	}
	s.mu.Unlock()
	if !waits {
		return
	}
	after := time.Duration(0)
	if made := pod.CreationTimestamp.Time; !made.Before(s.started) {
		after = freshTime - s.Clock.Since(made) // most pods have their node before anybody needs to know how long they may wait
	}
	s.queue.AddAfter(task{kind: taskWait, ref: ref}, after)
}

func (s *Supervisor) podGone(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crews.remove(pod)
}

func (s *Supervisor) next(ctx context.Context) bool {
	due, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(due)
	again, err := s.do(ctx, due)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		klog.FromContext(ctx).Error(err, "Will try again", "job", due.ref, "node", due.node)
		s.queue.AddRateLimited(due)
	default:
		s.queue.Forget(due)
		if again > 0 {
			s.queue.AddAfter(due, again)
		}
	}
	return true
}

// do returns after how long to look again; never where that is zero.
func (s *Supervisor) do(ctx context.Context, due task) (again time.Duration, err error) {
	switch due.kind {
	case taskWait:
		return s.syncWait(ctx, due.ref)
	case taskRecover:
		return 0, s.recover(ctx, due.ref)
	default:
		return s.giveBack(ctx, due.node)
	}
}

// lookOut looks at the jobs that are held, again and again.
func (s *Supervisor) lookOut(ctx context.Context) {
	ticker := s.Clock.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		s.look()
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}
