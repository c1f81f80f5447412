// Package moves has jobs move from on-demand instances to spot ones, once spot is back and that pays. It decides which jobs move, and has spot
// instances bought for them; package reclaim/move does the rest.
//
//	it pays → stand-ins → spot instances are bought, and ready → the Nodes are announced as moving
//
// Until the last step nothing is done to the job. So if there is no spot, nothing has happened.
//
// Nothing is written. A new leader begins to look anew, and finds the spot instances that were bought.
package moves

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/work"
	"gpu-spot-autoscaler/pricing"
)

const (
	// lookEvery is how often it is looked at which jobs are to move.
	lookEvery = 10 * time.Second
	// mostTries is for how many jobs spot is looked for at once, and mostPods how many pods of one may move: each is simulated in every loop.
	mostTries, mostPods = 4, 64
	// searchTime is how long spot may take to be bought and ready.
	searchTime = 15 * time.Minute
	// patience is for how long a job may be no candidate before its try ends: a probe may fail for a moment, or a price not be known.
	patience = time.Minute
	// moveTime is longer than any move takes, which is over 20 minutes after its notice (package reclaim/move).
	moveTime = 30 * time.Minute
	// pause is how long a job is left alone after the first try, however it ended. It doubles with each, up to longestPause.
	pause, longestPause = time.Hour, 24 * time.Hour
	// refPrefix begins the refs of the gangs of stand-ins, which those of jobs do not.
	refPrefix = "move/"
)

// ReasonMoves is that of the Event on the pods of a job that begins to move.
const ReasonMoves = "SpotJobMoves"

// Pools are where nodes come from. It is implemented by *ess.Provider.
type Pools interface {
	FirstRead() <-chan struct{}
	// PoolOf returns the pool of the node; false for a node of no pool.
	PoolOf(node *corev1.Node) (ess.PoolStatus, bool)
	// MayGiveBack returns whether the node's instance serves and may be given back.
	MayGiveBack(node *corev1.Node) bool
}

// Market says when a move pays. It is implemented by *spotfirst.Moves, where it is explained.
type Market interface {
	Wanted(pod *corev1.Pod) (wanted, said bool)
	Plan(job spotfirst.Job) (plan spotfirst.Plan, pays bool)
}

// Jobs are the job systems. It is implemented by *jobs.Registry.
type Jobs interface {
	Member(pod *corev1.Pod) jobs.Membership
	Get(ctx context.Context, ref jobs.Ref) (jobs.Job, error)
}

// Config is what Moves are made of. All of it is required.
type Config struct {
	Jobs   Jobs
	Pools  Pools
	Market Market
	Pods   *podindex.Index
	Nodes  corelisters.NodeLister
	// Move has the jobs of the Nodes move to spot instances that are ready for them.
	Move     func(ctx context.Context, nodes []*corev1.Node)
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	// Wake asks for a loop, because there is something new to simulate.
	Wake func()
}

// Moves knows for which jobs spot is looked for. It is safe for concurrent use.
type Moves struct {
	config Config
	// placed has a value once there are jobs that have all their places.
	placed chan struct{}

	mu sync.Mutex
	// tries are by the String of the job's Ref, and so are the pauses of jobs that were tried.
	tries  map[string]*try
	pauses map[string]paused
	// moving are the Nodes whose jobs have begun to move of late.
	moving map[string]destination
}

// destination is where the pods of a Node are to move, until when at the latest.
type destination struct {
	offerings []pricing.Offering
	until     time.Time
}

// try is the search for spot instances for a job.
type try struct {
	candidate
	standIns []*corev1.Pod
	began    time.Time
	// lastCandidate is when the job was last found to be a candidate.
	lastCandidate time.Time
	isPlaced      bool
}

// paused is for how long a job is left alone, and until when.
type paused struct {
	length time.Duration
	until  time.Time
}

// New returns Moves that look at nothing before they run.
func New(config Config) *Moves {
	return &Moves{config: config, placed: make(chan struct{}, 1), tries: map[string]*try{}, pauses: map[string]paused{}, moving: map[string]destination{}}
}

// Run looks after moves until ctx ends. It is to be called once, by the leader, after the informers have synced.
func (m *Moves) Run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-m.config.Pools.FirstRead():
	}
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { work.Every(ctx, m.config.Clock, lookEvery, func() { m.look(ctx) }) })
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.placed:
			m.begin(ctx)
		}
	}
}

// look begins to try for those jobs that would save most, and ends the tries of which nothing comes.
func (m *Moves) look(ctx context.Context) {
	candidates, err := m.candidates()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not look for jobs that are to move to spot instances")
		return
	}
	for _, c := range m.choose(ctx, candidates) {
		err := m.checkFit(ctx, c.ref)
		switch {
		case err == nil:
			m.try(ctx, c)
			continue
		case errors.Is(err, errUnfit):
			m.leaveAlone(c.ref)
		}
		klog.FromContext(ctx).V(1).Info("A job does not move to spot instances", "job", c.ref, "reason", err.Error())
	}
}

// choose returns for which of the candidates spot is to be looked for beside those for which it is already. It ends the tries for jobs that are no
// candidates any more, or for which spot was looked for long enough.
func (m *Moves) choose(ctx context.Context, candidates []candidate) (chosen []candidate) {
	now := m.config.Clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.pauses, func(_ string, p paused) bool { return now.Sub(p.until) >= longestPause })
	maps.DeleteFunc(m.moving, func(_ string, d destination) bool { return !now.Before(d.until) })
	for key, t := range m.tries {
		isCandidate := slices.ContainsFunc(candidates, func(c candidate) bool { return c.ref == t.ref })
		if isCandidate {
			t.lastCandidate = now
		}
		if now.Sub(t.lastCandidate) >= patience || now.Sub(t.began) >= searchTime {
			klog.FromContext(ctx).V(1).Info("No spot instances are looked for any more", "job", t.ref, "stillPays", isCandidate)
			m.end(key, now)
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.plan.Saves(), a.plan.Saves()), strings.Compare(a.ref.String(), b.ref.String()))
	})
	for _, c := range candidates {
		key := c.ref.String()
		if m.tries[key] == nil && !now.Before(m.pauses[key].until) && len(m.tries)+len(chosen) < mostTries {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// errUnfit is why jobs do not move whatever the market does.
var errUnfit = errors.New("it is not fit to move")

func unfit(reason string) error { return fmt.Errorf("%w: %s", errUnfit, reason) }

// checkFit reads the job, and returns why its system cannot have it go on elsewhere: an errUnfit, or why the job could not be read.
func (m *Moves) checkFit(ctx context.Context, ref jobs.Ref) error {
	job, err := m.config.Jobs.Get(ctx, ref)
	_, isQueued := job.Queue()
	switch {
	case errors.Is(err, jobs.ErrNoObject):
		return unfit("its pods belong to no job that is known, and may not be created again")
	case err != nil:
		return fmt.Errorf("read the job: %w", err)
	case isQueued:
		return unfit("a queue of Kueue has admitted it, and would give its place to another job")
	case job.Min == 0:
		return unfit("its pods leave one by one, which its system may count as failures")
	case job.Suspended || job.Finished || job.StopRequested || job.HeldAs() != "":
		return unfit("it is held, suspended or over")
	}
	return nil
}

// leaveAlone leaves a job alone for a while that does not move.
func (m *Moves) leaveAlone(ref jobs.Ref) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(ref.String(), m.config.Clock.Now())
}

// try begins to look for spot for the job.
func (m *Moves) try(ctx context.Context, c candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Clock.Now()
	klog.FromContext(ctx).Info("Looking for spot instances for a job on demand", "job", c.ref, "nodes", c.names(), "onDemand", c.plan.OnDemand, "spot", c.plan.Spot)
	m.tries[c.ref.String()] = &try{candidate: c, standIns: c.standIns(), began: now, lastCandidate: now}
	m.config.Wake()
}

// end ends the try for the job, and leaves it alone for a while. The lock is held.
func (m *Moves) end(key string, now time.Time) {
	delete(m.tries, key)
	length := min(max(2*m.pauses[key].length, pause), longestPause)
	m.pauses[key] = paused{length, now.Add(length)}
}

// Returning returns the pods for which spot is looked for, as a podlist.Supervision does.
func (m *Moves) Returning() (gangs []podlist.StandInGang) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.tries)) {
		t := m.tries[key]
		gangs = append(gangs, podlist.StandInGang{Ref: refPrefix + key, Pods: t.standIns, Min: len(t.standIns), Extra: podlist.ExtraSpot})
	}
	return gangs
}

// IsRef returns whether the ref is that of a gang of Returning.
func IsRef(ref string) bool { return strings.HasPrefix(ref, refPrefix) }

// Fits has a job move if all of its pods would run at once.
func (m *Moves) Fits(ref string, found podlist.Placement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tries[strings.TrimPrefix(ref, refPrefix)]
	if t == nil {
		return
	}
	if t.isPlaced = len(found.Ready) == len(t.standIns); t.isPlaced {
		select {
		case m.placed <- struct{}{}:
		default:
		}
	}
}

// begin has a job move that has all its places, if it still is to. The next one has its turn after the next loop, which knows of the Nodes that
// leave their pools.
func (m *Moves) begin(ctx context.Context) {
	candidates, err := m.candidates()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not look at the jobs that are to move to spot instances")
		return
	}
	for _, c := range candidates {
		if !m.take(c) {
			continue
		}
		klog.FromContext(ctx).Info("A job on demand moves to spot instances", "job", c.ref, "nodes", c.names())
		m.config.Move(ctx, c.nodes)
		m.config.Recorder.Eventf(c.pods[0], corev1.EventTypeNormal, ReasonMoves,
			"Moves to spot instances, which are ready: on demand it costs %.2f per hour, and on spot from %.2f per useful hour", c.plan.OnDemand, c.plan.Spot)
		return
	}
}

// take ends the try for the job, and returns true, if it has all its places, and still is on the same Nodes.
func (m *Moves) take(c candidate) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tries[c.ref.String()]
	if t == nil || !t.isPlaced || !slices.Equal(t.names(), c.names()) || len(t.pods) != len(c.pods) {
		return false
	}
	now := m.config.Clock.Now()
	m.end(c.ref.String(), now)
	for i, pod := range t.pods {
		to := m.moving[pod.Spec.NodeName]
		m.moving[pod.Spec.NodeName] = destination{append(to.offerings, t.plan.Offerings[i]...), now.Add(moveTime)}
	}
	return true
}

// MovesTo returns the spot offerings that the pods of a Node may get whose jobs have begun to move of late, and false for other Nodes.
func (m *Moves) MovesTo(node string) (offerings []pricing.Offering, moves bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	to, moves := m.moving[node]
	return to.offerings, moves
}
