// Package drill rehearses reclaims: an operator writes on a Node that there is to be a drill, and the Node is treated as if its instance had
// a notice, but the instance stays, and the Node is restored.
//
//	annotation → notice (source "drill") → mark, warn, replacement, perhaps drain → the drill is over → marks are taken off
//
// All that a new leader needs is on the Node: the annotation, with begin and end, and the marks. A drill ends whether ECS answers or not, and
// at its end at the latest. The marker takes the marks off; this package says when.
package drill

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// interval is how often it is looked at which drills are over. All are looked at each time, so nothing has to be remembered.
const interval = time.Second

// Outcome is how a drill has ended.
type Outcome string

const (
	// Completed: what it was to go until has happened.
	Completed Outcome = "completed"
	// Missed: an acknowledgement was awaited, and did not come in time.
	Missed Outcome = "missed"
	// Expired: its time was over before.
	Expired Outcome = "expired"
	// Cancelled: it no longer stands on the Node, or another does.
	Cancelled Outcome = "cancelled"
	// Overtaken: a job of the Node is losing another Node in earnest, or the instance is being given back. A notice for the Node itself takes
	// the place of the drill at once.
	Overtaken Outcome = "overtaken"
	// Refused: it never began.
	Refused Outcome = "refused"
)

// Handshakes know how far jobs are. They are implemented by *handshake.Rehearsals.
type Handshakes interface {
	// HaveSaved returns whether no job on the Node is awaited any more: each was asked, and has acknowledged or let its time go by, or is not
	// waited for. It also returns whether none has let its time go by.
	HaveSaved(node string) (done, all bool)
	// LoseInEarnest returns whether a job on the Node loses pods to a notice that is no drill.
	LoseInEarnest(node string) bool
}

// Config is what a Watcher is made of. Everything is required.
type Config struct {
	Cluster    *cluster.Cluster
	Notices    *notice.Store
	Removals   *notice.Removals
	Handshakes Handshakes
	Clock      clock.WithTicker
	// Sync has the marks of the Node brought in line.
	Sync func(node string)
}

// Watcher says which drills are over. It has no state of its own, and is safe for concurrent use.
type Watcher struct{ config Config }

// New returns a Watcher.
func New(config Config) *Watcher { return &Watcher{config: config} }

// Run has the Nodes looked after whose drill is over or does not begin, until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	work.Every(ctx, w.config.Clock, interval, func() { w.look(ctx) })
}

func (w *Watcher) look(ctx context.Context) {
	drilled := 0
	for _, node := range w.config.Cluster.Nodes() {
		if !concerns(node) {
			continue
		}
		n, reclaiming := w.config.Notices.Of(node)
		if !reclaiming {
			if w.Refusal(node) != nil {
				w.config.Sync(node.Name)
			}
			continue
		}
		if !n.IsDrill() {
			continue
		}
		drilled++
		if outcome, over := w.Over(node, n); over {
			klog.FromContext(ctx).V(1).Info("A drill is over", "node", klog.KObj(node), "outcome", outcome)
			w.config.Sync(node.Name)
		}
	}
	inProgress.Set(float64(drilled))
}

// concerns returns whether anything on the Node speaks of a drill.
func concerns(node *corev1.Node) bool {
	_, stands := node.Annotations[api.AnnotationDrill]
	return stands || notice.Source(node.Annotations[api.AnnotationReclaimSource]) == notice.SourceDrill
}

// Refusal returns why the drill that stands on a Node without a notice does not begin, and nil if it may, or if none stands there.
func (w *Watcher) Refusal(node *corev1.Node) error { return notice.RefuseDrill(node, w.config.Clock) }

// Over returns whether the drill of the Node is over, and how it has ended.
func (w *Watcher) Over(node *corev1.Node, n notice.Notice) (outcome Outcome, over bool) {
	d, stands, err := notice.DrillOf(node)
	switch {
	case !stands || err != nil || !d.End.Equal(n.Deadline):
		return Cancelled, true
	case w.config.Removals.IsUnderWay(node) || w.config.Handshakes.LoseInEarnest(node.Name):
		return Overtaken, true
	}
	if outcome, done := w.isDone(node.Annotations[api.AnnotationDrill], d.Until); done {
		return outcome, true
	}
	return Expired, !w.config.Clock.Now().Before(d.End)
}

// isDone returns whether the drill has reached on all its Nodes what it was to go until. Nodes that are drilled together are restored
// together, because in a reclaim none of them would be there for the pods of the others.
func (w *Watcher) isDone(text string, until notice.Until) (outcome Outcome, done bool) {
	outcome = Completed
	for _, node := range w.config.Cluster.Nodes() {
		if node.Annotations[api.AnnotationDrill] != text {
			continue
		}
		n, reclaiming := w.config.Notices.Of(node)
		if !reclaiming || !n.IsDrill() {
			continue
		}
		done, all := cluster.IsDrained(node), true
		if until == notice.UntilCheckpoint {
			done, all = w.config.Handshakes.HaveSaved(node.Name)
		}
		if !done || !cluster.IsMarked(node) {
			return "", false
		}
		if !all {
			outcome = Missed
		}
	}
	return outcome, true
}
