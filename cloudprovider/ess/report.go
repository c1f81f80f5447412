package ess

import (
	"sync"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// problem is something of a pool that the operator has to know, and that stays until it is mended.
type problem struct{ pool, reason string }

// reporter says each thing once: an Event, a log line and a counter when a problem appears or changes, and a gauge as
// long as it stands. It is safe for concurrent use.
type reporter struct {
	events EventSink
	mu     sync.Mutex
	said   map[problem]string
	did    sets.Set[string]
}

func newReporter(events EventSink) *reporter {
	return &reporter{events: events, said: map[problem]string{}, did: sets.New[string]()}
}

// settle takes all the problems that stand now.
func (r *reporter) settle(standing map[problem]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, message := range standing {
		if r.said[p] == message {
			continue
		}
		poolErrors.WithLabelValues(p.pool, p.reason).Inc()
		poolProblem.WithLabelValues(p.pool, p.reason).Set(1)
		klog.Warningf("Pool %s (%s): %s", p.pool, p.reason, message)
		r.events.Eventf(apiv1.EventTypeWarning, "SpotPoolProblem", "Pool %s (%s): %s", p.pool, p.reason, message)
	}
	for p := range r.said {
		if _, stands := standing[p]; !stands {
			poolProblem.DeleteLabelValues(p.pool, p.reason)
			klog.Infof("Pool %s (%s): mended", p.pool, p.reason)
		}
	}
	r.said = standing
}

// once runs tell the first time that it is called with the key.
func (r *reporter) once(key string, tell func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.did.Has(key) {
		r.did.Insert(key)
		tell()
	}
}
