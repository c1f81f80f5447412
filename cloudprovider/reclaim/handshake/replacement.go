package handshake

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// Where pods wait until their new nodes are ready, the job trains meanwhile, and is asked once more for a checkpoint before they leave.
// So it has saved its work early, in case that the instance goes early, and loses nothing if it does not.
const (
	// lastRequestMargin is how long before the deadline the last checkpoint is asked for at the latest, and lastRequestTenths the part of a
	// short notice.
	lastRequestMargin = 90 * time.Second
	lastRequestTenths = 3
	// lastRequestLead is how long before the time limit that is at least, and lastRequestLeadFraction the part of a short notice.
	// Pods with a long grace period leave early.
	lastRequestLead         = 10 * time.Second
	lastRequestLeadFraction = 30
	// savingFactor is how many times as long as it took the job to save its work before it is given the second time.
	savingFactor = 2
	// leastTraining is for how long a job must have trained since its acknowledgement to be asked again.
	leastTraining = 10 * time.Second
	// countEvery is how often the pods that are to leave are counted, and mostCounts is for how long the largest number counts, unless all of
	// them have left before: else the last jobs would begin to wait, because the first have left.
	countEvery = time.Second
	mostCounts = 5 * time.Minute
	// lastSuffix ends the id of a request for the last checkpoint, by which the next leader knows that there is no other.
	lastSuffix = "-last"
)

// replacements knows for which notices there was a place elsewhere at some time. It is safe for concurrent use.
type replacements struct {
	// replaced and ready are those of Config.
	replaced, ready func(node string) bool
	// wait is ReplaceWait.
	wait       time.Duration
	clock      clock.PassiveClock
	departures departures

	mu sync.Mutex
	// found are the notices for which there was a place, readied those for which that was on nodes that are ready: when each was first
	// seen, by instance. What was found for a notice that was withdrawn counts for nothing when the next one comes.
	found, readied map[string]time.Time
}

func newReplacements(config Config) *replacements {
	return &replacements{
		replaced: config.Replaced, ready: config.ReplacementReady, wait: config.ReplaceWait, clock: config.Clock,
		departures: departures{cluster: config.Cluster, notices: config.Notices, rate: config.PodsPerSecond, clock: config.Clock},
		found:      map[string]time.Time{}, readied: map[string]time.Time{},
	}
}

// check observes whether there is a place for what is on the Node, and whether it is ready. A Node for which there was one is not
// checked again.
func (r *replacements) check(node string, n notice.Notice) {
	if r.note(r.found, n, func() bool { return r.replaced(node) }) {
		noticeToReplacement.WithLabelValues(string(n.Source)).Observe(r.clock.Since(n.FirstSeen).Seconds())
	}
	if r.ready != nil && r.note(r.readied, n, func() bool { return r.ready(node) }) {
		noticeToReady.WithLabelValues(string(n.Source)).Observe(r.clock.Since(n.FirstSeen).Seconds())
	}
}

// note adds the notice to those of which it is so, and returns whether that was the first time.
func (r *replacements) note(those map[string]time.Time, n notice.Notice, isSo func() bool) (first bool) {
	r.mu.Lock()
	known := those[n.InstanceID].Equal(n.FirstSeen)
	r.mu.Unlock()
	if known || !isSo() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	first = !those[n.InstanceID].Equal(n.FirstSeen)
	those[n.InstanceID] = n.FirstSeen
	return first
}

// checkAll checks the Nodes that the job loses.
func (r *replacements) checkAll(l loss) {
	checked := sets.New[string]()
	for _, pod := range l.leaving {
		if node := pod.Spec.NodeName; !checked.Has(node) {
			checked.Insert(node)
			r.check(node, pod.notice)
		}
	}
}

// haveAll returns whether there was a place for each of the leaving pods.
func (r *replacements) haveAll(l loss) bool { return r.have(r.found, l) }

// areReady returns whether each of those places was on nodes that are ready, or need not be.
func (r *replacements) areReady(l loss) bool { return r.ready == nil || r.have(r.readied, l) }

func (r *replacements) have(those map[string]time.Time, l loss) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !slices.ContainsFunc(l.leaving, func(pod leavingPod) bool { return !those[pod.notice.InstanceID].Equal(pod.notice.FirstSeen) })
}

// forget is for an instance whose Node is gone, or has no marks any more.
func (r *replacements) forget(instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.found, instance)
	delete(r.readied, instance)
}

func isLastID(id string) bool { return strings.HasSuffix(id, lastSuffix) }

// waitsFor returns why the pods stay until there is a place for them, and when to look again. The reason is empty if they do not.
func (r *replacements) waitsFor(l loss, s state) (reason string, until time.Time) {
	now := r.clock.Now()
	if !r.haveAll(l) {
		reason, until = "there is no place elsewhere yet", notice.Earlier(l.firstSeen().Add(r.wait), l.timeLimit())
	} else if !r.areReady(l) && !s.last && r.hasTime() {
		reason, until = "the nodes that it gets are not ready yet", l.lastRequestAt(s).Add(-r.departures.takes())
	}
	if !now.Before(until) {
		return "", time.Time{}
	}
	return reason, notice.Earlier(now.Add(replaceCheck), until)
}

// hasTime returns whether jobs wait until their new nodes are ready, and are asked once more then. They do not in a reclaim of so many pods that not
// all of them could leave after that.
func (r *replacements) hasTime() bool {
	return r.ready != nil && r.departures.takes() < lastRequestMargin
}

// departures knows how many pods are to leave reclaiming Nodes. It is safe for concurrent use.
type departures struct {
	cluster *cluster.Cluster
	notices *notice.Store
	// rate is PodsPerSecond.
	rate  float64
	clock clock.WithTicker
	// most is the largest number of pods of late.
	most atomic.Int64
}

// run counts the pods until ctx ends.
func (d *departures) run(ctx context.Context) {
	var mostAt time.Time
	work.Every(ctx, d.clock, countEvery, func() {
		now, pods := d.clock.Now(), d.count()
		if pods == 0 || pods >= d.most.Load() || now.Sub(mostAt) >= mostCounts {
			d.most.Store(pods)
			mostAt = now
		}
	})
}

// count returns how many pods are to leave now.
func (d *departures) count() (pods int64) {
	for _, node := range d.cluster.MarkedNodes() {
		if n, reclaiming := d.notices.Of(node); reclaiming && n.Evicts() {
			pods += int64(len(cluster.Drainable(d.cluster.PodsOn(node.Name))))
		}
	}
	return pods
}

// takes returns how long it takes until all pods have left.
func (d *departures) takes() time.Duration {
	if d.rate <= 0 {
		return 0
	}
	return time.Duration(float64(d.most.Load()) / d.rate * float64(time.Second))
}

// lastRequestAt returns until when new nodes may become ready. Then there is time left to save the work once more.
func (l *loss) lastRequestAt(s state) (at time.Time) {
	for _, pod := range l.leaving {
		length := pod.notice.Length()
		latest := notice.Earlier(pod.notice.Deadline.Add(-min(lastRequestMargin, length*lastRequestTenths/10)),
			l.timeLimit().Add(-max(min(lastRequestLead, length/lastRequestLeadFraction), savingFactor*s.took())))
		if at.IsZero() || latest.Before(at) {
			at = latest
		}
	}
	return at
}

// took returns how long the job took to save its work, zero if that is not known.
func (s *state) took() time.Duration {
	if s.last {
		return s.saving
	}
	if !s.acknowledged {
		return 0
	}
	return s.acknowledgedAt.Sub(s.requested)
}

// asksAgain returns whether the job is to be asked for its last checkpoint now that its pods are about to leave: if it has trained since it
// acknowledged the first, for longer than it takes to save the work, and there is time for that.
func (r *replacements) asksAgain(l loss, s state) bool {
	if !r.hasTime() || !s.acknowledged || s.last || l.awaitsUntil(s).IsZero() || l.isDoneTraining(s, true) ||
		s.job != nil && (s.job.Suspended || s.job.Finished) {
		return false
	}
	now := r.clock.Now()
	return now.Sub(s.acknowledgedAt) >= max(leastTraining, s.took()) && now.Add(s.took()).Before(l.timeLimit())
}

// isDoneTraining returns whether a job that has acknowledged has ended, and would begin again on a Node that is released. Where it is not
// asked again, all that restarts in place is taken to end.
func (l *loss) isDoneTraining(s state, isAskedAgain bool) bool {
	if !isAskedAgain {
		return l.restartsInPlace()
	}
	for _, pod := range l.leaving {
		for _, container := range pod.Status.ContainerStatuses {
			if hasEndedSince(container.State, s.requested) || hasEndedSince(container.LastTerminationState, s.requested) {
				return true
			}
		}
	}
	return false
}

func hasEndedSince(state corev1.ContainerState, since time.Time) bool {
	return state.Terminated != nil && !state.Terminated.FinishedAt.Time.Before(since)
}
