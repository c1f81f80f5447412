package fault

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// retryAfter is how long after an attempt to give back an instance the next one is made, if the instance is still there.
const retryAfter = 30 * time.Second

// releases are the instances of faulty Nodes that are being given back. It is safe for concurrent use.
type releases struct {
	mu       sync.Mutex
	attempts map[string]attempt
}

// attempt is the last one to give back an instance.
type attempt struct {
	underWay bool
	// err is how it ended, empty for a success, and ended is when.
	err   string
	ended time.Time
}

// hasFailed returns whether the last attempt has ended with an error.
func (r *releases) hasFailed(instance string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts[instance].err != ""
}

// begin returns whether the instance is to be given back now, and notes that it is.
func (r *releases) begin(instance string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, tried := r.attempts[instance]
	if last.underWay || tried && now.Sub(last.ended) < retryAfter {
		return false
	}
	last.underWay = true
	r.attempts[instance] = last
	return true
}

// end notes how the attempt has ended, and returns whether that is another error than the last time.
func (r *releases) end(instance string, err error, now time.Time) (news bool) {
	ended := attempt{ended: now}
	if err != nil {
		ended.err = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	news = ended.err != "" && ended.err != r.attempts[instance].err
	r.attempts[instance] = ended
	return news
}

// keep forgets the attempts with all other instances.
func (r *releases) keep(instances sets.Set[string]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.attempts, func(instance string, last attempt) bool { return !last.underWay && !instances.Has(instance) })
}

// release gives back the instances of the faulty Nodes that are drained, or whose deadline has passed. It does not wait for the cloud.
func (w *Watcher) release(ctx context.Context, start func(func())) {
	faulty := sets.New[string]()
	for _, node := range w.Cluster.MarkedNodes() {
		n, reclaiming := w.Notices.Of(node)
		if !reclaiming || n.Source != notice.SourceFault {
			continue
		}
		faulty.Insert(n.InstanceID)
		if !w.isDue(node, n) || w.Removals.Has(node) || w.Notices.VerdictOn(n.InstanceID) != notice.Pending {
			continue
		}
		if cluster.IsDrained(node) && w.Cluster.Occupied(node) && w.Clock.Now().Before(n.Deadline) {
			continue // a pod came back, and is evicted again
		}
		if w.releases.begin(n.InstanceID, w.Clock.Now()) {
			start(func() { w.releaseOne(ctx, node, n.InstanceID) })
		}
	}
	w.releases.keep(faulty)
}

func (w *Watcher) releaseOne(ctx context.Context, node *corev1.Node, instance string) {
	err := w.Pools.GiveBack(node)
	news := w.releases.end(instance, err, w.Clock.Now())
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Gave back the instance of a faulty node", "node", klog.KObj(node), "instance", instance)
	case ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, "Could not give back the instance of a faulty node, will try again", "node", klog.KObj(node), "instance", instance)
		if news {
			w.Events.Eventf(node, events.ReasonFaultStays, "Instance %s is faulty and could not be given back: %v", instance, err)
		}
	}
}
