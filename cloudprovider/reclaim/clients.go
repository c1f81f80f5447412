package reclaim

import (
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Budgets, requests per second and burst. A mark is one request per Node, so that a thousand notices are marked within
// three seconds; a drain is one request per pod and more.
const (
	markQPS, markBurst   = 300, 600
	drainQPS, drainBurst = 200, 400
)

// Clients makes the two clients of a Config, each with a budget of its own, whatever that of base is.
func Clients(base *rest.Config) (marks, drains kubernetes.Interface, err error) {
	if marks, err = withBudget(base, markQPS, markBurst); err == nil {
		drains, err = withBudget(base, drainQPS, drainBurst)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reclaim: making a client: %w", err)
	}
	return marks, drains, nil
}

func withBudget(base *rest.Config, qps float32, burst int) (kubernetes.Interface, error) {
	config := rest.CopyConfig(base)
	config.RateLimiter = nil
	config.QPS, config.Burst = qps, burst
	return kubernetes.NewForConfig(config)
}
