package supervisor

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"gpu-spot-autoscaler/cloudprovider/jobs/queues"
)

const (
	// releaseTime is how long Kueue may take to give back the quota of a job that it has suspended, and to say so.
	releaseTime = 15 * time.Second
	// admissionTime is how long quota has to be left before it is counted on: those that wait for it are admitted by then.
	admissionTime = lookEvery
	// nodesTime is how long a job that Kueue admits only on nodes that are ready waits for quota of its own. After that nodes are bought for
	// it: it may borrow, or preempt others, which only Kueue knows.
	nodesTime = 10 * time.Minute
	// quotasUnreadTime is for how long nothing new is offered of a queue whose quotas cannot be read.
	quotasUnreadTime = time.Minute
)

// isLetIn returns whether Kueue would admit the job's gang at once, as it does jobs of no queue. If others have its quota, the job is put
// back into its queue, where it comes up in its turn; Kueue decides then, and its pods are bought for like any that are pending.
// A job that Kueue admits only on nodes that are ready would wait there for ever, so it stays held until there is quota, or for nodesTime.
func (j *heldJob) isLetIn(gang *gang, v view) bool {
	queue, isQueued := j.job.Queue()
	switch {
	case !isQueued:
		return true
	case v.quotasUnread:
		return gang == j.gang
	case v.quotas == nil:
		return true
	}
	if gang.uses == nil {
		gang.uses = queues.Uses(gang.pods)
	}
	if v.quotas.Holds(queue, gang.uses) {
		v.quotas.Claim(queue, gang.uses)
		j.noQuotaSince = time.Time{}
		if j.quotaSince.IsZero() {
			j.quotaSince = v.now
		}
		return gang == j.gang || v.now.Sub(j.quotaSince) >= admissionTime
	}
	j.quotaSince = time.Time{}
	switch {
	case j.noQuotaSince.IsZero():
		j.noQuotaSince = v.now
	case v.now.Sub(j.noQuotaSince) < releaseTime:
	case v.quotas.NeedsNodes(queue, gang.pods) && v.now.Sub(j.noQuotaSince) >= nodesTime:
		return true
	case v.quotas.NeedsNodes(queue, gang.pods):
		err := &queueError{queue}
		j.pauseFor(v.now, "its queue is full", err)
		j.explain(ReasonOverQuota, err, v)
	default:
		j.due = &action{kind: actionQueue}
	}
	return false
}

// queueError says that the queue of a job has no quota left for it.
type queueError struct{ queue types.NamespacedName }

func (e *queueError) Error() string {
	return fmt.Sprintf("the ClusterQueue of LocalQueue %s has too little of its own quota left for it, and Kueue admits it only on nodes that are ready: "+
		"they are bought once there is quota, or after %v", e.queue, nodesTime)
}
