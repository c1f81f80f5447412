// Package fault is the source of notices that goes by conditions of Nodes, which say that a GPU or the machine is broken. Alibaba Cloud does
// not take such an instance away. So this package does also what is Alibaba Cloud's part in a reclaim: it gives the instance back once its Node
// is drained, or at the deadline.
//
//	condition is True → (persistence) → (brake) → notice → mark, warn, replacement, drain → instance is given back → Node is deleted
//
// All that a new leader needs is on the Node: the condition, the marks with the source "fault", and that the Node is drained.
//
// Only Nodes of pools are looked at, because only they can be replaced; those of on-demand instances too, because any GPU can break.
package fault

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/giveback"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/share"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// Persistence is how long a condition has to be True before anything is done about it. It is counted by the clock of this process, not by
	// LastTransitionTime, which is by that of the node.
	Persistence = 10 * time.Second
	// interval is how often the Nodes are looked at. All of them are looked at each time, so nothing is missed and nothing has to be
	// remembered.
	interval = time.Second
)

// Settings are what operators may set.
type Settings struct {
	// Conditions are the faults. None means that no Node is faulty.
	Conditions Conditions
	// MaxNodes is on how many Nodes faults are acted upon, as a number or as a share of each pool, and of all pools together. It defaults to
	// DefaultMaxNodes.
	MaxNodes *intstr.IntOrString
}

// Listener is told of faults.
type Listener interface {
	Announce(ctx context.Context, announcements ...notice.Announcement)
}

// Config is what a Watcher is made of. Everything is required.
type Config struct {
	Settings
	Cluster  *cluster.Cluster
	Notices  *notice.Store
	Removals *notice.Removals
	Listener Listener
	Pools    Pools
	Events   *events.Recorder
	Clock    clock.WithTicker
}

// Pools are implemented by *ess.Provider.
type Pools interface {
	// FirstRead returns a channel that is closed once the pools have been read. Until then no Node is of a pool, as far as they know.
	FirstRead() <-chan struct{}
	// PoolID returns the pool of the Node, and false for a Node of no pool.
	PoolID(node *corev1.Node) (id string, ours bool)
	giveback.Pools
}

// Watcher looks at all Nodes again and again. Only one goroutine may run it; Stands is safe for concurrent use.
type Watcher struct {
	config Config
	brake  *brake
	// since is when this process first saw the fault of an instance that is not over.
	since map[string]time.Time
	// reportedHeld are the instances whose faults are reported to be held.
	reportedHeld sets.Set[string]

	giver *giveback.Giver
}

// New returns a Watcher that has looked at nothing yet. The error says which setting makes no sense.
func New(config Config) (*Watcher, error) {
	if config.MaxNodes == nil {
		config.MaxNodes = &DefaultMaxNodes
	}
	maxNodes, err := share.Parse(*config.MaxNodes)
	if err != nil {
		return nil, fmt.Errorf("fault: MaxNodes: %w", err)
	}
	w := &Watcher{config: config, brake: newBrake(maxNodes), since: map[string]time.Time{}, reportedHeld: sets.New[string]()}
	w.giver = giveback.New(giveback.Config{
		Source: notice.SourceFault, Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Pools: config.Pools, Clock: config.Clock,
		IsDue: w.isToBeGivenBack, Given: func(*corev1.Node) {},
		Stays: func(node *corev1.Node, instance string, err error) {
			config.Events.Eventf(node, events.ReasonFaultStays, "Instance %s is faulty and could not be given back: %v", instance, err)
		},
	})
	return w, nil
}

// Run looks at the Nodes until ctx ends, then waits for what is being given back. It begins once the pools have been read: the faults that an
// earlier leader has acted upon count for their pools.
func (w *Watcher) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-w.config.Pools.FirstRead():
	}
	var running sync.WaitGroup
	defer running.Wait()
	work.Every(ctx, w.config.Clock, interval, func() {
		w.look(ctx)
		w.giver.Look(ctx, running.Go)
	})
}

// faultyNode is a Node of a pool with a condition that says that it is faulty.
type faultyNode struct {
	*corev1.Node
	Fault
	instance, pool string
}

// look announces the faults that are to be acted upon, and reports the others.
func (w *Watcher) look(ctx context.Context) {
	underWay := w.underWay()
	w.brake.forget(w.config.Clock.Now(), underWay)
	waiting := w.waiting(underWay)
	sizes := w.sizes(waiting)
	held := sets.New[string]()
	var announcements []notice.Announcement
	for _, node := range waiting {
		if reason := w.brake.holds(node.instance, node.pool, sizes); reason != "" {
			held.Insert(node.instance)
			w.reportHeld(ctx, node, reason)
			continue
		}
		w.brake.take(node.instance, node.pool, w.config.Clock.Now())
		w.report(ctx, node)
		announcements = append(announcements, notice.Announcement{InstanceID: node.instance, Source: notice.SourceFault, Within: node.Period})
	}
	w.reportedHeld = w.reportedHeld.Intersection(held)
	heldFaults.Set(float64(len(held)))
	if len(announcements) > 0 {
		w.config.Listener.Announce(ctx, announcements...)
	}
}

// underWay returns the instances whose Nodes are marked for a fault, and has each of them counted.
func (w *Watcher) underWay() sets.Set[string] {
	instances := sets.New[string]()
	for _, node := range w.config.Cluster.MarkedNodes() {
		if n, reclaiming := w.config.Notices.Of(node); reclaiming && n.Source == notice.SourceFault {
			pool, _ := w.config.Pools.PoolID(node)
			instances.Insert(n.InstanceID)
			w.brake.take(n.InstanceID, pool, n.FirstSeen)
		}
	}
	return instances
}

// waiting returns the faulty Nodes that nothing is done about yet and whose condition has been True for long enough, those first that were
// the first to be seen so.
func (w *Watcher) waiting(underWay sets.Set[string]) (waiting []faultyNode) {
	now := w.config.Clock.Now()
	seen := sets.New[string]()
	for _, node := range w.config.Cluster.Nodes() {
		found, faulty := w.config.Conditions.Of(node)
		if !faulty {
			continue
		}
		instance := w.config.Cluster.InstanceID(node)
		pool, ours := w.config.Pools.PoolID(node)
		if instance == "" || !ours {
			continue
		}
		seen.Insert(instance)
		if _, known := w.since[instance]; !known {
			w.since[instance] = now
		}
		n, reclaiming := w.config.Notices.Of(node)
		if (!reclaiming || n.Yields()) && !underWay.Has(instance) && !w.config.Removals.IsUnderWay(node) && now.Sub(w.since[instance]) >= Persistence {
			waiting = append(waiting, faultyNode{Node: node, Fault: found, instance: instance, pool: pool})
		}
	}
	for instance := range w.since {
		if !seen.Has(instance) {
			delete(w.since, instance)
		}
	}
	slices.SortFunc(waiting, func(a, b faultyNode) int {
		return cmp.Or(w.since[a.instance].Compare(w.since[b.instance]), cmp.Compare(a.Name, b.Name))
	})
	return waiting
}

// sizes returns how many Nodes each pool has. They are counted only if any of them waits.
func (w *Watcher) sizes(waiting []faultyNode) map[string]int {
	sizes := map[string]int{}
	if len(waiting) == 0 {
		return sizes
	}
	for _, node := range w.config.Cluster.Nodes() {
		if pool, ours := w.config.Pools.PoolID(node); ours {
			sizes[pool]++
		}
	}
	return sizes
}

func (w *Watcher) report(ctx context.Context, node faultyNode) {
	faults.WithLabelValues(string(node.Condition.Type)).Inc()
	klog.FromContext(ctx).Info("Faulty", "node", klog.KObj(node.Node), "instance", node.instance, "condition", node.Condition.Type,
		"reason", node.Condition.Reason, "message", node.Condition.Message)
	w.config.Events.Eventf(node.Node, events.ReasonFault, "Condition %s (%s: %s): the node is drained within %v, and instance %s is given back",
		node.Condition.Type, node.Condition.Reason, node.Condition.Message, node.Period, node.instance)
}

// reportHeld reports the fault once.
func (w *Watcher) reportHeld(ctx context.Context, node faultyNode, reason string) {
	if w.reportedHeld.Has(node.instance) {
		return
	}
	w.reportedHeld.Insert(node.instance)
	klog.FromContext(ctx).Info("A fault is held", "node", klog.KObj(node.Node), "condition", node.Condition.Type, "reason", reason)
	w.config.Events.Eventf(node.Node, events.ReasonFaultHeld, "Condition %s is True, and nothing is done about it: %s", node.Condition.Type, reason)
}

// Stands returns whether the notice of the Node's fault stands: as long as a condition says so, and from when the Node is drained or the
// deadline has passed whatever the conditions say. Its pods have another place then, and ACK's node-problem-detector reports no Xid again after a
// restart of the node, whether what was the matter is mended or not. It does not stand if the condition is over and the pool has refused to give
// the instance back: the Node serves on then. That an attempt failed is no reason to.
//
// Source: "Notes" of GPU exception detection and automatic isolation, ACK documentation.
func (w *Watcher) Stands(node *corev1.Node, n notice.Notice) bool {
	if _, faulty := w.config.Conditions.Of(node); faulty || w.config.Removals.IsUnderWay(node) {
		return true
	}
	return w.isDue(node, n) && !w.giver.WasRefused(n.InstanceID)
}

// isDue returns whether the Node's reclaim has come so far that its instance goes.
func (w *Watcher) isDue(node *corev1.Node, n notice.Notice) bool {
	return n.Source == notice.SourceFault && (cluster.IsDrained(node) || !w.config.Clock.Now().Before(n.Deadline))
}

// isToBeGivenBack returns whether the instance of the Node is to be given back now. It is not while a pod that came back is evicted again.
func (w *Watcher) isToBeGivenBack(node *corev1.Node, n notice.Notice) bool {
	isEvicting := cluster.IsDrained(node) && w.config.Cluster.Occupied(node) && w.config.Clock.Now().Before(n.Deadline)
	return w.isDue(node, n) && !isEvicting
}
