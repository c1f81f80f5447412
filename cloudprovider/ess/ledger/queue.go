package ledger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
)

const (
	// serialFor is how long purchases are sent one at a time after the scaling group was busy in spite of ParallelTask.
	serialFor = 10 * time.Minute
	// CongestedFor is how long nothing is bought, at least, of a pool whose scaling group took no purchase.
	CongestedFor = time.Minute
	// refusalStands is how long after the last attempt a refused action is reported as a problem. Whether it would still be
	// refused only another attempt can show.
	refusalStands = 10 * time.Minute
)

// queue is what is known about sending purchases to one scaling group.
//
// A scaling group does one thing at a time ("the scaling group has no scaling activities in progress": page of
// ScaleWithAdjustment, September 2026), unless it honours ParallelTask, which no document of this API version mentions. So
// purchases are sent side by side until one is refused because the group is busy, and from then on one at a time, the one
// that brings the most GPUs first.
//
// In a scaling group with a desired capacity they are always sent one at a time, each when the instances of the one before
// are in service: the new desired capacity is the number of stable instances plus what was asked for, so a purchase that is
// sent earlier would be undone by the next one ("Expected number of instances" in the Auto Scaling documentation).
type queue struct {
	// serialUntil: the group was found busy, so it is sent one purchase at a time until then.
	serialUntil time.Time
	// parallelRefused: the cloud does not accept the parameter ParallelTask.
	parallelRefused bool
	// congestedAt is when a purchase was last given up because the group took none; zero once the group takes another.
	congestedAt time.Time
	congestion  string
	// refusals are by action. Each stands until the action succeeds.
	refusals map[string]refusal
	// capacityOnly: in spite of SyncActivity, a purchase only raised the desired capacity of the group.
	capacityOnly bool
}

// refusal says that the cloud refuses an action whatever its parameters are, as for lack of a permission.
type refusal struct {
	alicloud.Diagnosis
	at time.Time
}

// serial returns whether the group is sent one purchase at a time, whatever its desired capacity is.
func (q *queue) serial(now time.Time) bool { return q.parallelRefused || now.Before(q.serialUntil) }

func (q *queue) congest(now time.Time, why string) { q.congestedAt, q.congestion = now, why }

func (q *queue) congested() bool { return !q.congestedAt.IsZero() }

// endCongestion ends it at once.
func (q *queue) endCongestion() { q.congestedAt, q.congestion = time.Time{}, "" }

// relieve ends the congestion after CongestedFor, if none of the group's activities is in progress.
func (q *queue) relieve(activities []alicloud.Activity, now time.Time) {
	inProgress := func(a alicloud.Activity) bool { return !a.Done() }
	if q.congested() && now.Sub(q.congestedAt) >= CongestedFor && !slices.ContainsFunc(activities, inProgress) {
		q.endCongestion()
	}
}

// whyCongested says why nothing is bought of the pool for now.
func (q *queue) whyCongested() string {
	return fmt.Sprintf("the scaling group took no purchase, so nothing is bought until it is done with what it does: %s", q.congestion)
}

// refuse remembers the refusal of an action that somebody has to fix, such as a missing permission. It ignores other errors.
func (q *queue) refuse(err error, now time.Time) {
	if !alicloud.NeedsOperator(err) {
		return
	}
	if q.refusals == nil {
		q.refusals = map[string]refusal{}
	}
	q.refusals[alicloud.ActionOf(err)] = refusal{alicloud.Diagnose(err), now}
}

// allow forgets the refusal of the action.
func (q *queue) allow(action string) { delete(q.refusals, action) }

// addRefusals enters the refused actions as problems of the pool, and forgets those that are over.
func (q *queue) addRefusals(poolID string, now time.Time, found problem.Set) {
	causes := map[problem.Reason][]string{}
	for action, r := range q.refusals {
		if now.Sub(r.at) > refusalStands {
			delete(q.refusals, action)
			continue
		}
		causes[problem.Reason(r.Reason)] = append(causes[problem.Reason(r.Reason)], r.Cause)
	}
	for reason, list := range causes {
		slices.Sort(list)
		found.Add(poolID, reason, strings.Join(list, "; "))
	}
}
