// Package reclaim carries a Node from the notice that its spot instance will be taken back to the removal of the Node:
//
//	notice → mark (taint, cordon, label, deadline: one patch) → drain → gone
//	                                    warn → word → decide ↗
//
// The first line is for each Node. The second is for each job, over all its Nodes that are reclaimed: its pods are asked
// for a checkpoint and heard out, it is shrunk or suspended, and only then drained.
//
// A notice that is withdrawn ends in the Node being given back. One that was pushed evicts nothing until another source
// confirms it; see confirm.go. Every step is idempotent and follows from what is
// written on the Node, so that a new leader goes on where the last one was killed.
//
// The rule for whom this is done is "every Node of this cluster whose instance is being recycled", in a pool of ours or
// not: the instance dies in either case, and its pods are better off warned. On-demand instances are never recycled, and
// never touched. Instances without a Node are only
// remembered, and taken up when their Node appears.
package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/problems"
)

const (
	// DefaultPollInterval is how often the cloud is asked for instances that are being recycled, on an ordinary day.
	DefaultPollInterval = 2 * time.Second
	// DefaultNoticePeriod is how long an instance is taken to live from the first sight of its notice, where no source
	// states the deadline. Alibaba Cloud releases a spot instance five minutes after it enters Recycling.
	DefaultNoticePeriod = 5 * time.Minute

	markWorkers  = 16
	drainWorkers = 32
)

// Cloud is what the controller asks of Alibaba Cloud. It is implemented by *client.Client of package alicloud/client.
type Cloud interface {
	// RecyclingInstances lists the instances of the region that are about to be released.
	RecyclingInstances(ctx context.Context) ([]alicloud.Instance, error)
	// Instances leaves out the ids that no longer exist.
	Instances(ctx context.Context, ids []string) ([]alicloud.Instance, error)
}

// Config is what a Controller is made of. Cloud, Client, Informers and Recorder are required.
type Config struct {
	Cloud Cloud
	// Client evicts and deletes pods and deletes Nodes. See Clients for its budget.
	Client kubernetes.Interface
	// MarkClient patches Nodes. It has a budget of its own, lest the marks of a mass reclaim wait behind evictions.
	// Default: Client.
	MarkClient kubernetes.Interface
	// Informers are those that the rest of the process uses. New adds its indexes to them, Run its handlers; neither
	// starts them: that is done after New.
	Informers informers.SharedInformerFactory
	Recorder  record.EventRecorder
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// Region is that of Cloud. Nodes of other regions are none of ours; empty means that all are in it.
	Region string
	// PollInterval is how often Cloud is asked on an ordinary day; see pause. It defaults to DefaultPollInterval.
	PollInterval time.Duration
	// NoticePeriod is how long an instance is taken to live from the first word of its release, where no source states
	// the deadline. It defaults to DefaultNoticePeriod.
	NoticePeriod time.Duration
	// MaxUnconfirmed is of how many Nodes a pushed notice is acted upon that no other source has confirmed, as a number or as
	// a share of the spot Nodes, rounded up. It defaults to DefaultMaxUnconfirmed.
	MaxUnconfirmed *intstr.IntOrString
	// OnNotice is called when Doomed has got larger by an instance with a Node, once all such Nodes are marked, or a few
	// seconds have passed: the time to look for replacements. It is never called concurrently with itself, and must not
	// block. Optional.
	OnNotice func()
	// Lists says whether an instance was in a scaling group at the last look. Where it is nil, none is: ECS is asked about
	// each one that was given back until it is gone.
	Lists func(instanceID string) bool
	// Jobs knows which pods belong together, and how to speak to their systems. Where it is nil, every pod is on its own.
	Jobs Jobs
	// Replaced says whether what is on the Node has a place elsewhere, there or bought, so that the drain may begin. It must
	// be cheap. Where it is nil, nothing is waited for.
	Replaced func(node string) bool
	// Problems takes whether the cloud can be asked for notices. Optional.
	Problems *problems.Board
	// ReplaceWait is how long after its notice a Node's drain waits for Replaced at most. It defaults to DefaultReplaceWait.
	ReplaceWait time.Duration
}

// Controller takes reclaims from notice to end. Only the leader may run it. Its exported methods are safe for concurrent
// use.
type Controller struct {
	Config

	nodeInformer, podInformer cache.SharedIndexInformer

	// marks and drains hold names of Nodes. They are two queues so that no mark waits for a drain.
	marks, drains workqueue.TypedRateLimitingInterface[string]
	// awaited are the Nodes that are to say from whom an acknowledgement is awaited.
	awaited    workqueue.TypedRateLimitingInterface[string]
	handshakes handshakes
	// inFlight is held for each pod that the API server is being asked after.
	inFlight *semaphore.Weighted
	// hearing is how many sources are just queueing marks.
	hearing atomic.Int32
	// due are the Nodes that are not marked yet.
	due due
	// news is that there are notices for which OnNotice was not called yet; it is called with notifying held.
	news      atomic.Bool
	notifying sync.Mutex
	// started is when this process began to listen.
	started time.Time
	spots   spotCount

	mu sync.Mutex
	// notices are those heard by this process, by instance.
	notices map[string]hearsay
	// removed are the instances that were given back, until they are known to be gone with their Nodes.
	removed sets.Set[string]
	// endings are what the cloud says of doomed instances that it no longer lists as recycling.
	endings map[string]ending
	// stopped are the reclaiming instances of which it was told that they were stopped instead of released.
	stopped sets.Set[string]
	// denied is when ECS last showed a doomed instance running and unlocked.
	denied map[string]time.Time
	// held are the deadlines of pushed notices that are not acted upon, by instance.
	held map[string]time.Time
}

// New makes a controller. The error names what is missing or makes no sense, or the index that could not be added.
func New(config Config) (*Controller, error) {
	if config.Cloud == nil || config.Client == nil || config.Informers == nil || config.Recorder == nil {
		return nil, errors.New("reclaim: Cloud, Client, Informers and Recorder are required")
	}
	config.setDefaults()
	if err := checkMaxUnconfirmed(config.MaxUnconfirmed); err != nil {
		return nil, fmt.Errorf("reclaim: MaxUnconfirmed: %w", err)
	}
	c := &Controller{
		Config:   config,
		marks:    newQueueUpTo[string]("reclaim_marks", config.Clock, markRetryMost),
		drains:   newQueue[string]("reclaim_drains", config.Clock),
		awaited:  newQueueUpTo[string]("reclaim_awaited", config.Clock, markRetryMost),
		inFlight: semaphore.NewWeighted(podsInFlight),
		notices:  map[string]hearsay{},
		endings:  map[string]ending{},
		removed:  sets.New[string](),
		stopped:  sets.New[string](),
		denied:   map[string]time.Time{},
		held:     map[string]time.Time{},
	}
	c.handshakes.init(config.Clock)
	if err := c.addIndexes(); err != nil {
		return nil, fmt.Errorf("reclaim: %w", err)
	}
	return c, nil
}

func (c *Config) setDefaults() {
	if c.MarkClient == nil {
		c.MarkClient = c.Client
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.PollInterval <= 0 {
		c.PollInterval = DefaultPollInterval
	}
	if c.NoticePeriod <= 0 {
		c.NoticePeriod = DefaultNoticePeriod
	}
	if c.MaxUnconfirmed == nil {
		c.MaxUnconfirmed = &DefaultMaxUnconfirmed
	}
	if c.OnNotice == nil {
		c.OnNotice = func() {}
	}
	if c.Lists == nil {
		c.Lists = func(string) bool { return false }
	}
	if c.Jobs == nil {
		c.Jobs = soloJobs{}
	}
	if c.Replaced == nil {
		c.Replaced = func(string) bool { return true }
	}
	if c.ReplaceWait <= 0 {
		c.ReplaceWait = DefaultReplaceWait
	}
}

// Run polls and works until ctx ends, then waits for its workers. The error is that of the informers: their caches never
// filled, or were stopped already.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("reclaim"))
	c.started = c.Clock.Now()
	var workers sync.WaitGroup
	defer func() {
		c.marks.ShutDown()
		c.drains.ShutDown()
		c.awaited.ShutDown()
		c.handshakes.queue.ShutDown()
		workers.Wait()
		c.handshakes.asking.Wait()
	}()
	unwatch, err := c.watch(ctx)
	if err != nil {
		return fmt.Errorf("reclaim: watching nodes and pods: %w", err)
	}
	defer unwatch()
	for range markWorkers {
		workers.Go(func() { work(ctx, c.marks, c.syncMark) })
	}
	for range drainWorkers {
		workers.Go(func() { work(ctx, c.drains, c.syncDrain) })
	}
	for range awaitedWorkers {
		workers.Go(func() { work(ctx, c.awaited, c.syncAwaited) })
	}
	for range jobWorkers {
		workers.Go(func() { work(ctx, c.handshakes.queue, c.syncJob) })
	}
	c.pollUntilDone(ctx)
	return nil
}

// Doomed are the ids of the instances that have a notice, heard or written on their Node. The set is the caller's.
func (c *Controller) Doomed() sets.Set[string] {
	c.mu.Lock()
	doomed := sets.KeySet(c.notices)
	c.mu.Unlock()
	for _, node := range c.markedNodes() {
		if !isOnDemand(node) {
			doomed.Insert(c.instanceID(node))
		}
	}
	return doomed
}

func newQueue[T comparable](name string, clk clock.WithTicker) workqueue.TypedRateLimitingInterface[T] {
	return newQueueUpTo[T](name, clk, retryMost)
}

func newQueueUpTo[T comparable](name string, clk clock.WithTicker, most time.Duration) workqueue.TypedRateLimitingInterface[T] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[T](retryFirst, most),
		workqueue.TypedRateLimitingQueueConfig[T]{Name: name, Clock: clk})
}

// Retries start fast, since a notice leaves minutes, and never get rarer than this. The marks' budget bounds theirs.
const (
	retryFirst    = 100 * time.Millisecond
	retryMost     = 10 * time.Second
	markRetryMost = 2 * time.Second
)

// work takes Nodes or jobs from the queue until it is shut down.
func work[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T], sync func(context.Context, T) error) {
	for {
		item, shutdown := queue.Get()
		if shutdown {
			return
		}
		if err := sync(ctx, item); err == nil {
			queue.Forget(item)
		} else if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Will try again", "item", item)
			queue.AddRateLimited(item)
		}
		queue.Done(item)
	}
}
