package fault

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// retryAfter is how long after an attempt to give back an instance the next one is made, if the instance is still there.
const retryAfter = 30 * time.Second

// attempts has the attempts to give back the instances of faulty Nodes. It is safe for concurrent use.
type attempts struct {
	mu         sync.Mutex
	byInstance map[string]attempt
}

// attempt is the last one to give back an instance.
type attempt struct {
	underWay bool
	// err is how it ended, empty for a success, and ended is when. refused is true if the instance has to stay.
	err     string
	refused bool
	ended   time.Time
}

// wasRefused returns whether the last attempt has shown that the instance has to stay. One that is under way has not: the cloud may accept it.
func (a *attempts) wasRefused(instance string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.byInstance[instance]
	return last.refused && !last.underWay
}

// begin notes an attempt to give back the instance now. It returns false, and notes nothing, if one is under way or the last was a moment
// ago.
func (a *attempts) begin(instance string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, tried := a.byInstance[instance]
	if last.underWay || tried && now.Sub(last.ended) < retryAfter {
		return false
	}
	last.underWay = true
	a.byInstance[instance] = last
	return true
}

// end notes how the attempt has ended, and returns whether that is another error than the last time.
func (a *attempts) end(instance string, err error, now time.Time) (news bool) {
	ended := attempt{ended: now, refused: ess.IsRefused(err)}
	if err != nil {
		ended.err = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	news = ended.err != "" && ended.err != a.byInstance[instance].err
	a.byInstance[instance] = ended
	return news
}

// forgetOthers forgets the attempts with all other instances.
func (a *attempts) forgetOthers(instances sets.Set[string]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byInstance, func(instance string, last attempt) bool { return !last.underWay && !instances.Has(instance) })
}

// giveBack gives back the instances of the faulty Nodes that are drained, or whose deadline has passed. It does not wait for the cloud.
func (w *Watcher) giveBack(ctx context.Context, start func(func())) {
	faulty := sets.New[string]()
	for _, node := range w.config.Cluster.MarkedNodes() {
		n, reclaiming := w.config.Notices.Of(node)
		if !reclaiming || n.Source != notice.SourceFault {
			continue
		}
		faulty.Insert(n.InstanceID)
		if !w.isDue(node, n) || w.config.Removals.IsUnderWay(node) || w.config.Notices.Verdicts.On(n.InstanceID) != notice.Pending {
			continue
		}
		if cluster.IsDrained(node) && w.config.Cluster.Occupied(node) && w.config.Clock.Now().Before(n.Deadline) {
			continue // a pod came back, and is evicted again
		}
		if w.attempts.begin(n.InstanceID, w.config.Clock.Now()) {
			start(func() { w.giveBackOne(ctx, node, n.InstanceID) })
		}
	}
	w.attempts.forgetOthers(faulty)
}

func (w *Watcher) giveBackOne(ctx context.Context, node *corev1.Node, instance string) {
	err := w.config.Pools.GiveBack(node)
	news := w.attempts.end(instance, err, w.config.Clock.Now())
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Gave back the instance of a faulty node", "node", klog.KObj(node), "instance", instance)
	case ctx.Err() != nil:
	default:
		klog.FromContext(ctx).Error(err, "Could not give back the instance of a faulty node, will try again", "node", klog.KObj(node), "instance", instance)
		if news {
			w.config.Events.Eventf(node, events.ReasonFaultStays, "Instance %s is faulty and could not be given back: %v", instance, err)
		}
	}
}
