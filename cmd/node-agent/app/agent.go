// Package app is the node-agent as a process:
//
//	instance metadata → what is known → annotation of the own Node
//	                         ↓                    ↑
//	                 GET /v1/reclaim    POST /v1/checkpoint-acknowledged
//
// What is known is kept in memory and comes again with the next look at the metadata, so that nothing is lost when the
// process is restarted. The API server may be away: pods are answered all the same, and the Node is written when it is
// back.
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
	// confirmWithdrawal is how many looks in a row must find the notice gone.
	confirmWithdrawal = 2
	// reassertEvery is how often a notice is written again, lest it stay away where somebody took it off.
	reassertEvery = 30 * time.Second
)

// metadata is what is asked of the instance.
type metadata interface {
	// terminationTime is zero while there is no notice.
	terminationTime(ctx context.Context) (time.Time, error)
}

// nodeClient is what is asked of the API server, about the own Node. Its errors are those of package apierrors, or of
// the connection.
type nodeClient interface {
	// get leaves out Spec where only the metadata are wanted.
	get(ctx context.Context, what part) (*node, error)
	// annotate sets annotations, and removes those that are nil. Where a version is given and the Node is no longer at it,
	// that is a conflict.
	annotate(ctx context.Context, annotations map[string]*string, version string) error
}

// part is how much of a Node is read: the media type to ask for.
type part string

const (
	wholeNode part = "application/json"
	// metadataOnly spares the API server spec and status, which are most of a Node.
	metadataOnly part = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
)

// node is what matters here of a Node.
type node struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodCIDRs []string `json:"podCIDRs"`
	} `json:"spec"`
}

// pace says how often the metadata is looked at: every usual, and every protected while the Node is younger than
// protection. A Node is younger than its instance, so that this ends late rather than early by as long as it takes to
// boot; protection has to be shorter than the cloud's by that much.
type pace struct {
	usual, protected, protection time.Duration
}

// agent is safe for concurrent use, but poll and keepWritten are each for one goroutine.
type agent struct {
	metadata metadata
	node     nodeClient
	clock    clock.Clock
	pace     pace

	// changed has room for one: there is something to write.
	changed chan struct{}
	// recording is held by whoever records an acknowledgement, and reading by whoever uses awaited. They are channels so that
	// waiting for them can end.
	recording, reading chan struct{}
	// awaited is as last read from the Node. awaitedTried is when reading it was last tried, zero before that, and awaitedErr
	// what came of it.
	awaited      awaited
	awaitedTried time.Time
	awaitedErr   error

	mu       sync.Mutex
	looked   bool      // the metadata has said something since the start
	deadline time.Time // zero: no notice
	self     *node     // as first read; nil until then
}

func newAgent(metadata metadata, node nodeClient, clk clock.Clock, pace pace) *agent {
	return &agent{
		metadata: metadata, node: node, clock: clk, pace: pace,
		changed: make(chan struct{}, 1), recording: make(chan struct{}, 1), reading: make(chan struct{}, 1),
	}
}

// poll looks at the metadata until ctx ends. What cannot be read changes nothing.
func (a *agent) poll(ctx context.Context) {
	for missing, failing := 0, false; ; {
		deadline, err := a.metadata.terminationTime(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			metadataFailures.value.Add(1)
			if !failing {
				klog.ErrorS(err, "The instance metadata cannot be read; what is known stands")
			}
		case !deadline.IsZero():
			missing = 0
			a.learn(deadline)
		default:
			if missing++; missing >= confirmWithdrawal {
				a.learn(time.Time{})
			}
		}
		failing = err != nil
		if !a.sleep(ctx, a.interval(failing || missing < confirmWithdrawal)) {
			return
		}
	}
}

// interval is long only while all is well and the instance cannot be reclaimed yet.
func (a *agent) interval(unsure bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	protected := a.self != nil && a.clock.Since(a.self.CreationTimestamp.Time) < a.pace.protection
	if protected && !unsure {
		return a.pace.protected
	}
	return a.pace.usual
}

// learn takes what the metadata says; zero is no notice.
func (a *agent) learn(deadline time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.looked && deadline.Equal(a.deadline) {
		return
	}
	switch {
	case !deadline.IsZero():
		klog.InfoS("The instance will be released", "deadline", deadline)
	case a.looked:
		klog.InfoS("The notice was withdrawn")
	}
	a.looked, a.deadline = true, deadline
	setNoticeDeadline(deadline)
	select {
	case a.changed <- struct{}{}:
	default: // a write is due already, and will see this too
	}
}

// notice is zero while there is none.
func (a *agent) notice() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deadline
}

// keepWritten keeps the Node's annotation in line with what is known, until ctx ends.
func (a *agent) keepWritten(ctx context.Context) {
	var written string
	if !a.persevere(ctx, func() error {
		self, err := a.node.get(ctx, wholeNode)
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.self = self
		a.mu.Unlock()
		written = self.Annotations[api.AnnotationNoticeAgent] // an earlier process of ours may have written it
		return nil
	}) {
		return
	}
	again := false
	for a.persevere(ctx, func() error { return a.write(ctx, &written, again) }) {
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

// write brings the annotation from what is written to what is known. A notice can be written again.
func (a *agent) write(ctx context.Context, written *string, again bool) error {
	a.mu.Lock()
	looked, deadline := a.looked, a.deadline
	a.mu.Unlock()
	wanted, value := "", (*string)(nil)
	if !deadline.IsZero() {
		wanted = deadline.UTC().Format(time.RFC3339)
		value = &wanted
	}
	if !looked || wanted == *written && !again {
		return nil
	}
	if err := a.node.annotate(ctx, map[string]*string{api.AnnotationNoticeAgent: value}, ""); err != nil {
		return err
	}
	*written = wanted
	return nil
}

// persevere repeats until it succeeds; false means that ctx ended before. Retries start fast, since a notice leaves
// minutes.
func (a *agent) persevere(ctx context.Context, do func() error) bool {
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
			klog.ErrorS(err, "The Node was not reached; will try until it is")
		}
		a.sleep(ctx, backoff.Step())
	}
	return false
}

// sleep is false where ctx ended.
func (a *agent) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-a.clock.After(d):
		return true
	}
}
