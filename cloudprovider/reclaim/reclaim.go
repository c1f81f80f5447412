// Package reclaim carries a Node from the notice that its spot instance will be reclaimed to the deletion of the Node.
//
// The parts, each with its own state. This package has the queues of marks and of drains, handshake those of jobs and of awaited
// acknowledgements:
//
//	poll, push, fault     sources of notices: ECS is polled, events are pushed, conditions say that Nodes are faulty
//	move                  the source of notices by which jobs move to spot instances
//	giveback              gives back the instances of drained Nodes that nobody takes away
//	notice                the notices, and the sources that write on Nodes; passive, and also read by packages below
//	drill                 says when a rehearsal is over
//	mark                  puts the marks on Nodes, takes them off, deletes Nodes
//	handshake             prepares the jobs that lose Nodes
//	pace                  how quickly job systems end suspended jobs
//	drain                 evicts the pods that the handshakes let go
//	cluster               Nodes and pods, from the informers
//	nodepatch, events     patches of Nodes, and Events
//	share                 bounds that are a number or a share
//
// This package wires them by queues of package cloudprovider/work, except push, which replicas that do not lead serve, too. A notice takes this way:
//
//	source → notice → (queue of marks) mark → Node → informer
//	       → (queue of jobs) handshake → call to the job's system
//	       → (queue of drains) drain → eviction
//
// Every step is idempotent and follows from what is written on Nodes and pods, so a new leader goes on where the last one was
// killed.
//
// All Nodes of this cluster and region are dealt with whose instance is reclaimed, whether they are in a pool or not: the
// instance is released in either case, and its pods are better off warned. On-demand instances are never reclaimed, and never
// touched unless they are faulty or their jobs are to move to spot ones. Instances without a Node are only remembered, and dealt with when their Node appears.
package reclaim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/drain"
	"gpu-spot-autoscaler/cloudprovider/reclaim/drill"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/fault"
	"gpu-spot-autoscaler/cloudprovider/reclaim/handshake"
	"gpu-spot-autoscaler/cloudprovider/reclaim/mark"
	"gpu-spot-autoscaler/cloudprovider/reclaim/move"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/poll"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	markWorkers  = 16
	drainWorkers = 32

	// These are how many requests for pods are made at once, as many as an API server answers well within their time. Warnings, and the
	// patches that untrack pods, share theirs with no others, because jobs need time to save their work; nor do deletions, which begin
	// when there is little time or when an instance is gone.
	warningsInFlight, evictionsInFlight, deletionsInFlight = 48, 48, 64

	// Retries never get rarer than this. The rate limit of the client bounds those of marks.
	slowestMarkRetry  = 2 * time.Second
	slowestDrainRetry = 10 * time.Second
)

// Config is what a Controller is made of. Cluster, Notices, Removals, Cloud, Client, Recorder and Jobs are required.
type Config struct {
	Cluster  *cluster.Cluster
	Notices  *notice.Store
	Removals *notice.Removals
	Cloud    poll.Cloud
	Jobs     handshake.Jobs
	// Client annotates, evicts and deletes pods, notes on Nodes how their drain went, and deletes Nodes. See Clients for its rate limit.
	Client kubernetes.Interface
	// MarkClient marks Nodes, and writes from whom acknowledgements are awaited. It has a rate limit of its own, so that the marks of
	// a mass reclaim do not wait behind evictions. It defaults to Client.
	MarkClient kubernetes.Interface
	Recorder   record.EventRecorder
	// Clock defaults to the real one.
	Clock clock.WithTicker
	// PollInterval is how often ECS is polled on an ordinary day. It defaults to poll.DefaultInterval.
	PollInterval time.Duration
	// OnNotice is called when further instances with a Node have a notice, once all such Nodes are marked or some seconds have
	// passed: then replacements are to be bought. It may be called concurrently, and must not block. Optional.
	OnNotice func()
	// Replaced returns whether there is a place elsewhere, existing or bought, for what is on the Node, so that the drain may
	// begin. It must be cheap. Without it nothing is waited for.
	Replaced func(node string) bool
	// ReplacementReady returns whether that place is on nodes that are ready. With it the drain waits for that, too, as long as the
	// deadline allows. It must be cheap. Optional.
	ReplacementReady func(node string) bool
	// MovesReady returns whether there is a place on spot instances that are ready now for what is on the Node, whose jobs are to move. It must be
	// cheap. Without it no job moves.
	MovesReady func(node string) bool
	// ReplaceWait is for how long after its notice the drain of a Node waits for Replaced at most. It defaults to
	// handshake.DefaultReplaceWait.
	ReplaceWait time.Duration
	// Saved is told of each job that has acknowledged that its work is saved, with its pods, or those of the unit that was asked, when they were asked,
	// and until when the work is saved. It may be told again. It must not block. Optional.
	Saved func(job jobs.Ref, pods []*corev1.Pod, asked, at time.Time)
	// PodsPerSecond is how many pods can be asked and evicted in a second: see RateLimits. A reclaim of more than that allows in time does not wait
	// for ReplacementReady. Zero is no bound.
	PodsPerSecond float64
	// Faults are the conditions of Nodes that are faults.
	Faults fault.Settings
	// Pools lists instances, and gives back those of faulty Nodes. Without it no Node is of a pool, none is faulty, and ECS is asked about each
	// instance that is being given back, until it is gone. Optional.
	Pools Pools
	// Problems is told whether ECS can be polled. Optional.
	Problems *problems.Board
}

// Pools are implemented by *ess.Provider.
type Pools interface {
	fault.Pools
	poll.Pools
}

// Controller takes reclaims from the notice to the end. Only the leader may run it. Its exported methods are safe for concurrent
// use.
type Controller struct {
	cluster    *cluster.Cluster
	notices    *notice.Store
	removals   *notice.Removals
	poller     *poll.Poller
	faults     *fault.Watcher
	drills     *drill.Watcher
	moves      *move.Watcher
	marker     *mark.Marker
	handshakes *handshake.Controller
	drainer    *drain.Drainer
	listener   *listener

	// marks and drains are those of the listener.
	marks, drains work.Queue[string]
}

// New returns a Controller that has not begun. The error names what is missing.
func New(config Config) (*Controller, error) {
	if config.Cluster == nil || config.Notices == nil || config.Removals == nil || config.Cloud == nil || config.Client == nil ||
		config.Recorder == nil || config.Jobs == nil {
		return nil, errors.New("reclaim: Cluster, Notices, Removals, Cloud, Client, Recorder and Jobs are required")
	}
	config.setDefaults()
	recorder := events.NewRecorder(config.Recorder, config.Clock)
	warnings, evictions, deletions := work.NewRequests(warningsInFlight), work.NewRequests(evictionsInFlight), work.NewRequests(deletionsInFlight)
	backlog := mark.NewBacklog(config.Clock)
	marks := work.NewQueue[string]("reclaim_marks", config.Clock, slowestMarkRetry)
	drains := work.NewRankedQueue("reclaim_drains", config.Clock, slowestDrainRetry, config.rankOfDrain)
	handshakes, rehearsals, moving := handshake.New(handshake.Config{
		Cluster: config.Cluster, Notices: config.Notices, Jobs: config.Jobs, Client: config.Client, NodeClient: config.MarkClient, Requests: warnings,
		Events: recorder, Clock: config.Clock, MarksWaiting: backlog.Waiting, Drains: drains, Replaced: config.Replaced,
		ReplacementReady: config.ReplacementReady, MovesReady: config.MovesReady, ReplaceWait: config.ReplaceWait, Saved: config.Saved,
		PodsPerSecond: config.PodsPerSecond,
	})
	drills := drill.New(drill.Config{
		Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Handshakes: rehearsals, Clock: config.Clock, Sync: marks.Add,
	})
	moves := move.New(move.Config{
		Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Handshakes: moving, Pools: config.Pools, Events: recorder,
		Clock: config.Clock, Sync: marks.Add,
	})
	marker := mark.New(mark.Config{
		Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Drills: drills, Moves: moves, Backlog: backlog, Client: config.MarkClient,
		Deleter: config.Client, Deletions: deletions, Events: recorder, Clock: config.Clock,
	})
	drainer := drain.New(drain.Config{
		Cluster: config.Cluster, Notices: config.Notices, Handshakes: handshakes, Queue: drains, MarksWaiting: backlog.Waiting, Client: config.Client,
		Evictions: evictions, Deletions: deletions, Events: recorder, Clock: config.Clock,
	})
	listener := &listener{
		cluster: config.Cluster, notices: config.Notices, removals: config.Removals, events: recorder, clock: config.Clock, backlog: backlog,
		handshakes: handshakes, drainer: drainer, onNotice: config.OnNotice, marks: marks, drains: drains,
	}
	faults, err := fault.New(fault.Config{
		Settings: config.Faults, Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Listener: listener, Pools: config.Pools,
		Events: recorder, Clock: config.Clock,
	})
	if err != nil {
		return nil, fmt.Errorf("reclaim: %w", err)
	}
	poller := poll.New(poll.Config{
		Cloud: config.Cloud, Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Listener: listener, Events: recorder,
		Clock: config.Clock, Interval: config.PollInterval, Pools: config.Pools, Faults: faults, Problems: config.Problems,
	})
	return &Controller{
		cluster: config.Cluster, notices: config.Notices, removals: config.Removals, poller: poller, faults: faults, drills: drills, moves: moves,
		marker: marker, handshakes: handshakes, drainer: drainer, listener: listener, marks: marks, drains: drains,
	}, nil
}

// rankOfDrain returns the place of the Node in the queue of drains: those of the earliest deadline are drained first.
func (c *Config) rankOfDrain(name string) work.Rank {
	rank := work.Rank{Name: name}
	if node := c.Cluster.Node(name); node != nil {
		n, _ := c.Notices.Of(node)
		rank.Deadline = n.Deadline
	}
	return rank
}

func (c *Config) setDefaults() {
	if c.MarkClient == nil {
		c.MarkClient = c.Client
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.PollInterval <= 0 {
		c.PollInterval = poll.DefaultInterval
	}
	if c.OnNotice == nil {
		c.OnNotice = func() {}
	}
	if c.Replaced == nil {
		c.Replaced = func(string) bool { return true }
	}
	if c.MovesReady == nil {
		c.MovesReady = func(string) bool { return false }
	}
	if c.Pools == nil {
		c.Pools = noPools{}
	}
	if c.ReplaceWait <= 0 {
		c.ReplaceWait = handshake.DefaultReplaceWait
	}
}

// noPools has no Node and no instance.
type noPools struct{}

func (noPools) FirstRead() <-chan struct{} {
	read := make(chan struct{})
	close(read)
	return read
}

func (noPools) Lists(string) bool { return false }

func (noPools) PoolID(*corev1.Node) (string, bool) { return "", false }

func (noPools) GiveBack(*corev1.Node) error { return errors.New("there are no pools") }

// Run works until ctx ends, then waits for what it has begun. It returns an error if the informers' caches never filled.
func (c *Controller) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("reclaim"))
	c.notices.Begin()
	var running sync.WaitGroup
	defer func() {
		c.marks.ShutDown()
		c.drains.ShutDown()
		running.Wait()
	}()
	unwatch, err := c.cluster.Watch(ctx, c.listener)
	if err != nil {
		return fmt.Errorf("reclaim: %w", err)
	}
	defer unwatch()
	for range markWorkers {
		running.Go(func() { c.marks.Work(ctx, c.syncMark) })
	}
	for range drainWorkers {
		running.Go(func() { c.drains.Work(ctx, c.drainer.Sync) })
	}
	running.Go(func() { c.handshakes.Run(ctx) })
	running.Go(func() { c.markRemovals(ctx) })
	running.Go(func() { c.faults.Run(ctx) })
	running.Go(func() { c.drills.Run(ctx) })
	running.Go(func() { c.moves.Run(ctx) })
	c.poller.Run(ctx)
	return nil
}

// Finish writes on the Nodes that their instances are being given back, where Run did not come to it: ESS may accept removals until the provider
// has ended, which is after the context of Run. Both the next leader and the Job that releases everything go by what is written.
func (c *Controller) Finish(ctx context.Context) error { return c.marker.NoteRemovals(ctx) }

// NodeAdded enters what stands on the Node. It is for a Controller that does not run: Run does so for all Nodes.
func (c *Controller) NodeAdded(ctx context.Context, node *corev1.Node) {
	c.listener.NodeAdded(ctx, node)
}

// Move has the jobs of on-demand Nodes move to spot instances that are ready for them.
func (c *Controller) Move(ctx context.Context, nodes []*corev1.Node) {
	var announcements []notice.Announcement
	for _, node := range nodes {
		if cluster.IsOnDemand(node) {
			announcements = append(announcements, notice.Announcement{InstanceID: c.cluster.InstanceID(node), Source: notice.SourceMove, Within: move.Period})
		}
	}
	c.listener.Announce(ctx, announcements...)
}

// syncMark brings a Node in line with the notices.
func (c *Controller) syncMark(ctx context.Context, name string) error {
	isToBeDrained, err := c.marker.Sync(ctx, name)
	c.listener.notify()
	if node := c.cluster.Node(name); isToBeDrained && node != nil {
		c.listener.drain(node)
	}
	return err
}

// markRemovals has it written on the Nodes that their instances are being given back.
func (c *Controller) markRemovals(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.removals.Noted():
		}
		for id := range c.removals.TakeNoted() {
			c.listener.syncMarks(id)
		}
	}
}
