package supervisor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

const (
	// heldTime is how long a job is held at least before its marks are taken for out of date: they are written before what
	// they tell of has happened. Some systems suspend a job in their own time, so that without new pods it takes longer to
	// conclude that somebody has resumed it.
	heldTime, heldWithoutPodsTime = 15 * time.Second, 5 * time.Minute
	// quietTime is how long a job is left alone after it was resumed or grown, until its pods are there.
	quietTime = 15 * time.Second
	// probeTime is for how long a probe goes on that finds no place for the gang; then there is a pause, which doubles from
	// firstPause to lastPause as long as nothing changes.
	probeTime  = 30 * time.Second
	firstPause = 15 * time.Second
	lastPause  = 2 * time.Minute
	// companyTime is how long the first workers that a job could be grown by wait for others that are coming. Each change
	// of its size costs a job some training.
	companyTime = 2 * time.Minute
)

// verb is what is to be done to a job.
type verb int

const (
	verbResume verb = iota
	verbGrow
	// verbRelease takes the marks off a job that somebody has resumed, or that is whole again.
	verbRelease
	// verbSuspend suspends a job that has ended because it was told to, for a leader that did not come to it.
	verbSuspend
)

// action is what a job is waiting for a worker to do to it.
type action struct {
	verb    verb
	workers int
}

// probe is a job that is held, and what is being tried to bring it back.
type probe struct {
	job jobs.Job
	// how is the value of api.LabelHeld, since when it was first held so; stated is how the job says that.
	how, stated string
	since       time.Time
	// gang is what the loop is to find a place for; nil while there is nothing to be tried.
	gang *gang
	// lacking is since when there is no place for the gang, zero while there is.
	lacking time.Time
	// until then nothing is tried; pause is how long the last pause was.
	until time.Time
	pause time.Duration
	due   *action
	// told is the reason of the Event that says why the job stays held, empty before.
	told string
}

// gang is pods that the job would get back.
type gang struct {
	pods []*corev1.Pod
	// min of them must have a place at the same time; indispensable are those without which the others are nothing.
	min            int
	indispensable  []*corev1.Pod
	launchers      int
	offered        time.Time
	dynamic, grows bool
	// missing is how many workers the job lacked, of one that grows.
	missing int
}

// reclaiming selects the Nodes that are being reclaimed.
var reclaiming = labels.SelectorFromSet(labels.Set{api.LabelReclaiming: "true"})

// look compares the jobs that are held with what is being tried.
func (s *Supervisor) look() {
	held := s.Jobs.Held()
	reclaimed := s.reclaimedNodes()
	s.mu.Lock()
	now, wake := s.Clock.Now(), false
	seen := map[string]bool{}
	counts := map[[2]string]float64{}
	for _, job := range held {
		key := job.String()
		seen[key] = true
		p := s.probes[key]
		if p == nil || p.job.UID != job.UID {
			p = &probe{}
			s.probes[key] = p
		}
		p.read(job, now)
		counts[[2]string{job.System, p.reason()}]++
		had := p.gang != nil
		s.consider(p, now, reclaimed)
		wake = wake || !had && p.gang != nil
		if p.due != nil {
			s.queue.Add(task{kind: taskRecover, ref: job.Ref})
		}
	}
	for key, p := range s.probes {
		if !seen[key] {
			p.ended(now)
			delete(s.probes, key)
		}
	}
	s.mu.Unlock()
	countHeld(counts)
	if wake {
		s.Wake()
	}
}

func countHeld(counts map[[2]string]float64) {
	jobsHeld.Reset()
	for of, count := range counts {
		jobsHeld.WithLabelValues(of[0], of[1]).Set(count)
	}
}

// reclaimedNodes are the names of the nodes that are being reclaimed.
func (s *Supervisor) reclaimedNodes() []string {
	var names []string
	nodes, _ := s.nodes.List(reclaiming)
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	return names
}

// read takes in what the job's object says now. Of a job that is held anew, what was tried before says nothing.
func (p *probe) read(job jobs.Job, now time.Time) {
	how, stated := job.Object.GetLabels()[api.LabelHeld], job.Object.GetAnnotations()[api.AnnotationHeldSince]
	if how != p.how && p.how != "" {
		p.ended(now)
	}
	if how != p.how || stated != p.stated {
		*p = probe{how: how, stated: stated, since: now}
		if since, err := time.Parse(time.RFC3339, stated); err == nil {
			p.since = since
		}
	}
	p.job = job
}

// refs are all that pods of the job may have.
func (p *probe) refs() []jobs.Ref { return append([]jobs.Ref{p.job.Ref}, p.job.Parts...) }

func (p *probe) ended(now time.Time) {
	heldSeconds.WithLabelValues(p.job.System).Observe(now.Sub(p.since).Seconds())
}

// reason is the one for which the job is suspended, or "shrunk".
func (p *probe) reason() string {
	if p.how == jobs.HeldShrunk {
		return jobs.HeldShrunk
	}
	return p.job.Object.GetAnnotations()[api.AnnotationHeldReason]
}

// wanted is how many workers the job had, or asks for, and no more than it may have.
func (p *probe) wanted() int {
	count, err := strconv.Atoi(p.job.Object.GetAnnotations()[api.AnnotationHeldReplicas])
	if err != nil || count <= 0 {
		count = p.job.Replicas
	}
	if p.job.Max > 0 { // else it could not be read
		count = min(count, p.job.Max)
	}
	return count
}

// consider decides what is to be tried. Needs s.mu.
func (s *Supervisor) consider(p *probe, now time.Time, reclaimed []string) {
	resting := now.Before(p.until) || p.due != nil
	switch {
	case resting, p.job.Finished, p.wanted() == 0: // the latter of a job that cannot be read
		p.gang = nil
	case p.how == jobs.HeldSuspended && !p.job.Suspended:
		p.gang = nil
		s.considerMarked(p, now, reclaimed)
	case p.how == jobs.HeldSuspended && p.reason() != string(jobs.ReasonMaxWait):
		s.considerSuspended(p, now)
	case p.how == jobs.HeldShrunk && !p.job.Suspended:
		s.considerShrunk(p, now, reclaimed)
	default:
		p.gang = nil
	}
}

// considerMarked is about a job that is marked as suspended and is not: it was told to stop first, or its owner has resumed it.
func (s *Supervisor) considerMarked(p *probe, now time.Time, reclaimed []string) {
	back := s.crews.census(p.refs()...).newest.After(p.since)
	switch {
	case !p.settled(now):
	case p.job.Stopped:
		p.due = &action{verb: verbSuspend}
	case p.job.StopRequested && s.losesNodes(p, reclaimed): // it may save its work until they are released
	case back || now.Sub(p.since) >= heldWithoutPodsTime:
		p.due = &action{verbRelease, p.wanted()}
	}
}

// settled says whether the marks are so old that what they tell of must have happened.
func (p *probe) settled(now time.Time) bool { return now.Sub(p.since) >= heldTime }

// losesNodes says whether pods of the job are on nodes that are being reclaimed.
func (s *Supervisor) losesNodes(p *probe, reclaimed []string) bool {
	return slices.ContainsFunc(reclaimed, func(node string) bool {
		own, _ := s.crews.on(node, p.job.String())
		return own > 0
	})
}

// considerSuspended offers the whole gang, once no pod of the job is left that would be bought for twice.
func (s *Supervisor) considerSuspended(p *probe, now time.Time) {
	switch {
	case s.crews.census(p.refs()...).pods > 0:
		p.gang = nil
	case p.gang == nil:
		s.offer(p, now)
	}
}

// considerShrunk offers the workers that are missing, once those that leave are gone. A job that lacks none is whole again
// only when its marks have settled, which are written before it has shrunk, and when its pods are there: its system may be
// late to see that some are gone.
func (s *Supervisor) considerShrunk(p *probe, now time.Time, reclaimed []string) {
	counted := s.crews.census(p.job.Ref)
	missing := p.wanted() - max(p.job.Replicas, counted.workers+counted.wanted)
	switch {
	case counted.leaving > 0 || s.losesNodes(p, reclaimed):
		p.gang = nil
	case missing <= 0:
		p.gang = nil
		if p.settled(now) && p.job.Replicas >= p.wanted() && counted.workers+counted.wanted >= p.wanted() {
			p.due = &action{verbRelease, p.wanted()}
		}
	case p.gang == nil || p.gang.missing != missing:
		s.offerMore(p, missing, now)
	}
}

// offer makes a gang of all pods of the job. Needs s.mu.
func (s *Supervisor) offer(p *probe, now time.Time) {
	pods, err := s.boundedGang(p, p.wanted())
	if busy := (*jobs.BusyError)(nil); errors.As(err, &busy) {
		return // its system still ends what was there: the next look asks again
	}
	if err != nil || len(pods) == 0 {
		s.stay(p, now, "its pods cannot be told", err)
		return
	}
	g := &gang{pods: pods, min: len(pods), offered: now, dynamic: p.isDynamic()}
	for _, pod := range pods {
		switch s.Jobs.Member(pod).Role {
		case jobs.RoleLauncher:
			g.launchers++
			g.indispensable = append(g.indispensable, pod)
		case jobs.RoleHost:
			g.indispensable = append(g.indispensable, pod)
		}
	}
	if g.dynamic {
		g.min = min(len(pods), max(len(g.indispensable), g.launchers+p.least()))
	}
	p.gang, p.lacking = g, time.Time{}
}

// offerMore makes a gang of so many workers. Needs s.mu.
func (s *Supervisor) offerMore(p *probe, missing int, now time.Time) {
	more := missing
	pods, most, err := s.roomyGang(p, p.wanted())
	more -= p.wanted() - most
	var workers []*corev1.Pod
	for _, pod := range pods {
		if s.Jobs.Member(pod).Role == jobs.RoleWorker {
			workers = append(workers, pod)
		}
	}
	if err != nil || more <= 0 || len(workers) < more {
		s.stay(p, now, "its workers cannot be told", err)
		return
	}
	workers = workers[len(workers)-more:]
	fit, err := s.withinQuota(p, workers)
	if fit > 0 && p.isDynamic() {
		workers, err = workers[:fit], nil
	}
	if err != nil {
		s.stay(p, now, "its workers are not let in", err)
		return
	}
	g := &gang{pods: workers, min: len(workers), offered: now, dynamic: p.isDynamic(), grows: true, missing: missing}
	if g.dynamic {
		g.min = 1
	}
	p.gang, p.lacking = g, time.Time{}
}

// rest tries nothing for a while.
func (p *probe) rest(now time.Time, why string, err error) {
	p.pause = min(max(2*p.pause, firstPause), lastPause)
	p.until, p.gang, p.due = now.Add(p.pause), nil, nil
	klog.V(1).Infof("%s stays held for another %v: %s (%v)", p.job.Ref, p.pause, why, err)
}

// Returning are the gangs that are being tried.
func (s *Supervisor) Returning() (returning []podlist.ReturningGang) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, p := range s.probes {
		if p.gang != nil {
			returning = append(returning, podlist.ReturningGang{Ref: key, Pods: p.gang.pods, Min: p.gang.min})
		}
	}
	slices.SortFunc(returning, func(a, b podlist.ReturningGang) int {
		return s.probes[a.Ref].since.Compare(s.probes[b.Ref].since) // who waits longest goes first
	})
	return returning
}

// Fits has the job resumed or grown if enough of the gang would run at once.
func (s *Supervisor) Fits(ref string, found podlist.Placement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.probes[ref]
	if p == nil || p.gang == nil {
		return
	}
	now := s.Clock.Now()
	workers, enough := p.gang.enough(found, now)
	switch {
	case enough && p.gang.grows:
		p.due = &action{verbGrow, min(p.wanted(), p.job.Replicas+workers)}
	case enough:
		p.due = &action{verbResume, workers}
	case len(found.Ready)+len(found.Coming) >= p.gang.min:
		p.lacking = time.Time{} // its nodes are on their way
	case p.lacking.IsZero():
		p.lacking = now
	case now.Sub(p.lacking) >= probeTime:
		p.rest(now, "there is no capacity for it", nil)
	}
	if p.due != nil {
		p.gang = nil
		s.queue.Add(task{kind: taskRecover, ref: p.job.Ref})
	}
}

// enough says whether the job can go on with what fits nodes that are ready, and with how many workers.
func (g *gang) enough(found podlist.Placement, now time.Time) (workers int, enough bool) {
	for _, pod := range g.indispensable {
		if !slices.Contains(found.Ready, pod) {
			return 0, false
		}
	}
	complete := len(found.Ready) == len(g.pods)
	waits := g.grows && len(found.Coming) > 0 && now.Sub(g.offered) < companyTime
	return len(found.Ready) - g.launchers, complete || g.dynamic && len(found.Ready) >= g.min && !waits
}

// recover does what is due to the job.
func (s *Supervisor) recover(ctx context.Context, ref jobs.Ref) error {
	s.mu.Lock()
	p := s.probes[ref.String()]
	if p == nil || p.due == nil {
		s.mu.Unlock()
		return nil
	}
	due, job, how, stated := *p.due, p.job, p.how, p.stated
	s.mu.Unlock()

	err := s.carryOut(ctx, job, due, how)

	s.mu.Lock()
	defer s.mu.Unlock()
	if p.how != how || p.stated != stated { // it is held anew
		return nil
	}
	now := s.Clock.Now()
	var busy *jobs.BusyError
	switch {
	case err == nil:
		p.due, p.pause, p.until = nil, 0, now.Add(quietTime)
		if due.verb == verbResume || due.verb == verbGrow {
			recoveries.WithLabelValues(job.System, string(job.Recovery)).Inc()
		}
	case errors.As(err, &busy):
		p.due, p.until = nil, now.Add(lookEvery)
	default:
		klog.FromContext(ctx).Error(err, "A job that is held cannot go on")
		p.rest(now, "it failed", err)
	}
	return nil
}

func (s *Supervisor) carryOut(ctx context.Context, job jobs.Job, due action, how string) error {
	switch {
	case due.verb == verbSuspend:
		return s.Jobs.Suspend(ctx, job, jobs.ReasonReclaim)
	case due.verb == verbGrow, due.verb == verbRelease && how == jobs.HeldShrunk:
		return s.Jobs.Grow(ctx, job, due.workers)
	default:
		return s.Jobs.Resume(ctx, job, due.workers)
	}
}
