package supervisor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/queues"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/work"
)

// heldJobs knows what is tried to resume or grow the jobs that are held, and to grow those that are to have more workers than they ask
// for. It is safe for concurrent use.
type heldJobs struct {
	jobs     Jobs
	queues   Queues
	pods     podCounter
	nodes    corelisters.NodeLister
	gangs    *gangMaker
	recorder record.EventRecorder
	clock    clock.PassiveClock
	queue    work.Queue[task]
	wake     func()
	// maxGrowth is the most that the operator allows.
	maxGrowth jobs.Growth
	// unreadSince is since when the quotas of Kueue cannot be read. Only look has it.
	unreadSince time.Time

	mu      sync.Mutex
	isKnown bool // which jobs are held
	byRef   heldSet
}

// heldSet is the held jobs by the String of their Ref.
type heldSet map[string]*heldJob

// look compares the jobs that are held with what is tried for them.
func (h *heldJobs) look(ctx context.Context) {
	isKnown := h.jobs.HasSynced() // before they are read
	held := h.jobs.Held(ctx)
	quotas, unread := h.quotas(ctx, held)
	if h.update(ctx, append(held, h.jobs.Growing()...), reclaimingNodes(h.nodes), quotas, unread) {
		h.wake()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.isKnown = isKnown
}

// quotas returns what the ClusterQueues of Kueue have left, nil if no job that may be resumed is in a queue. They are unread if they could not be
// read just now. After quotasUnreadTime the jobs are taken to have quota: a right that is missing must not hold them for ever.
func (h *heldJobs) quotas(ctx context.Context, held []jobs.Job) (quotas *queues.Quotas, unread bool) {
	if !slices.ContainsFunc(held, mayReturnToQueue) {
		return nil, false
	}
	quotas, err := h.queues.Quotas(ctx)
	if err == nil {
		h.unreadSince = time.Time{}
		return quotas, false
	}
	klog.FromContext(ctx).Error(err, "Cannot read the quotas of the queues that held jobs are in")
	if h.unreadSince.IsZero() {
		h.unreadSince = h.clock.Now()
	}
	return nil, h.clock.Since(h.unreadSince) < quotasUnreadTime
}

func mayReturnToQueue(job jobs.Job) bool {
	_, isQueued := job.Queue()
	return isQueued && job.Suspended && !job.Finished && job.HeldReason() != jobs.HeldForMaxWait
}

// update takes in the jobs that are held or are to grow, and returns whether there is a new gang to look for capacity for.
func (h *heldJobs) update(ctx context.Context, held []jobs.Job, reclaiming []string, quotas *queues.Quotas, unread bool) (hasNewGang bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(held, h.compare)
	view := view{now: h.clock.Now(), pods: h.pods, reclaiming: reclaiming, gangs: h.gangs, offers: h.gangs.offers(h.byRef), recorder: h.recorder, maxGrowth: h.maxGrowth, quotas: quotas, quotasUnread: unread}
	seen := map[string]bool{}
	counts := map[[2]string]float64{}
	for _, job := range held {
		key := job.String()
		seen[key] = true
		j := h.byRef[key]
		var before *gang
		if j != nil {
			before = j.gang
		}
		if j == nil || j.job.UID != job.UID {
			j = &heldJob{}
			h.byRef[key] = j
		}
		if job.HeldAs() == "" {
			h.lookAtUnheld(j, view.now)
		}
		if j.update(job, view.now) && j.mayHaveStaleShrinks {
			h.queue.Add(task{Ref: job.Ref, shrinks: true})
		}
		if j.heldAs != "" {
			counts[[2]string{job.System, j.reason()}]++
		}
		hadGang := j.gang != nil
		j.decide(view)
		j.logPause(ctx)
		view.offers.replace(j, before)
		hasNewGang = hasNewGang || !hadGang && j.gang != nil
		if j.due != nil {
			h.queue.Add(task{Ref: job.Ref})
		}
	}
	for key, j := range h.byRef {
		if !seen[key] {
			j.observeEnd(view.now)
			delete(h.byRef, key)
			h.lookAtUnheld(j, view.now)
		}
	}
	jobsHeld.Reset()
	for labels, count := range counts {
		jobsHeld.WithLabelValues(labels[0], labels[1]).Set(count)
	}
	return hasNewGang
}

// compare puts those jobs first for which capacity is looked for already, and of these those that have been held for longest: quota that they
// count on is not promised to others.
func (h *heldJobs) compare(a, b jobs.Job) int {
	rank := func(job jobs.Job) (isLater int, since time.Time) {
		j := h.byRef[job.String()]
		if j == nil || j.gang == nil {
			isLater = 1
		}
		if j != nil {
			since = j.since
		}
		return isLater, since
	}
	laterA, sinceA := rank(a)
	laterB, sinceB := rank(b)
	return cmp.Or(cmp.Compare(laterA, laterB), sinceA.Compare(sinceB), cmp.Compare(a.String(), b.String()))
}

// isAnyToReturn returns whether there is a job that is to be resumed or grown, or may be, as long as it is not known which are held.
func (h *heldJobs) isAnyToReturn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isKnown {
		return true
	}
	for _, j := range h.byRef {
		if j.heldAs != "" && !j.job.Finished && j.job.Problem == nil && j.reason() != string(jobs.HeldForMaxWait) {
			return true
		}
	}
	return false
}

// hasMaxWait returns whether the job of the Ref has a maximum wait.
func (h *heldJobs) hasMaxWait(ref string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.byRef[ref]
	return j != nil && j.job.MaxWait > 0
}

// returning returns the gangs for which capacity is looked for, that of the job first that has been held for longest, and those last that
// jobs would be grown by beyond what they ask for.
func (h *heldJobs) returning() (gangs []podlist.StandInGang) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, j := range h.byRef {
		if j.gang != nil {
			gangs = append(gangs, podlist.StandInGang{Ref: key, Pods: j.gang.pods, Min: j.gang.min, Extra: j.extra()})
		}
	}
	slices.SortFunc(gangs, func(a, b podlist.StandInGang) int {
		return cmp.Or(cmp.Compare(min(a.Extra, 1), min(b.Extra, 1)), h.byRef[a.Ref].since.Compare(h.byRef[b.Ref].since))
	})
	return withinExtra(gangs)
}

// fits has the job resumed or grown if enough of its gang would run at once.
func (h *heldJobs) fits(ref string, found podlist.Placement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.byRef[ref]
	if j == nil || j.gang == nil {
		return
	}
	j.place(found, h.clock.Now())
	if j.due != nil {
		j.gang = nil
		h.queue.Add(task{Ref: j.job.Ref})
	}
}

// task is something to look at of a held job: whether it is to be resumed or grown, what its system was asked for when it shrunk it, or
// whether it exists although it is not held any more, and nothing was done to it.
type task struct {
	jobs.Ref
	shrinks bool
	unheld  types.UID
}

// sync returns after how long to look again; zero is never.
func (h *heldJobs) sync(ctx context.Context, due task) (again time.Duration, err error) {
	if due.shrinks {
		return h.cancelStaleShrinks(ctx, due.Ref)
	}
	if due.unheld != "" {
		return 0, h.tellUnheld(ctx, due.Ref, due.unheld)
	}
	h.carryOut(ctx, due.Ref)
	return 0, nil
}

// carryOut does to the job what is due.
func (h *heldJobs) carryOut(ctx context.Context, ref jobs.Ref) {
	h.mu.Lock()
	j := h.byRef[ref.String()]
	if j == nil || j.due == nil {
		h.mu.Unlock()
		return
	}
	due, was := *j.due, *j
	h.mu.Unlock()

	err := h.do(ctx, was, due)
	if busy := (*jobs.BusyError)(nil); err != nil && !errors.As(err, &busy) {
		klog.FromContext(ctx).Error(err, "Could not change a held job", "job", ref)
	}

	h.mu.Lock()
	defer h.mu.Unlock()
	if !j.isHeldAnewSince(was) {
		j.done(due, err, h.clock.Now())
	}
}

func (h *heldJobs) do(ctx context.Context, j heldJob, due action) error {
	switch {
	case due.kind == actionSuspend:
		return h.jobs.Suspend(ctx, j.job, jobs.HeldForReclaim)
	case due.kind == actionQueue:
		return h.queues.Return(ctx, j.job)
	case due.kind == actionGrowBeyond:
		return h.jobs.GrowBeyond(ctx, j.job, due.workers)
	case due.kind == actionGrow, due.kind == actionUnhold && j.heldAs == jobs.HeldShrunk && !j.job.Finished:
		return h.jobs.Grow(ctx, j.job, due.workers)
	case due.kind == actionUnhold && (j.job.Finished || j.isResumedByOther()):
		return h.jobs.Unhold(ctx, j.job)
	default:
		return h.jobs.Resume(ctx, j.job, due.workers)
	}
}

// lookAtUnheld has the owner of a job told that is not held any more without having been resumed or grown. Its label may be taken off again
// shortly after it was written, if its system cannot suspend it.
func (h *heldJobs) lookAtUnheld(j *heldJob, now time.Time) {
	if j.heldAs != "" && j.releasedAt.IsZero() && j.due == nil && j.isSettled(now) {
		h.queue.Add(task{Ref: j.job.Ref, unheld: j.job.UID})
	}
}

// tellUnheld tells the owner of a job, unless it was deleted, that somebody removed its held label, by which alone a new leader would know
// that it is held.
func (h *heldJobs) tellUnheld(ctx context.Context, ref jobs.Ref, uid types.UID) error {
	job, err := h.jobs.Get(ctx, ref)
	malformed := (*jobs.FieldError)(nil)
	switch {
	case errors.Is(err, jobs.ErrNoObject), errors.As(err, &malformed):
		return nil
	case err != nil:
		return err
	case job.UID != uid || job.HeldAs() != "" || job.Finished:
		return nil
	}
	state := "It runs, and is left alone"
	if job.Suspended {
		state = "It stays suspended until somebody resumes it"
	}
	h.recorder.Eventf(job.Object, corev1.EventTypeWarning, jobs.ReasonUnheldByOther, "%s: somebody removed the label %s. "+
		"If it was a tool such as Argo CD, have it ignore that label, and not replace the object (Replace=true)", state, api.LabelHeld)
	return nil
}

// cancelStaleShrinks withdraws requests to shrink the job that its system has not begun with and whose workers are all gone. It
// returns when to look again, zero for never. Handshakes do the same, but a job whose workers went while nobody led has none.
func (h *heldJobs) cancelStaleShrinks(ctx context.Context, ref jobs.Ref) (again time.Duration, err error) {
	h.mu.Lock()
	j := h.byRef[ref.String()]
	if j == nil || !j.mayHaveStaleShrinks {
		h.mu.Unlock()
		return 0, nil
	}
	was := *j
	h.mu.Unlock()

	err = h.jobs.CancelStaleShrinks(ctx, ref)
	if busy := (*jobs.BusyError)(nil); errors.As(err, &busy) {
		return staleShrinkEvery, nil
	}
	if err != nil && !errors.Is(err, jobs.ErrNoObject) {
		return 0, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !j.isHeldAnewSince(was) {
		j.mayHaveStaleShrinks = false
	}
	return 0, nil
}

// podDeleted looks again at what the system of a shrunk job was asked for. The pod may be the last one that the system was asked
// to take out, and the deletion wakes the system, too.
func (h *heldJobs) podDeleted(ref jobs.Ref) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if j := h.byRef[ref.String()]; j != nil && j.mayHaveStaleShrinks {
		h.queue.Add(task{Ref: ref, shrinks: true})
	}
}

// view is what heldJobs decides by, at one moment.
type view struct {
	now        time.Time
	pods       podCounter
	reclaiming []string // the names of Nodes that are being reclaimed
	gangs      *gangMaker
	offers     *offers
	recorder   record.EventRecorder
	maxGrowth  jobs.Growth
	// quotas are those of Kueue, nil if no job is in a queue. quotasUnread is whether they could not be read just now.
	quotas       *queues.Quotas
	quotasUnread bool
}
