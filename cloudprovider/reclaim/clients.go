package reclaim

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// RateLimits are requests per second and bursts. If one is zero its default holds.
type RateLimits struct {
	// MarkQPS and MarkBurst are for the marks: one request per Node, or two if a source corrects the deadline. Awaited
	// acknowledgements are written with them.
	MarkQPS   float32
	MarkBurst int
	// DrainQPS and DrainBurst are for everything else: two requests per pod and more.
	DrainQPS   float32
	DrainBurst int
}

// DefaultRateLimits mark a thousand Nodes as quickly as the API server can, and are enough to warn and evict their eight
// thousand pods within two minutes.
var DefaultRateLimits = RateLimits{MarkQPS: 300, MarkBurst: 1000, DrainQPS: 200, DrainBurst: 400}

// requestsPerPod is how many requests a pod costs from its first request for a checkpoint until it has left: 3.5 to 4.6 of ours, as `go run
// ./test/bench -run reclaim` counts them, and about as many of the controllers and the scheduler, which share the API server.
const requestsPerPod = 8

// PodsPerSecond returns how many pods can be asked and evicted in a second.
func (l RateLimits) PodsPerSecond() float64 {
	return float64(cmp.Or(l.DrainQPS, DefaultRateLimits.DrainQPS)) / requestsPerPod
}

// Clients makes the two clients of a Config, each with limits of its own, whatever that of base is.
func Clients(base *rest.Config, limits RateLimits) (marks, drains kubernetes.Interface, err error) {
	if marks, err = withRateLimit(base,
		cmp.Or(limits.MarkQPS, DefaultRateLimits.MarkQPS), cmp.Or(limits.MarkBurst, DefaultRateLimits.MarkBurst)); err == nil {
		drains, err = withRateLimit(base,
			cmp.Or(limits.DrainQPS, DefaultRateLimits.DrainQPS), cmp.Or(limits.DrainBurst, DefaultRateLimits.DrainBurst))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reclaim: make a client: %w", err)
	}
	return marks, drains, nil
}

// withRateLimit returns a client that does not wait inside of a call for the time that the API server names to those that it refuses
// for now: the call would keep its place among the requests in flight. The callers try again by themselves.
func withRateLimit(base *rest.Config, qps float32, burst int) (kubernetes.Interface, error) {
	config := rest.CopyConfig(base)
	config.RateLimiter = nil
	config.QPS, config.Burst = qps, burst
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &impatient{next} })
	return kubernetes.NewForConfig(config)
}

// impatient removes from answers the time that the server asks to wait, without which client-go does not wait.
// Source: withRetry.IsNextRetry of k8s.io/client-go/rest.
type impatient struct{ http.RoundTripper }

func (t *impatient) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(request)
	if err == nil {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// WrappedRoundTripper returns what the requests go through next: client-go looks there for the TLS configuration.
func (t *impatient) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }
