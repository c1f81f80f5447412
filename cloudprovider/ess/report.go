package ess

import (
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

// problem is something of a pool that the operator has to know, and that stays until it is mended.
type problem struct{ pool, reason string }

// reporter counts problems of pools that appear or change, has a gauge for each as long as it stands, and leaves it to the
// board to say them; other things it says once. It is safe for concurrent use.
type reporter struct {
	board *problems.Board
	mu    sync.Mutex
	said  map[problem]string
	did   sets.Set[string]
}

func newReporter(board *problems.Board) *reporter {
	return &reporter{board: board, said: map[problem]string{}, did: sets.New[string]()}
}

// settle takes all the problems that stand now.
func (r *reporter) settle(standing map[problem]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []problems.Problem
	for p, message := range standing {
		all = append(all, problems.Problem{Pool: p.pool, Reason: p.reason, Cause: message, Mend: mendOf(p.reason)})
		if r.said[p] == message {
			continue
		}
		poolErrors.WithLabelValues(p.pool, p.reason).Inc()
		poolProblem.WithLabelValues(p.pool, p.reason).Set(1)
	}
	for p := range r.said {
		if _, stands := standing[p]; !stands {
			poolProblem.DeleteLabelValues(p.pool, p.reason)
		}
	}
	r.said = standing
	r.board.Settle(problems.Pools, all...)
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
