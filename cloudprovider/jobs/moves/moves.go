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
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/podindex"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/work"
	corev1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// lookEvery is how often it is looked at which jobs are to move.
	lookEvery = 10 * time.Second
	// mostTries is for how many groups spot is looked for at once, and mostPods how many pods of one may have: each is simulated in every loop.
	mostTries, mostPods = 4, 64
	// searchTime is how long spot may take to be bought and ready.
	searchTime = 15 * time.Minute
	// pause is how long a group is left alone after a try, however it ended.
	pause = time.Hour
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
	Wanted(pod *corev1.Pod, byPool bool) bool
	Pays(pods []*corev1.Pod, since time.Time) (costs spotfirst.Costs, pays bool)
}

// Config is what Moves are made of. All of it is required.
type Config struct {
	// Member returns the job that a pod belongs to.
	Member func(*corev1.Pod) jobs.Membership
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
	// placed has a value once there are groups that have all their places.
	placed chan struct{}

	mu sync.Mutex
	// tries are by the key of their group, and pausedUntil are groups that were tried.
	tries       map[string]*try
	pausedUntil map[string]time.Time
}

// try is the search for spot instances for a group.
type try struct {
	group
	standIns []*corev1.Pod
	began    time.Time
	isPlaced bool
}

// New returns Moves that look at nothing before they run.
func New(config Config) *Moves {
	return &Moves{config: config, placed: make(chan struct{}, 1), tries: map[string]*try{}, pausedUntil: map[string]time.Time{}}
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

// look begins to try for those groups that would save most, and ends the tries of which nothing comes.
func (m *Moves) look(ctx context.Context) {
	groups, err := m.groups()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not look for jobs that are to move to spot instances")
		return
	}
	now := m.config.Clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.pausedUntil, func(_ string, until time.Time) bool { return !now.Before(until) })
	wanted := map[string]group{}
	for _, g := range groups {
		wanted[g.key] = g
	}
	for key, t := range m.tries {
		if _, is := wanted[key]; !is {
			delete(m.tries, key)
		} else if now.Sub(t.began) >= searchTime {
			klog.FromContext(ctx).V(1).Info("Found no spot instances for jobs on demand", "nodes", t.names())
			m.end(key, now)
		}
	}
	slices.SortStableFunc(groups, func(a, b group) int { return cmp.Compare(b.saves(), a.saves()) })
	for _, g := range groups {
		if _, isPaused := m.pausedUntil[g.key]; len(m.tries) < mostTries && !isPaused && m.tries[g.key] == nil {
			klog.FromContext(ctx).V(1).Info("Looking for spot instances for jobs on demand", "nodes", g.names(), "costs", g.costs)
			m.tries[g.key] = &try{group: g, standIns: g.standIns(), began: now}
			m.config.Wake()
		}
	}
}

// end ends the try, and leaves the group alone for a while. The lock is held.
func (m *Moves) end(key string, now time.Time) {
	delete(m.tries, key)
	m.pausedUntil[key] = now.Add(pause)
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

// Fits has a group move if all of its pods would run at once.
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

// begin has the groups move that have all their places, if they still are to.
func (m *Moves) begin(ctx context.Context) {
	groups, err := m.groups()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not look at the jobs that are to move to spot instances")
		return
	}
	for _, g := range groups {
		if !m.take(g.key) {
			continue
		}
		klog.FromContext(ctx).Info("Jobs on demand move to spot instances", "nodes", g.names(), "costs", g.costs)
		m.config.Move(ctx, g.nodes)
		for _, pod := range g.first() {
			m.config.Recorder.Eventf(pod, corev1.EventTypeNormal, ReasonMoves, "Moves to spot instances, which are ready: on demand it costs %.2f per hour, and on spot %.2f per useful hour",
				g.costs.OnDemand, g.costs.Spot)
		}
	}
}

// take ends the try of the group, and returns true, if it has all its places.
func (m *Moves) take(key string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tries[key]
	if t == nil || !t.isPlaced {
		return false
	}
	m.end(key, m.config.Clock.Now())
	return true
}
