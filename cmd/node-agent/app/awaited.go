package app

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/wire"
)

const (
	// awaitedMaxAge is how old the last read of the Node, or its failure, may be when an acknowledgement is refused. So callers
	// that were not asked cost the API server one request a second, however many they are.
	awaitedMaxAge = time.Second
	// awaitedTimeout bounds one read of the Node.
	awaitedTimeout = 5 * time.Second
)

// awaited has the digests of what each caller may send. A caller is the address of a pod, or api.CallerHost.
type awaited map[string]sets.Set[string]

// awaitedOn returns the acknowledgements that the autoscaler awaits, as it has written them on the Node.
func awaitedOn(n *node) awaited {
	callers := awaited{}
	for entry := range strings.SplitSeq(n.Annotations[api.AnnotationAwaitedAcknowledgements], ",") {
		caller, digest, ok := strings.Cut(strings.TrimSpace(entry), "=")
		if !ok {
			continue
		}
		if callers[caller] == nil {
			callers[caller] = sets.New[string]()
		}
		callers[caller].Insert(digest)
	}
	return callers
}

// refuse returns nil if the acknowledgement is awaited from the caller.
func (w awaited) refuse(k acknowledgement, caller string) error {
	switch {
	case k.ID == "" && caller == api.CallerHost:
		return errNeedsID
	case w[caller].Has(wire.Digest(k.subject())):
		return nil
	}
	return errNotAwaited
}

// awaitedCache has the awaited acknowledgements as last read from the Node. It is safe for concurrent use.
type awaitedCache struct {
	node  nodeClient
	clock clock.PassiveClock

	// lock guards the fields below. It is a channel so that waiting for it ends with a context.
	lock    chan struct{}
	current awaited
	// tried is when reading was last tried, zero before that, and err its error.
	tried time.Time
	err   error
}

func newAwaitedCache(node nodeClient, clk clock.PassiveClock) *awaitedCache {
	return &awaitedCache{node: node, clock: clk, lock: make(chan struct{}, 1)}
}

// refuse returns nil if the acknowledgement is awaited from the caller. Before it refuses one it reads the Node again,
// unless that was tried within awaitedMaxAge. Besides errNotAwaited and errNeedsID it returns the error of the last read.
func (c *awaitedCache) refuse(ctx context.Context, k acknowledgement, caller string) error {
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := c.current.refuse(k, caller)
	if err == nil {
		return nil
	}
	if c.tried.IsZero() || c.clock.Since(c.tried) >= awaitedMaxAge {
		c.read(ctx)
	}
	if c.err != nil {
		return c.err
	}
	return c.current.refuse(k, caller)
}

// read reads the Node. It does not end with the caller's request, since its result is for others too.
func (c *awaitedCache) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), awaitedTimeout)
	defer cancel()
	node, err := c.node.get(ctx, metadataOnly)
	if err == nil {
		c.current = awaitedOn(node)
	}
	c.tried, c.err = c.clock.Now(), err
}
