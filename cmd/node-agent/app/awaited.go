package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// awaitedMaxAge is how old what was read may be where it says no, and the failure to read it. So callers that nobody has
	// asked cost the API server one request a second, however many they are and whether it answers or not.
	awaitedMaxAge = time.Second
	// awaitedTimeout bounds reading it.
	awaitedTimeout = 5 * time.Second
	digestLength   = 32
)

// awaited are the digests of what each caller may say. A caller is the address of a pod, or api.CallerHost.
type awaited map[string]sets.Set[string]

// awaitedOn reads what the autoscaler has written on the Node.
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

// refuse returns nil where the acknowledgement is awaited from the caller.
func (w awaited) refuse(k acknowledgement, caller string) error {
	switch {
	case k.ID == "" && caller == api.CallerHost:
		return errNameless
	case w[caller].Has(digestOf(k.what())):
		return nil
	}
	return errNotAsked
}

func digestOf(said string) string {
	sum := sha256.Sum256([]byte(said))
	return hex.EncodeToString(sum[:])[:digestLength]
}

// refuse is awaited.refuse by what was read last, where that is fresh, and else by the Node. Its other errors are those of
// reading it, now or within awaitedMaxAge.
func (a *agent) refuse(ctx context.Context, k acknowledgement, caller string) error {
	select {
	case a.reading <- struct{}{}:
		defer func() { <-a.reading }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := a.awaited.refuse(k, caller)
	if err == nil {
		return nil
	}
	if a.awaitedTried.IsZero() || a.clock.Since(a.awaitedTried) >= awaitedMaxAge {
		a.readAwaited(ctx)
	}
	if a.awaitedErr != nil {
		return a.awaitedErr
	}
	return a.awaited.refuse(k, caller)
}

// readAwaited goes on when the caller hangs up: others go by what comes of it.
func (a *agent) readAwaited(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), awaitedTimeout)
	defer cancel()
	node, err := a.node.get(ctx, metadataOnly)
	if err == nil {
		a.awaited = awaitedOn(node)
	}
	a.awaitedTried, a.awaitedErr = a.clock.Now(), err
}
