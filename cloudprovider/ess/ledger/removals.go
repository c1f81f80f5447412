package ledger

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
)

var (
	// ErrBelowMinimum is returned for an instance whose removal would take its pool below its minimum.
	ErrBelowMinimum = errors.New("the pool is at its minimum")
	// ErrKept is returned for an instance that somebody has told ESS to keep: it is protected from scale-in, on standby or
	// stopped.
	ErrKept = errors.New("its lifecycle state keeps it")
	// errNotInPool is returned for an instance that is in no pool, or in another one.
	errNotInPool = errors.New("it is not in the pool")
)

const (
	// listingLag is how long after the end of a removal its instances may still be listed. How far DescribeScalingInstances
	// lags behind the end of an activity is not documented.
	listingLag = time.Minute
	// RemovalTimeout is how long a removal may take from its acceptance: a minute to stop, the lifecycle hooks of the group,
	// the activities before it in the group. An instance that is still listed then counts again.
	RemovalTimeout = 15 * time.Minute
	// unseenTime is for how long a removal is taken to be in progress whose activity could not be read.
	unseenTime = 30 * time.Second
	// MaxRetries is how often a removal is asked for again that the cloud accepted and did not carry out.
	MaxRetries = 3
)

// RemovalReason is why an instance is removed. It decides what may keep the instance. Of several reasons the strongest
// counts, which is the one that is last here.
type RemovalReason int

const (
	// Unneeded: the pool keeps its minimum, and the instances that ESS was told to keep stay.
	Unneeded RemovalReason = iota
	// CameShort: the instance came of an atomic purchase that came short. The minimum does not matter.
	CameShort
	// Forced: neither matters.
	Forced
)

// removal is an instance on its way out. It does not count any more, from before the cloud is asked until it is gone.
type removal struct {
	poolID string
	reason RemovalReason
	// activityID and accepted are empty until the cloud has accepted the removal.
	activityID string
	accepted   time.Time
	// begun: the activity was seen in progress. ended is when it was seen to have ended, end is how.
	begun bool
	ended time.Time
	end   alicloud.Activity
}

// failedRemoval is an instance whose removal the cloud accepted and did not carry out.
type failedRemoval struct {
	FailedRemoval
	retries int
	// due: it has to be asked for again.
	due bool
}

// FailedRemoval is an instance whose removal has to be asked for again.
type FailedRemoval struct {
	PoolID string
	Reason RemovalReason
}

// Removals is where package remover enters removals and the cloud's answers. It is safe for concurrent use.
type Removals struct{ state *state }

// Begin marks the instances that may be removed as being removed, and returns them and an error for each that may not. It
// ignores instances that are being removed already.
func (s *Removals) Begin(poolID string, wanted map[string]RemovalReason) (begun []string, refused map[string]error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	spare := 0
	if known := s.state.facts.Pools[poolID]; known != nil {
		spare = s.state.last.PoolSize(poolID).Live - known.MinSize
	}
	refused = map[string]error{}
	for _, id := range sets.List(sets.KeySet(wanted)) {
		instance, listed := s.state.facts.Instances[id]
		switch reason := wanted[id]; {
		case !listed || instance.ScalingGroupID != poolID:
			refused[id] = errNotInPool
			continue
		case s.state.facts.IsLeaving(instance):
			continue
		case snapshot.IsKept(instance) && reason != Forced:
			refused[id] = fmt.Errorf("%w: it is %s", ErrKept, instance.LifecycleState)
			continue
		case s.state.facts.StandingOf(instance) == snapshot.Serving:
			if spare--; spare < 0 && reason == Unneeded {
				refused[id] = ErrBelowMinimum
				continue
			}
		}
		s.state.removals[id] = &removal{poolID: poolID, reason: wanted[id]}
		begun = append(begun, id)
	}
	return begun, refused
}

// Accepted enters that the cloud removes the instances. The activity is empty for those that are in no scaling group. The snapshot
// shows them as being removed since Begin.
func (s *Removals) Accepted(poolID, activityID string, ids []string) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for _, id := range ids {
		if leaving := s.state.removals[id]; leaving != nil {
			leaving.activityID, leaving.accepted = activityID, s.state.config.Clock.Now()
		}
	}
	action := "RemoveInstances"
	if activityID == "" {
		action = "DeleteInstances"
	}
	s.state.account(poolID).queue.allow(action)
	removedInstances.WithLabelValues(poolID).Add(float64(len(ids)))
}

// Refused enters that the cloud does not remove the instances. They count again.
func (s *Removals) Refused(poolID string, ids []string, err error) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	s.state.account(poolID).queue.refuse(err, s.state.config.Clock.Now())
	for _, id := range ids {
		delete(s.state.removals, id)
	}
}

// InProgress returns whether the cloud has accepted a removal of the pool that was not seen to have ended. A removal that was not
// seen at all for unseenTime does not count: it may never be seen.
func (s *Removals) InProgress(poolID string) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for _, leaving := range s.state.removals {
		if leaving.poolID == poolID && leaving.activityID != "" && leaving.ended.IsZero() &&
			(leaving.begun || s.state.config.Clock.Since(leaving.accepted) < unseenTime) {
			return true
		}
	}
	return false
}

// PurchasesWait returns whether purchases of the pool wait for their turn to be sent.
func (s *Removals) PurchasesWait(poolID string) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	a := s.state.account(poolID)
	return a.inTurn() && len(a.waiting()) > 0
}

// Due returns the failed removals that have to be asked for again, by instance.
func (s *Removals) Due() map[string]FailedRemoval {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	due := map[string]FailedRemoval{}
	for id, failed := range s.state.failedRemovals {
		if failed.due {
			due[id] = failed.FailedRemoval
		}
	}
	return due
}

// AskedAgain enters that a failed removal was asked for again.
func (s *Removals) AskedAgain(id string) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if failed, known := s.state.failedRemovals[id]; known {
		failed.due = false
		failed.retries++
		s.state.failedRemovals[id] = failed
	}
}

// DropRetry forgets that a removal failed, because the instance is to be used again.
func (s *Removals) DropRetry(id string) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	delete(s.state.failedRemovals, id)
}

// Keep enters that the instances stay though the purchase that they came of came short, because pods run on them. They count again.
func (s *Removals) Keep(poolID string, ids sets.Set[string]) {
	s.state.mu.Lock()
	defer s.state.publishAndUnlock()
	for id := range ids {
		delete(s.state.removals, id)
		delete(s.state.failedRemovals, id)
	}
	for _, p := range s.state.account(poolID).book {
		s.state.keep(p, ids)
	}
}

// CameShort returns those of the instances that are removed because they came of an atomic purchase that came short.
func (s *Removals) CameShort(ids []string) sets.Set[string] {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	short := sets.New[string]()
	for _, id := range ids {
		if leaving := s.state.removals[id]; leaving != nil && leaving.reason == CameShort {
			short.Insert(id)
		}
	}
	return short
}

// reconcileRemovals forgets instances that are gone, and has those count again that the cloud did not remove.
func (s *state) reconcileRemovals(activities map[string]alicloud.Activity, now time.Time) {
	maps.DeleteFunc(s.failedRemovals, func(id string, _ failedRemoval) bool { return !s.listed(id) })
	for id, leaving := range s.removals {
		if leaving.accepted.IsZero() {
			continue // the cloud has not answered yet
		}
		instance, exists := s.facts.Instances[id]
		if !exists {
			delete(s.removals, id)
			continue
		}
		switch activity, read := activities[leaving.activityID]; {
		case read && activity.Done() && leaving.ended.IsZero(): // later refreshes of a busy pool read it again
			leaving.ended, leaving.end = now, activity
		case read:
			leaving.begun = true
		}
		rolledBack := leaving.end.Status == alicloud.ActivityFailed || leaving.end.Status == alicloud.ActivityRejected
		stays := !leaving.ended.IsZero() && now.Sub(leaving.ended) >= listingLag
		if rolledBack || stays || now.Sub(leaving.accepted) > RemovalTimeout {
			delete(s.removals, id)
			s.reportFailed(leaving, instance)
			retries := s.failedRemovals[id].retries
			s.failedRemovals[id] = failedRemoval{FailedRemoval{leaving.poolID, leaving.reason}, retries, retries < MaxRetries}
		}
	}
}

// reportFailed reports an instance that still exists after its removal. It counts again, unless ESS goes on removing it.
func (s *state) reportFailed(leaving *removal, instance alicloud.ScalingInstance) {
	failedRemovals.WithLabelValues(leaving.poolID).Inc()
	why := fmt.Sprintf("activity %s has not ended within %v", leaving.activityID, RemovalTimeout)
	if !leaving.ended.IsZero() {
		why = fmt.Sprintf("activity %s has ended as %s %s %s %s", leaving.activityID, leaving.end.Status, leaving.end.StatusDetail, leaving.end.ErrorCode, leaving.end.ErrorMessage)
	}
	klog.InfoS("An instance was not removed", "pool", leaving.poolID, "instance", instance.ID, "state", instance.LifecycleState, "reason", why)
	s.config.Events.Eventf(apiv1.EventTypeWarning, "SpotRemovalFailed", "Pool %s still has instance %s (%s), which was to be removed: %s",
		leaving.poolID, instance.ID, instance.LifecycleState, strings.TrimSpace(why))
}
