package problem

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/lru"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

var (
	active = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_pool_problem",
		Help: "1 while the pool has the problem.",
	}, []string{"pool", "reason"})
	appeared = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_pool_problems_total",
		Help: "Problems of a pool that appeared or changed.",
	}, []string{"pool", "reason"})
)

// RegisterMetrics registers the metrics of this package. It panics if they are registered already.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(active, appeared) }

// Reporter keeps the metrics of pools' problems and passes the problems on to the board, which records the Events. It also
// remembers what is to be reported only once. It is safe for concurrent use.
type Reporter struct {
	board *problems.Board

	mu       sync.Mutex
	reported Set
	// standing are the messages of the last call of Appeared, by what they are about.
	standing map[string]sets.Set[string]
	once     *lru.Cache
}

// mostOnce bounds how many keys of Once are remembered. The keys of instances that are gone make room for others.
const mostOnce = 8192

// NewReporter returns a Reporter that passes problems on to the board.
func NewReporter(board *problems.Board) *Reporter {
	return &Reporter{board: board, reported: Set{}, standing: map[string]sets.Set[string]{}, once: lru.New(mostOnce)}
}

// Update takes all active problems.
func (r *Reporter) Update(found Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []problems.Problem
	for key, cause := range found {
		all = append(all, problems.Problem{Pool: key.Pool, Reason: string(key.Reason), Cause: cause, Fix: key.Reason.Fix()})
		if r.reported[key] == cause {
			continue
		}
		appeared.WithLabelValues(key.Pool, string(key.Reason)).Inc()
		active.WithLabelValues(key.Pool, string(key.Reason)).Set(1)
	}
	for key := range r.reported {
		if _, still := found[key]; !still {
			active.DeleteLabelValues(key.Pool, string(key.Reason))
		}
	}
	r.reported = found
	r.board.Update(problems.Pools, all...)
}

// Appeared takes all messages that hold about a subject now, and returns, in order, those that did not hold at the last call about it. It is for
// what is looked at in every loop: unlike Once it forgets what does not hold any more, and remembers all that does, however much it is.
func (r *Reporter) Appeared(subject string, now sets.Set[string]) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	appeared := now.Difference(r.standing[subject])
	r.standing[subject] = now
	return sets.List(appeared)
}

// Once calls report the first time that it is called with the key. It remembers the keys that were used last.
func (r *Reporter) Once(key string, report func()) {
	if r.isFirst(key) {
		report()
	}
}

func (r *Reporter) isFirst(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, reported := r.once.Get(key); reported {
		return false
	}
	r.once.Add(key, nil)
	return true
}
