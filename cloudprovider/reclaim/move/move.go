// Package move is the source of notices that has jobs move from on-demand instances to spot ones. Package jobs/moves decides which, and begins
// once spot instances for them are ready:
//
//	spot instances are ready → notice (source "move") → mark, warn, drain → the instance is given back → Node is deleted
//
// Nobody takes the instance away. So a job leaves only once it has acknowledged that its work is saved, and has a place that is ready; nothing is
// deleted; and if it does not leave in time the Node is restored, and the job goes on where it is.
//
// What a new leader needs is on the Node: the marks with the source "move", and that the Node is drained. It goes on with a move once the job is
// suspended or shrunk for it, and calls off any other.
package move

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/events"
	"gpu-spot-autoscaler/cloudprovider/reclaim/giveback"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

const (
	// Period is how long jobs may take to leave their Node.
	Period = 15 * time.Minute
	// stuckAfter is how long after the deadline a Node is restored whose jobs are suspended or shrunk, and whose pods do not end, or whose instance the
	// cloud does not remove.
	stuckAfter = 5 * time.Minute
	// interval is how often it is looked at which moves are over, and which Nodes are drained.
	interval = time.Second
)

// Outcome is how the move of the jobs of a Node has ended.
type Outcome string

const (
	// Completed: the Node is drained, and the cloud has accepted that its instance is removed.
	Completed Outcome = "completed"
	// Missed: a job did not acknowledge in time that its work is saved, or its system could not prepare it.
	Missed Outcome = "missed"
	// Expired: its time was over before.
	Expired Outcome = "expired"
	// Interrupted: the leader ended before it was settled that the jobs leave.
	Interrupted Outcome = "interrupted"
	// Overtaken: a job of the Node is losing another Node. A fault of the Node itself takes the place of the move at once.
	Overtaken Outcome = "overtaken"
	// Refused: the Node is drained, but its instance has to stay.
	Refused Outcome = "refused"
)

// Handshakes know how far jobs are. They are implemented by *handshake.Moves.
type Handshakes interface {
	// HaveMissed returns whether a job on the Node did not acknowledge in time, or could not be prepared.
	HaveMissed(node string) bool
	// AreLeaving returns whether it is settled that the jobs leave the Node; known is false as long as that is not known.
	AreLeaving(node string) (leaving, known bool)
	// LoseOtherwise returns whether a job on the Node loses pods to a notice that is no move.
	LoseOtherwise(node string) bool
}

// Config is what a Watcher is made of. Everything is required.
type Config struct {
	Cluster    *cluster.Cluster
	Notices    *notice.Store
	Removals   *notice.Removals
	Handshakes Handshakes
	Pools      giveback.Pools
	Events     *events.Recorder
	Clock      clock.WithTicker
	// Sync has the marks of the Node brought in line.
	Sync func(node string)
}

// Watcher says which moves are over, and gives back the instances of Nodes that are drained. Only one goroutine may run it; Over is safe for
// concurrent use.
type Watcher struct {
	config Config
	giver  *giveback.Giver
}

// New returns a Watcher.
func New(config Config) *Watcher {
	w := &Watcher{config: config}
	w.giver = giveback.New(giveback.Config{
		Source: notice.SourceMove, Cluster: config.Cluster, Notices: config.Notices, Removals: config.Removals, Pools: config.Pools, Clock: config.Clock,
		IsDue: func(node *corev1.Node, _ notice.Notice) bool { return w.isEmpty(node) },
		Given: func(*corev1.Node) { Count(Completed) },
		Stays: func(node *corev1.Node, instance string, err error) {
			config.Events.Eventf(node, events.ReasonMoveEnded, "On-demand instance %s could not be given back: %v", instance, err)
		},
	})
	return w
}

// Run looks after moves until ctx ends, then waits for what is being given back.
func (w *Watcher) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	work.Every(ctx, w.config.Clock, interval, func() {
		w.look(ctx)
		w.giver.Look(ctx, running.Go)
	})
}

func (w *Watcher) look(ctx context.Context) {
	moving := 0
	for _, node := range w.config.Cluster.MarkedNodes() {
		n, reclaiming := w.config.Notices.Of(node)
		if !reclaiming || !n.IsMove() {
			continue
		}
		moving++
		if outcome, over := w.Over(node, n); over {
			klog.FromContext(ctx).V(1).Info("A move is over", "node", klog.KObj(node), "outcome", outcome)
			w.config.Sync(node.Name)
		}
	}
	inProgress.Set(float64(moving))
}

// Over returns whether the jobs of the Node are not to move any more, so that it is to be restored, and why. A Node that is drained, and whose
// instance is or will be given back, is not.
func (w *Watcher) Over(node *corev1.Node, n notice.Notice) (outcome Outcome, over bool) {
	late := w.config.Clock.Since(n.Deadline)
	switch {
	case w.config.Removals.IsUnderWay(node) || w.giver.IsUnderWay(n.InstanceID):
		return "", false
	case w.isEmpty(node):
		return Refused, w.giver.WasRefused(n.InstanceID) || late >= stuckAfter
	}
	leaving, known := w.config.Handshakes.AreLeaving(node.Name)
	switch {
	case leaving:
		return Expired, late >= stuckAfter // it is suspended or shrunk already
	case known && !w.config.Notices.Heard(n.InstanceID):
		// A former leader began with the move. It may have marked some of the job's Nodes only, which is written nowhere. Nothing is lost by it: the
		// next leader finds the spot instances that are there.
		return Interrupted, true
	case w.config.Handshakes.LoseOtherwise(node.Name):
		return Overtaken, true
	case w.config.Handshakes.HaveMissed(node.Name):
		return Missed, true
	}
	return Expired, late >= 0 || -late > Period // which nobody but the autoscaler begins
}

// isEmpty returns whether the Node was drained, and no pod has come back.
func (w *Watcher) isEmpty(node *corev1.Node) bool {
	return cluster.IsDrained(node) && !w.config.Cluster.Occupied(node)
}
