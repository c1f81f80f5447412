package notice

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/share"
)

// Config is what a Store is made of. Cluster is required.
type Config struct {
	Cluster *cluster.Cluster
	// Clock defaults to the real one.
	Clock clock.PassiveClock
	// Period is how long an instance lives from the first sight of its notice, if no source states the deadline. It defaults to
	// DefaultPeriod.
	Period time.Duration
	// Doubt is for how long nothing is evicted after ECS showed an instance unlocked, and how long ECS is given to speak of a
	// pushed notice that came late. It defaults to the least that DoubtFor returns.
	Doubt time.Duration
	// MaxUnconfirmed is of how many Nodes a pushed notice is acted upon that no other source has confirmed, as a number or as a
	// share of the spot Nodes, rounded up. It defaults to DefaultMaxUnconfirmed.
	MaxUnconfirmed *intstr.IntOrString
}

// Store has the notices of all instances: those that this process was told of, and those that stand on the Nodes. It is safe for
// concurrent use.
type Store struct {
	// Verdicts has what the cloud says about the instances.
	Verdicts *Verdicts

	cluster        *cluster.Cluster
	clock          clock.PassiveClock
	period, doubt  time.Duration
	maxUnconfirmed share.Share
	nodeSources    []NodeSource

	mu sync.Mutex
	// began is when this process began to listen to the sources.
	began time.Time
	// heard is what this process was told, by instance.
	heard map[string]record
	// held are the deadlines of pushed notices that nothing is done about, by instance.
	held map[string]time.Time
	// spots is how many spot Nodes there were at spotsCounted.
	spots        int
	spotsCounted time.Time
}

// record is what this process was told about an instance.
type record struct {
	notice Notice
	// announced is when each source first said so. The map is never changed, but replaced.
	announced map[Source]time.Time
}

// isActedUpon returns whether there is a notice because of which the instance goes.
func (r record) isActedUpon() bool { return len(r.announced) > 0 && !r.notice.Yields() }

// NewStore returns an empty Store. The error says what is missing or makes no sense.
func NewStore(config Config) (*Store, error) {
	if config.Cluster == nil {
		return nil, errors.New("notice: Cluster is required")
	}
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	if config.Period <= 0 {
		config.Period = DefaultPeriod
	}
	if config.Doubt <= 0 {
		config.Doubt = minDoubt
	}
	if config.MaxUnconfirmed == nil {
		config.MaxUnconfirmed = &DefaultMaxUnconfirmed
	}
	maxUnconfirmed, err := share.Parse(*config.MaxUnconfirmed)
	if err != nil {
		return nil, fmt.Errorf("notice: MaxUnconfirmed: %w", err)
	}
	return &Store{
		Verdicts: newVerdicts(config.Clock),
		cluster:  config.Cluster, clock: config.Clock, period: config.Period, doubt: config.Doubt, maxUnconfirmed: maxUnconfirmed,
		nodeSources: nodeSources(config.Clock, config.Period),
		heard:       map[string]record{}, held: map[string]time.Time{},
	}, nil
}

// Begin notes that this process listens to the sources from now on. What came before may have been missed.
func (s *Store) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = s.clock.Now()
}

// Reclaiming returns the ids of the instances that have a notice, in memory or on their Node. The set is the caller's.
func (s *Store) Reclaiming() sets.Set[string] {
	s.mu.Lock()
	ids := sets.KeySet(s.heard)
	s.mu.Unlock()
	for _, node := range s.cluster.MarkedNodes() {
		if n, reclaiming := s.Of(node); reclaiming {
			ids.Insert(n.InstanceID)
		}
	}
	return ids
}

// Get returns the notice of the instance, whether it has a Node or not.
func (s *Store) Get(instanceID string) (Notice, bool) {
	for _, node := range s.cluster.NodesOf(instanceID) { // of two, only one may have marks
		if n, reclaiming := s.Of(node); reclaiming || cluster.IsOnDemand(node) {
			return n, reclaiming
		}
	}
	return s.inMemory(instanceID)
}

// Of returns the notice of the Node's instance: what its marks state, with what this process was told since. An on-demand Node
// has none but that of a fault or a move.
func (s *Store) Of(node *corev1.Node) (Notice, bool) {
	id := s.cluster.InstanceID(node)
	if id == "" {
		return Notice{}, false
	}
	marked, isMarked := FromMarks(node, id)
	n, reclaiming := s.inMemory(id)
	switch {
	case isMarked && reclaiming:
		n = marked.Merge(n)
	case isMarked:
		n, reclaiming = marked, true
	case !reclaiming && cluster.IsMarked(node):
		n, reclaiming = newNotice(Announcement{InstanceID: id, Source: SourceUnknown}, s.clock.Now(), s.period), true
	}
	if !reclaiming || cluster.IsOnDemand(node) && !n.IsGivenBack() {
		return Notice{}, false
	}
	if n.IsDrill() && !s.clock.Now().Before(n.Deadline) {
		n.Until = ""
	}
	return n, true
}

// Heard returns whether this process was told of the notice, and did not only find it on a Node.
func (s *Store) Heard(instanceID string) bool {
	_, heard := s.inMemory(instanceID)
	return heard
}

func (s *Store) inMemory(instanceID string) (Notice, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.heard[instanceID]
	return r.notice, ok
}

// Change is what an announcement adds to what is known.
type Change struct {
	// First is true for the first announcement about an instance, and Changed for one that says anything new.
	First, Changed bool
	// Confirmed is true if it confirms a notice that was only pushed.
	Confirmed bool
}

// Add enters an announcement. The first one about an instance makes the notice. Later ones confirm it, and may correct its deadline.
func (s *Store) Add(a Announcement) (change Change) {
	said := newNotice(a, s.clock.Now(), s.period)
	marked, isMarked := s.fromMarksOf(a.InstanceID)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.held, a.InstanceID)
	heldNotices.Set(float64(len(s.held)))
	if a.Source == SourcePoll {
		s.Verdicts.forget(a.InstanceID)
	}
	known, isKnown := s.heard[a.InstanceID]
	if !isKnown {
		change.First, change.Changed = !isMarked, true
		first := said
		if isMarked {
			first = marked
		}
		known = record{notice: first, announced: map[Source]time.Time{first.Source: first.FirstSeen}}
	}
	if _, before := known.announced[a.Source]; !before {
		confirmationDelay.WithLabelValues(string(a.Source)).Observe(max(said.FirstSeen.Sub(known.notice.FirstSeen), 0).Seconds())
		known.announced = maps.Clone(known.announced)
		known.announced[a.Source] = said.FirstSeen
	}
	merged := known.notice.Merge(said)
	if known.notice.Yields() && !merged.Yields() { // what the drill or the move has done counts for nothing
		change.First = true
		known.announced = map[Source]time.Time{said.Source: said.FirstSeen}
	}
	change.Changed = change.Changed || merged != known.notice
	change.Confirmed = merged.Confirmed && !known.notice.Confirmed
	known.notice = merged
	s.heard[a.InstanceID] = known
	return change
}

// fromMarksOf returns the notice that an earlier leader wrote on a Node of the instance.
func (s *Store) fromMarksOf(instanceID string) (Notice, bool) {
	for _, node := range s.cluster.NodesOf(instanceID) {
		if marked, ok := FromMarks(node, instanceID); ok {
			return marked, true
		}
	}
	return Notice{}, false
}

// Announced returns when each source announced the notice. The map must not be changed.
func (s *Store) Announced(n Notice) map[Source]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.heard[n.InstanceID]; ok {
		return r.announced
	}
	return map[Source]time.Time{n.Source: n.FirstSeen}
}

// OnlyPolled returns whether nothing but the poll ever announced a notice for the instance, which has no Node. The other sources
// speak of Nodes, and a Node that is missing now may come back.
func (s *Store) OnlyPolled(instanceID string) bool {
	if len(s.cluster.NodesOf(instanceID)) > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	announced := s.heard[instanceID].announced
	_, polled := announced[SourcePoll]
	return polled && len(announced) == 1
}

// Withdraw forgets the notice, but not the verdict, which counts until Unmarked is called: nothing must act on the marks in
// between.
func (s *Store) Withdraw(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.heard, instanceID)
}

// Unmarked ends a withdrawal, a drill or a move: the informer shows the Node without marks. What a source announces from now on is another notice.
// What was announced in between was read from the Node as it was before.
func (s *Store) Unmarked(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Verdicts.On(instanceID) == Withdrawn || s.heard[instanceID].notice.Yields() {
		delete(s.heard, instanceID)
		s.Verdicts.forget(instanceID)
	}
}

// Forget forgets everything about an instance that is gone.
func (s *Store) Forget(instanceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.heard, instanceID)
	s.Verdicts.forget(instanceID)
}

// Lost returns those of the reclaiming instances that the market takes away: not those that are faulty or drilled or that jobs move away from, nor those of which
// there is only a pushed notice that nothing has confirmed. What is bought goes by them, so that neither can steer it.
func (s *Store) Lost() sets.Set[string] {
	ids := s.Reclaiming()
	for id := range ids {
		if n, reclaiming := s.Get(id); !reclaiming || !n.Confirmed || n.Yields() || n.Source == SourceFault {
			ids.Delete(id)
		}
	}
	return ids
}
