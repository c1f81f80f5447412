// Package handshake prepares training jobs for the loss of nodes. There is one handshake with each job, or with one pod whose job
// goes on without it (a party), over all Nodes that are reclaiming: its pods are asked for a checkpoint, its owner is told,
// the acknowledgement is awaited, and the job is shrunk or suspended. Then its pods may be evicted, in the order that the job
// needs.
//
// Phase names the steps, and transitions has what may follow what. What the next leader needs is written on the pods and on the
// job; it finds out the rest again.
package handshake

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/reclaim/pace"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// DefaultReplaceWait is how long pods stay until there is a place for them elsewhere.
	DefaultReplaceWait = 30 * time.Second

	workers      = 32
	slowestRetry = 10 * time.Second
	// lookDelay is for how long changes of a job's pods are gathered before the job is looked at. Otherwise each of a thousand
	// pods would cost a look at all of them.
	lookDelay = 50 * time.Millisecond
)

// Jobs is what handshakes ask of the job systems. It is implemented by *jobs.Registry, where it is explained.
type Jobs interface {
	// Get returns an error that wraps jobs.ErrNoObject if the job has no object.
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
	Warn(ctx context.Context, job jobs.Job, warning jobs.Warning) error
	// Stop has the job save its work and end, if it listens for that. It returns how many of its pods were told.
	Stop(ctx context.Context, job jobs.Job) (told int, err error)
	Shrink(ctx context.Context, job jobs.Job, pods []string) error
	Shrinking(ctx context.Context, ref jobs.Ref, pods []string) ([]string, error)
	CancelShrink(ctx context.Context, ref jobs.Ref, pods []string) error
	Suspend(ctx context.Context, job jobs.Job, reason jobs.HoldReason) error
}

// Config is what a Controller is made of. Everything but ReplacementReady and PodsPerSecond is required.
type Config struct {
	Cluster *cluster.Cluster
	Notices *notice.Store
	Jobs    Jobs
	// Client annotates pods, NodeClient annotates Nodes.
	Client, NodeClient kubernetes.Interface
	Requests           *work.Requests
	Events             *events.Recorder
	Clock              clock.WithTicker
	// MarksWaiting returns whether Nodes are about to be marked. No job is looked at before they are, because it may lose those
	// Nodes too.
	MarksWaiting func() bool
	// Drains is told by name which Nodes have pods that may be evicted now, or later. The drain of a Node in turn has the jobs of
	// its pods looked at.
	Drains interface {
		AddAfter(node string, delay time.Duration)
	}
	// Replaced returns whether there is a place elsewhere, existing or bought, for what is on the Node. It must be cheap.
	Replaced func(node string) bool
	// ReplacementReady returns whether that place is on nodes that are ready. It must be cheap. If it is nil, pods do not wait for that,
	// and no job is asked for a second checkpoint.
	ReplacementReady func(node string) bool
	// MovesReady returns the same, now, for a Node whose jobs are to move. It must be cheap.
	MovesReady func(node string) bool
	// ReplaceWait is for how long after its notice a Node's pods wait for a place at most, if there is none.
	ReplaceWait time.Duration
	// Saved is told of each job that has acknowledged that its work is saved, with its pods, or those of the unit that was asked, when they were asked,
	// and until when the work is saved. It may be told again. It must not block. Optional.
	Saved func(job jobs.Ref, pods []*corev1.Pod, asked, at time.Time)
	// PodsPerSecond is how many pods can be asked and evicted in a second, zero if that is not bounded.
	PodsPerSecond float64
}

// Controller takes handshakes from the first request to the end. It is safe for concurrent use.
type Controller struct {
	config       Config
	rehearsals   *Rehearsals
	moves        *Moves
	queue        work.Queue[cluster.Party]
	table        *table
	losses       *losses
	warner       *warner
	systems      *systems
	awaited      *awaitedWriter
	replacements *replacements
	untracker    *untracker
	pace         *pace.Pace
	// calls are those to job systems in progress.
	calls sync.WaitGroup
}

// New returns a Controller that knows of no handshake yet, with the Rehearsals and the Moves among its handshakes.
func New(config Config) (*Controller, *Rehearsals, *Moves) {
	table := newTable()
	losses := &losses{cluster: config.Cluster, notices: config.Notices, table: table}
	queue := work.NewRankedQueue("reclaim_jobs", config.Clock, slowestRetry, losses.rankOf)
	systemPace := pace.New(config.Clock)
	callers := &systems{jobs: config.Jobs, clock: config.Clock}
	moves := &Moves{config: config, table: table, losses: losses, systems: callers}
	rehearsals := &Rehearsals{config: config, queue: queue, table: table, losses: losses}
	return &Controller{
		config:       config,
		rehearsals:   rehearsals,
		moves:        moves,
		queue:        queue,
		table:        table,
		losses:       losses,
		warner:       &warner{client: config.Client, requests: config.Requests, events: config.Events, sent: &sentWarnings{byParty: map[cluster.Party]map[types.UID]warning{}}},
		systems:      callers,
		awaited:      newAwaitedWriter(config.Cluster, config.NodeClient, config.Clock),
		replacements: newReplacements(config),
		untracker:    &untracker{config: config, queue: queue, table: table, pace: systemPace},
		pace:         systemPace,
	}, rehearsals, moves
}

// Run works until ctx ends, then waits for what it has begun.
func (c *Controller) Run(ctx context.Context) {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() { c.queue.Work(ctx, c.sync) })
	}
	running.Go(func() { c.awaited.run(ctx) })
	running.Go(func() { c.replacements.departures.run(ctx) })
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	c.calls.Wait()
}

// LookAt looks at the job of the pod soon.
func (c *Controller) LookAt(pod *corev1.Pod) {
	if !podindex.BelongsToNode(pod) {
		c.queue.AddAfter(c.config.Cluster.PartyOf(pod), lookDelay)
	}
}

// PodChanged looks at the pod's job if there is a handshake with it, or was under an earlier leader, or is to be.
func (c *Controller) PodChanged(pod *corev1.Pod) {
	node := c.config.Cluster.Node(pod.Spec.NodeName)
	if node != nil {
		c.awaited.podChanged(pod, node)
	}
	_, asked := pod.Annotations[api.AnnotationCheckpointRequest]
	switch {
	case node != nil && cluster.IsMarked(node) && !kubepod.IsPodTerminal(pod) && !c.config.MarksWaiting(), asked:
		c.LookAt(pod)
	case c.table.any() && !podindex.BelongsToNode(pod):
		if party := c.config.Cluster.PartyOf(pod); c.table.has(party) {
			c.queue.AddAfter(party, lookDelay)
		}
	}
}

// NodeMarked looks at the jobs on a Node that was marked, or whose notice was confirmed, and returns true. While other Nodes are about
// to be marked it returns false, and leaves that to the drain of the Node, which waits for them, too: otherwise each of many jobs would be
// looked at again and again until then.
func (c *Controller) NodeMarked(node *corev1.Node) bool {
	if c.config.MarksWaiting() {
		return false
	}
	for _, pod := range cluster.Drainable(c.config.Cluster.PodsOn(node.Name)) {
		c.LookAt(pod)
	}
	return true
}

// NodeChanged looks at the jobs on a Node on which an acknowledgement was written, whose marks were taken off, or that was
// deleted: then node is nil.
func (c *Controller) NodeChanged(old, node *corev1.Node) {
	unmarked := node == nil || cluster.IsMarked(old) && !cluster.IsMarked(node)
	acknowledged := node != nil && old.Annotations[api.AnnotationCheckpointAcknowledged] != node.Annotations[api.AnnotationCheckpointAcknowledged]
	if unmarked {
		c.replacements.forget(c.config.Cluster.InstanceID(old))
	}
	if !unmarked && !acknowledged {
		return
	}
	for _, pod := range c.config.Cluster.PodsOn(old.Name) {
		c.PodChanged(pod)
	}
}

// NodeAdded keeps up to date what an earlier leader wrote on the Node.
func (c *Controller) NodeAdded(node *corev1.Node) { c.awaited.follow(node) }
