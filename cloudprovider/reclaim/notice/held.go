package notice

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
)

// Whoever has the token of a sender can push notices for all Nodes at once, and can choose the times of events, so that a false
// notice that was withdrawn could be pushed again at once, or for the next Nodes. Pushed notices beyond a bound are held: nothing
// is done about them before another source confirms them. What is known of former ones is on the Node
// (api.AnnotationReclaimCancelled), also for the next leader.

const (
	// holdAfterWithdrawal is for how long further pushed notices of an instance are held after ECS contradicted one.
	holdAfterWithdrawal = 30 * time.Minute
	// countAfterWithdrawal is for how long an instance counts as unconfirmed after that.
	countAfterWithdrawal = 10 * time.Minute
)

// DefaultMaxUnconfirmed is how many pushed notices are acted upon that nothing has confirmed: a tenth of the spot Nodes.
var DefaultMaxUnconfirmed = intstr.FromString("10%")

// IsHeld returns whether the announcement is a pushed notice that is held already. It stays so until another source announces the
// same or its deadline has passed, or else a flood of false notices would reach all Nodes in turn.
func (s *Store) IsHeld(a Announcement) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	deadline, held := s.held[a.InstanceID]
	return a.Source.NeedsConfirmation() && held && !isOver(deadline, s.clock)
}

// Hold holds a pushed notice. It returns false, and does nothing, if there is another by now that is acted upon.
func (s *Store) Hold(a Announcement) (held bool) {
	n := newNotice(a, s.clock.Now(), s.period)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard[a.InstanceID].isActedUpon() {
		return false
	}
	s.held[n.InstanceID] = n.Deadline
	heldNotices.Set(float64(len(s.held)))
	return true
}

// ReasonToHold returns why the announcement is not to be acted upon, empty if it is, or if it is no pushed notice.
func (s *Store) ReasonToHold(a Announcement) (reason string) {
	if !a.Source.NeedsConfirmation() {
		return ""
	}
	s.mu.Lock()
	known := s.heard[a.InstanceID]
	s.mu.Unlock()
	if known.isActedUpon() {
		return ""
	}
	n := newNotice(a, s.clock.Now(), s.period)
	nodes := s.cluster.NodesOf(n.InstanceID)
	if slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		return cluster.IsMarked(node) && Source(node.Annotations[api.AnnotationReclaimSource]) != SourceDrill
	}) {
		return "" // an earlier leader acts upon it
	}
	for _, node := range nodes {
		if withdrawn := withdrawnAt(node); !withdrawn.IsZero() && n.FirstSeen.Sub(withdrawn) < holdAfterWithdrawal {
			return fmt.Sprintf("ECS contradicted the last one, and the node was restored, at %s", node.Annotations[api.AnnotationReclaimCancelled])
		}
	}
	if others := s.Unconfirmed().Union(withdrawnLately(s.cluster, s.clock)).Len(); others >= s.maxUnconfirmed.Of(s.countSpotNodes()) {
		return fmt.Sprintf("%d others are unconfirmed or were contradicted in the last %v, and no more may be (--reclaim-max-unconfirmed)", others, countAfterWithdrawal)
	}
	return ""
}

// withdrawnAt returns when a notice of the Node was last withdrawn, zero for never.
func withdrawnAt(node *corev1.Node) time.Time {
	return cluster.TimeOf(node, api.AnnotationReclaimCancelled)
}

// withdrawnLately returns the spot instances that had a notice which was withdrawn a short time ago.
func withdrawnLately(c *cluster.Cluster, clk clock.PassiveClock) sets.Set[string] {
	ids := sets.New[string]()
	for _, node := range c.CancelledNodes() {
		if !cluster.IsOnDemand(node) && clk.Since(withdrawnAt(node)) < countAfterWithdrawal {
			ids.Insert(c.InstanceID(node))
		}
	}
	return ids
}

// Unconfirmed returns the instances of which there is nothing but a pushed notice that is acted upon.
func (s *Store) Unconfirmed() sets.Set[string] {
	ids := sets.New[string]()
	for _, node := range s.cluster.MarkedNodes() {
		if Source(node.Annotations[api.AnnotationReclaimSource]).NeedsConfirmation() && !cluster.IsConfirmed(node) {
			ids.Insert(s.cluster.InstanceID(node))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, r := range s.heard {
		if r.notice.Confirmed {
			ids.Delete(id)
		} else {
			ids.Insert(id)
		}
	}
	return ids
}

// ForgetExpiredHeld forgets the held notices that came to nothing, and returns their instances.
func (s *Store) ForgetExpiredHeld() (expired []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, deadline := range s.held {
		if isOver(deadline, s.clock) {
			expired = append(expired, id)
			delete(s.held, id)
		}
	}
	heldNotices.Set(float64(len(s.held)))
	return expired
}

// countSpotNodes counts them once a second: in a flood of pushed notices this is called for each.
func (s *Store) countSpotNodes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.clock.Now(); now.Sub(s.spotsCounted) >= time.Second {
		s.spotsCounted, s.spots = now, len(s.cluster.SpotNodes())
	}
	return s.spots
}
