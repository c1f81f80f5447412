package gangs

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/work"
)

// newQueue returns a queue in which namespaces take turns, and an object that could not be read waits longer each time.
func newQueue(clk clock.WithTicker) work.Queue[key] {
	return work.NewOrderedQueue("gangs", clk, time.Minute, &fairQueue{waiting: map[string][]key{}})
}

// fairQueue implements workqueue.Queue. It returns an object of each namespace in turn, so that before an object is read no more than one
// of each other namespace is, for each object of its own namespace before it. In front of these are only the workers' reads, of which
// none takes longer than readTime.
type fairQueue struct {
	// turns are the namespaces of which objects wait, the next one first.
	turns   []string
	waiting map[string][]key
	len     int
}

var _ workqueue.Queue[key] = (*fairQueue)(nil)

// Touch does nothing: an object that is asked for again keeps its place.
func (*fairQueue) Touch(key) {}

// Push adds an object behind the others of its namespace.
func (q *fairQueue) Push(object key) {
	namespace := object.job.Namespace
	if len(q.waiting[namespace]) == 0 {
		q.turns = append(q.turns, namespace)
	}
	q.waiting[namespace] = append(q.waiting[namespace], object)
	q.len++
}

// Len returns how many objects wait.
func (q *fairQueue) Len() int { return q.len }

// Pop returns the object whose turn it is. There has to be one.
func (q *fairQueue) Pop() key {
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	object, rest := q.waiting[namespace][0], q.waiting[namespace][1:]
	if len(rest) > 0 {
		q.waiting[namespace] = rest
		q.turns = append(q.turns, namespace)
	} else {
		delete(q.waiting, namespace)
	}
	q.len--
	return object
}
