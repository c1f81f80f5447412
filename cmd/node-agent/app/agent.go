// Package app is the node-agent as a process:
//
//	instance metadata → notice in memory → annotation of the own Node
//	                          ↓                     ↑
//	                  GET /v1/reclaim    POST /v1/checkpoint-acknowledged
//
// The notice is only in memory, and is read again with the next poll of the metadata, so a restart loses nothing. While the
// API server cannot be reached, pods are answered all the same, and the Node is written once it can be reached.
package app

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// confirmWithdrawal is how many polls in a row must find no notice before it counts as withdrawn.
	confirmWithdrawal = 2
	// reassertEvery is how often a notice is written again, in case somebody removed it from the Node.
	reassertEvery = 30 * time.Second
)

// metadata reads the metadata of the instance.
type metadata interface {
	// terminationTime returns when the instance is released, zero while there is no notice.
	terminationTime(ctx context.Context) (time.Time, error)
}

// nodeClient reads and writes the own Node. Its errors are of package apierrors or of the connection.
type nodeClient interface {
	// get returns the Node, without Spec if only the metadata are asked for.
	get(ctx context.Context, what part) (*node, error)
	// annotate sets annotations, and removes those that are nil. If a resource version is given and the Node has another,
	// it returns a conflict.
	annotate(ctx context.Context, annotations map[string]*string, version string) error
}

// part is how much of a Node is read, as the media type to ask for.
type part string

const (
	wholeNode part = "application/json"
	// metadataOnly leaves out spec and status, which are most of a Node.
	metadataOnly part = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// node has the fields of a Node that are used here.
type node struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
}

// pace is how often the metadata is polled: at intervals of usual, and of protected while the Node is younger than
// protection. A Node is younger than its instance by the time that booting takes, so protection has to be shorter than
// Alibaba Cloud's protected hour by as much.
type pace struct {
	usual, protected, protection time.Duration
}

// agent is safe for concurrent use, except that poll, keepWritten, keepIntervals and awaitNetwork each run in one goroutine.
type agent struct {
	metadata metadata
	node     nodeClient
	clock    clock.Clock
	pace     pace

	// changed has room for one element, which means that there is something to write.
	changed chan struct{}
	// recording has room for the one request that records an acknowledgement. It is a channel so that waiting for it ends with
	// a context.
	recording chan struct{}
	awaited   *awaitedCache

	mu       sync.Mutex
	polled   bool      // the metadata was read since the start
	deadline time.Time // zero: no notice
	self     *node     // as read last, until it has a pod network; nil until it was read
	// intervals are those that pods are advised, by the caller.
	intervals map[string]time.Duration
}

func newAgent(metadata metadata, node nodeClient, clk clock.Clock, pace pace) *agent {
	return &agent{
		metadata: metadata, node: node, clock: clk, pace: pace,
		changed: make(chan struct{}, 1), recording: make(chan struct{}, 1), awaited: newAwaitedCache(node, clk),
	}
}

// start starts the loops, which run until ctx ends.
func (a *agent) start(ctx context.Context, loops *sync.WaitGroup) {
	loops.Go(func() { a.poll(ctx) })
	loops.Go(func() { a.keepWritten(ctx) })
	loops.Go(func() { a.keepIntervals(ctx) })
	loops.Go(func() { a.awaitNetwork(ctx) })
}

// poll reads the metadata until ctx ends. Metadata that cannot be read change nothing.
func (a *agent) poll(ctx context.Context) {
	for missing, failing := 0, false; ; {
		deadline, err := a.metadata.terminationTime(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			metadataFailures.value.Add(1)
			if !failing {
				klog.FromContext(ctx).Error(err, "Reading the instance metadata failed; the notice stays as it is")
			}
		case !deadline.IsZero():
			missing = 0
			a.learn(ctx, deadline)
		default:
			if missing++; missing >= confirmWithdrawal {
				a.learn(ctx, time.Time{})
			}
		}
		failing = err != nil
		if !a.sleep(ctx, a.interval(failing || missing < confirmWithdrawal)) {
			return
		}
	}
}

// interval returns the longer interval only while the last poll was certain and the instance is still protected.
func (a *agent) interval(unsure bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	protected := a.self != nil && a.clock.Since(a.self.CreationTimestamp.Time) < a.pace.protection
	if protected && !unsure {
		return a.pace.protected
	}
	return a.pace.usual
}

// learn stores the deadline in the metadata; zero means that there is no notice.
func (a *agent) learn(ctx context.Context, deadline time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.polled && deadline.Equal(a.deadline) {
		return
	}
	switch {
	case !deadline.IsZero():
		klog.FromContext(ctx).Info("The instance will be released", "deadline", deadline)
	case a.polled:
		klog.FromContext(ctx).Info("The notice was withdrawn")
	}
	a.polled, a.deadline = true, deadline
	setNoticeDeadline(deadline)
	select {
	case a.changed <- struct{}{}:
	default: // a write is due already, and will include this change
	}
}

// notice returns the deadline, zero while there is no notice.
func (a *agent) notice() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deadline
}

// keepWritten keeps the annotation of the Node equal to the notice, until ctx ends.
func (a *agent) keepWritten(ctx context.Context) {
	var written string
	if !a.retry(ctx, func() error {
		self, err := a.readSelf(ctx)
		if err != nil {
			return err
		}
		written = self.Annotations[api.AnnotationNoticeAgent] // an earlier process may have written it
		return nil
	}) {
		return
	}
	again := false
	for a.retry(ctx, func() error { return a.write(ctx, &written, again) }) {
		var reassert <-chan time.Time
		if written != "" {
			reassert = a.clock.After(reassertEvery)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.changed:
			again = false
		case <-reassert:
			again = true
		}
	}
}

// write sets the annotation to the notice if it differs from what is written, or if again is set.
func (a *agent) write(ctx context.Context, written *string, again bool) error {
	a.mu.Lock()
	polled, deadline := a.polled, a.deadline
	a.mu.Unlock()
	wanted, value := "", (*string)(nil)
	if !deadline.IsZero() {
		wanted = deadline.UTC().Format(time.RFC3339)
		value = &wanted
	}
	if !polled || wanted == *written && !again {
		return nil
	}
	if err := a.node.annotate(ctx, map[string]*string{api.AnnotationNoticeAgent: value}, ""); err != nil {
		return err
	}
	*written = wanted
	return nil
}

// retry calls do until it succeeds. It returns false if ctx ends first. The first retries come fast, because a notice leaves
// only minutes.
func (a *agent) retry(ctx context.Context, do func() error) bool {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 3 * time.Second}
	for failures := 0; ctx.Err() == nil; failures++ {
		err := do()
		if err == nil {
			return true
		}
		if ctx.Err() == nil {
			nodeFailures.value.Add(1)
		}
		if ctx.Err() == nil && failures == 0 {
			klog.FromContext(ctx).Error(err, "Reading or writing the Node failed; retrying until it succeeds")
		}
		a.sleep(ctx, backoff.Step())
	}
	return false
}

// sleep waits for d. It returns false if ctx ends first.
func (a *agent) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-a.clock.After(d):
		return true
	}
}
