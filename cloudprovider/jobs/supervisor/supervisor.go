// Package supervisor looks after jobs that cannot run: those that wait for capacity, and those that were suspended or shrunk.
//
//   - A job waits no longer than its maximum wait, from the creation of the first of its pods that is pending. Then nothing
//     is bought for it any more, it is suspended, and the nodes that were bought for it are given back at once. Its owner
//     decides what becomes of it then.
//   - For a job that was held for a reclaim, the autoscaler's loop simulates the pods that the job would have, and buys what
//     they need. When they fit on nodes that exist and are ready, the job is resumed, or grown.
//   - A job whose owner wants that gets more workers than it asks for, up to its maximum, in the same way.
//
// All of it follows from what is written on the jobs, pods and Nodes, so that a new leader goes on where the last one
// stopped. Memory holds only when to look again.
//
// A Supervisor wires three parts, each of which owns its state: waits has how long jobs have waited, heldJobs what is tried for jobs
// that are held, and giveBack the nodes to be given back. Each has a queue with workers of its own: reads of jobs that wait are
// limited, and the cloud may take minutes to accept a removal.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	quotacore "k8s.io/kubernetes/pkg/quota/v1/evaluator/core"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/jobs/queues"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// workers is how many tasks are done at once; most of the time of each is waiting for an API.
	workers = 8
	// waitWorkers is how many waits of jobs are looked at at once. Each waits its turn to read the job.
	waitWorkers = 4
	// giveBackWorkers is how many nodes are given back at once. Those that wait for the cloud together are removed by one call.
	giveBackWorkers = 100
	// slowestRetry is how long the next try waits at most of what fails again and again.
	slowestRetry = time.Minute
	// lookEvery is how often the held jobs are looked at.
	lookEvery = 2 * time.Second
)

// Jobs are the job systems. It is implemented by *jobs.Registry, where it is explained.
type Jobs interface {
	Member(pod *corev1.Pod) jobs.Membership
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	HasSynced() bool
	Held(ctx context.Context) []jobs.Job
	Growing() []jobs.Job
	Gang(job jobs.Job, workers int, most jobs.MostPods) ([]*corev1.Pod, error)
	Suspend(ctx context.Context, job jobs.Job, reason jobs.HoldReason) error
	Resume(ctx context.Context, job jobs.Job, workers int) error
	Grow(ctx context.Context, job jobs.Job, workers int) error
	GrowBeyond(ctx context.Context, job jobs.Job, workers int) error
	Unhold(ctx context.Context, job jobs.Job) error
	CancelStaleShrinks(ctx context.Context, ref jobs.Ref) error
}

// Queues are the queues of Kueue that jobs are in. It is implemented by jobs.Queues, where it is explained.
type Queues interface {
	Quotas(ctx context.Context) (*queues.Quotas, error)
	Return(ctx context.Context, job jobs.Job) error
}

// Pools are where nodes come from. It is implemented by *ess.Provider.
type Pools interface {
	// FirstRead returns a channel that is closed once the pools have been read. Until then they know no node.
	FirstRead() <-chan struct{}
	// PoolID returns the pool of the node, and false for a node of no pool.
	PoolID(node *corev1.Node) (id string, ours bool)
	// MayGiveBack returns whether the node's instance is in a pool and may be given back: it serves, nobody has told ESS to keep it, and no
	// other Node claims to be the same instance.
	MayGiveBack(node *corev1.Node) bool
	// MostPods is how many pods that ask for as much as this one the pools could hold at their maximum.
	MostPods(pod *corev1.Pod) int
	// IsReclaiming returns whether the node's instance is being reclaimed.
	IsReclaiming(node *corev1.Node) bool
	// GiveBack gives back the node's instance at once, and does nothing to one that is being removed. ess.IsRefused tells an error that
	// says that the instance has to stay from one of an attempt that failed.
	GiveBack(node *corev1.Node) error
}

// Config is what a Supervisor is made of. All but Wake and MaxGrowth is required.
type Config struct {
	Jobs      Jobs
	Queues    Queues
	Pools     Pools
	Pods      *podindex.Index
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	Recorder  record.EventRecorder
	Clock     clock.WithTicker
	// MaxGrowth is the most that the operator allows of growth, jobs.GrowBuy where it is empty.
	MaxGrowth jobs.Growth
	// Wake asks for a loop, because there is something new to simulate.
	Wake func()
}

// Supervisor implements podlist.Supervision. It is safe for concurrent use.
type Supervisor struct {
	clock    clock.WithTicker
	pools    Pools
	informer cache.SharedIndexInformer // of pods
	synced   []cache.InformerSynced

	jobs     Jobs
	waits    *waits
	held     *heldJobs
	giveBack *giveBack
}

var _ podlist.Supervision = (*Supervisor)(nil)

// New returns a Supervisor, which knows nothing until it runs. The informers must not have been started.
func New(config Config) (*Supervisor, error) {
	if config.Jobs == nil || config.Queues == nil || config.Pools == nil || config.Pods == nil || config.Client == nil || config.Informers == nil || config.Recorder == nil || config.Clock == nil {
		return nil, errors.New("supervisor: Jobs, Queues, Pools, Pods, Client, Informers, Recorder and Clock are required")
	}
	if config.Wake == nil {
		config.Wake = func() {}
	}
	core := config.Informers.Core().V1()
	nodes, quotas := core.Nodes(), core.ResourceQuotas()
	pods := podCounter{index: config.Pods, member: config.Jobs.Member}
	giveBack := &giveBack{
		pods: pods, nodes: nodes.Lister(), pools: config.Pools, client: config.Client, recorder: config.Recorder, clock: config.Clock,
		queue: work.NewQueue[string]("give_back", config.Clock, slowestRetry),
	}
	held := &heldJobs{
		jobs: config.Jobs, queues: config.Queues, pods: pods, nodes: nodes.Lister(), recorder: config.Recorder, clock: config.Clock, wake: config.Wake,
		queue:     work.NewQueue[task]("supervisor", config.Clock, slowestRetry),
		maxGrowth: config.MaxGrowth,
		gangs: &gangMaker{
			jobs: config.Jobs, pools: config.Pools, nodes: nodes.Lister(), quotas: quotas.Lister(), evaluator: quotacore.NewPodEvaluator(nil, config.Clock),
		},
		byRef: heldSet{},
	}
	return &Supervisor{
		clock: config.Clock, jobs: config.Jobs, pools: config.Pools, informer: core.Pods().Informer(),
		synced: []cache.InformerSynced{nodes.Informer().HasSynced, quotas.Informer().HasSynced},
		held:   held, giveBack: giveBack,
		waits: &waits{
			jobs: config.Jobs, pods: pods, giveBack: giveBack, held: held, recorder: config.Recorder, clock: config.Clock,
			queue: work.NewQueue[jobs.Ref]("waits", config.Clock, slowestRetry),
			reads: flowcontrol.NewTokenBucketRateLimiter(readQPS, readQPS), // its Wait goes by the real clock, whichever it is given
			byJob: map[jobs.Ref]*jobWait{}, cordoned: map[jobs.Ref]sets.Set[string]{},
		},
	}, nil
}

// Run supervises until ctx ends. It begins once the pools have been read: there may be room in them for jobs, and nodes to be given back. It is
// to be called once, by the leader, after the informers were started.
func (s *Supervisor) Run(ctx context.Context) error {
	defer s.shutDown()
	select {
	case <-ctx.Done():
		return nil
	case <-s.pools.FirstRead():
	}
	s.waits.start()
	stopWatching, err := s.watch(ctx)
	if err != nil {
		return err
	}
	defer stopWatching()
	if err := s.giveBack.resume(); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	serve := func(workers int, do func()) {
		for range workers {
			running.Go(do)
		}
	}
	serve(workers, func() { s.held.queue.WorkAgain(ctx, s.held.sync) })
	serve(waitWorkers, func() { s.waits.queue.WorkAgain(ctx, s.waits.sync) })
	serve(giveBackWorkers, func() { s.giveBack.queue.WorkAgain(ctx, s.giveBack.sync) })
	running.Go(func() { work.Every(ctx, s.clock, lookEvery, func() { s.held.look(ctx) }) })
	<-ctx.Done()
	s.shutDown()
	return nil
}

func (s *Supervisor) shutDown() {
	s.held.queue.ShutDown()
	s.waits.queue.ShutDown()
	s.giveBack.queue.ShutDown()
}

// watch adds the handler here, not in New, so that only the leader has it.
func (s *Supervisor) watch(ctx context.Context) (stop func(), err error) {
	handler, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.onPod(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { s.onPod(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) {
			if deleted, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = deleted.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				s.held.podDeleted(s.jobs.Member(pod).Ref)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	stop = func() {
		if err := s.informer.RemoveEventHandler(handler); err != nil {
			klog.FromContext(ctx).Error(err, "Could not remove the supervisor's event handler")
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), append(s.synced, handler.HasSynced)...) {
		stop()
		return nil, fmt.Errorf("the caches did not fill: %w", context.Cause(ctx))
	}
	return stop, nil
}

func (s *Supervisor) onPod(pod *corev1.Pod) {
	if isPending(pod) && !kubepod.IsPodTerminal(pod) && !podindex.BelongsToNode(pod) {
		s.waits.add(s.jobs.Member(pod).Ref, pod)
	}
}

// HasMaxWait returns whether the job waits for capacity for so long only as its owner allows, as far as that was read: the job of the pod, or the held
// one of that Ref, if it is not empty.
func (s *Supervisor) HasMaxWait(pod *corev1.Pod, held string) bool {
	if held != "" {
		return s.held.hasMaxWait(held)
	}
	return s.waits.hasLimit(pod)
}

// Abandoned returns whether the maximum wait of the pod's job is over.
func (s *Supervisor) Abandoned(pod *corev1.Pod) bool { return s.waits.abandoned(pod) }

// Returning returns the gangs for which capacity is looked for.
func (s *Supervisor) Returning() []podlist.StandInGang { return s.held.returning() }

// Fits has a job resumed or grown if enough of its gang would run at once.
func (s *Supervisor) Fits(ref string, found podlist.Placement) { s.held.fits(ref, found) }
