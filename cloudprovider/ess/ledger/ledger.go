// Package ledger keeps account of what the provider buys and removes.
//
// The Ledger is the one owner of purchases and removals, and the only writer of the snapshot: each change is made under its
// lock, and one that a snapshot shows is published before it is unlocked. The Ledger never calls the cloud: package buyer
// sends purchases and package remover sends removals, and both enter here what the cloud answered. What became of it is found
// out by Reconcile, once per refresh, from the scaling activities and the list of instances.
//
//   - purchases.go: what package buyer enters;
//   - account.go: buying in one pool; purchase.go, book.go: its purchases, with their notes; queue.go: how they may be sent;
//   - target.go: whether the pool delivers what a request names;
//   - reconcile.go, delivery.go: what was delivered, and what that shows of the stock;
//   - bundle.go: purchases of several offerings for one gang;
//   - launch.go: purchases that are made by RunInstances;
//   - unconfirmed.go: what became of a purchase whose answer was lost;
//   - restore.go: purchases of former processes;
//   - removals.go: instances on their way out, and what package remover enters.
package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/pricing"
)

// UnreadFor is how long nothing is bought of any pool because the activities of one pool cannot be read: the pods that are
// pending now may be those that its last purchases were for. After that only the pool itself is not bought from.
const UnreadFor = 2 * time.Minute

// Config is what a Ledger is made of. All fields but Owner and Shortages are required.
type Config struct {
	Region   string
	Clock    clock.PassiveClock
	Events   problems.EventSink
	Reporter *problem.Reporter
	Prices   pool.Prices
	Store    *snapshot.Store
	// Owner names this installation in the notes of its purchases.
	Owner string
	// MaxProvisionTime is how long an accepted purchase may take.
	MaxProvisionTime time.Duration
	// Wake asks for a loop of core. It is called without the lock.
	Wake func()
	// Market is told what became of purchases. It is called under the lock of the ledger, and must not call the ledger.
	Market Market
	// Shortages are those that another process has found. They may be nil.
	Shortages map[pricing.Offering]snapshot.Shortage
}

// Market remembers what purchases have shown of the stock.
type Market interface {
	// Asked is called with the instances of each purchase that the cloud has accepted, or has refused for want of stock.
	Asked(pricing.Offering, int)
	// Refused is called with those of them that are out of stock.
	Refused(pricing.Offering, int)
}

// Ledger is safe for concurrent use.
type Ledger struct {
	state *state
	// Purchases is what package buyer enters its work in, Removals is that of package remover.
	Purchases *Purchases
	Removals  *Removals
}

// state is what Ledger, Purchases and Removals share. Everything below the lock is guarded by it, accounts and purchases
// included.
type state struct {
	config Config

	mu sync.Mutex
	// begun is when this process first entered what a refresh read.
	begun    time.Time
	facts    snapshot.Facts
	last     *snapshot.Snapshot
	accounts map[string]*account // by pool
	// removals and failedRemovals are by instance.
	removals       map[string]*removal
	failedRemovals map[string]failedRemoval
	// removed are instances that were removed and are gone while their Nodes still exist.
	removed   sets.Set[string]
	wakeAsked bool
}

// New returns an empty Ledger.
func New(config Config) *Ledger {
	s := &state{
		config: config, facts: snapshot.Facts{Region: config.Region, Shortages: config.Shortages}, accounts: map[string]*account{},
		removals: map[string]*removal{}, failedRemovals: map[string]failedRemoval{}, removed: sets.New[string](),
	}
	s.publish()
	return &Ledger{state: s, Purchases: &Purchases{s}, Removals: &Removals{s}}
}

// publish makes and publishes the snapshot of what the ledger has now.
func (s *state) publish() {
	var purchases []snapshot.Purchase
	for _, a := range s.accounts {
		for _, p := range a.book {
			purchases = append(purchases, s.describe(p))
		}
	}
	s.facts.Purchases, s.facts.Removing = purchases, sets.KeySet(s.removals)
	s.last = snapshot.New(s.facts)
	s.config.Store.Publish(s.last)
}

// describe returns the purchase as of a snapshot.
func (s *state) describe(p *Purchase) snapshot.Purchase {
	return snapshot.Purchase{
		Token: p.request.ClientToken, PoolID: p.poolID, Offering: p.offering, Count: p.request.Delta, Missing: p.missing(), Expected: p.expected(),
		Requested: p.requested, Accepted: p.accepted, ActivityID: p.activityID, Placeholders: p.placeholders, Failure: p.failure,
		NoCapacity: s.noCapacity(p),
	}
}

// publishAndUnlock publishes the snapshot of what was changed, releases the lock, and wakes core if that was asked for. Methods
// that only read, or that change what no snapshot shows, unlock without it.
func (s *state) publishAndUnlock() {
	s.publish()
	asked := s.wakeAsked
	s.wakeAsked = false
	s.mu.Unlock()
	if asked {
		s.config.Wake()
	}
}

// wake has core woken after unlocking.
func (s *state) wake() { s.wakeAsked = true }

func (s *state) account(poolID string) *account {
	if s.accounts[poolID] == nil {
		s.accounts[poolID] = newAccount(s, poolID)
	}
	return s.accounts[poolID]
}

// listed returns whether the instance was listed in the last refresh.
func (s *state) listed(instanceID string) bool {
	_, exists := s.facts.Instances[instanceID]
	return exists
}

// Unanswered returns the activities to read, and the pools of which all recent activities have to be read: those that are
// new, that have an unconfirmed purchase, or that are congested.
func (l *Ledger) Unanswered(managed sets.Set[string]) (activities, pools []string) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	ids, unread := sets.New[string](), sets.New[string]()
	for poolID := range managed {
		if a := l.state.accounts[poolID]; a == nil || !a.historyRead || a.queue.congested() {
			unread.Insert(poolID)
		}
	}
	for poolID, a := range l.state.accounts {
		for _, p := range a.book {
			if p.activityID != "" && !p.delivery.ended() && p.launch == nil {
				ids.Insert(p.activityID)
			}
			if p.unconfirmed() && managed.Has(poolID) {
				unread.Insert(poolID)
			}
		}
	}
	for _, leaving := range l.state.removals {
		if leaving.activityID != "" && leaving.ended.IsZero() {
			ids.Insert(leaving.activityID)
		}
	}
	return sets.List(ids), sets.List(unread)
}

// MatchActivities attributes activities, by pool, to unconfirmed purchases. It is called before any purchase is sent again.
func (l *Ledger) MatchActivities(activities map[string][]alicloud.Activity) {
	if len(activities) == 0 {
		return
	}
	l.state.mu.Lock()
	defer l.state.publishAndUnlock()
	for poolID, read := range activities {
		l.state.account(poolID).matchActivities(read)
	}
}

// InUse returns the offerings of which instances are being bought, by pool.
func (l *Ledger) InUse() map[string][]pricing.Offering {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	used := map[string][]pricing.Offering{}
	for poolID, a := range l.state.accounts {
		for _, p := range a.book {
			if p.targeting != pool.TargetWhole && p.offering.InstanceType != "" {
				used[poolID] = append(used[poolID], p.offering)
			}
		}
	}
	return used
}

// IgnoresTargeting returns whether the pool was found to deliver something else than requests name.
func (l *Ledger) IgnoresTargeting(poolID string) bool {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	return l.state.account(poolID).target.finding == ignored
}

// Check forgets the refusals of the pool that are over, enters the problems that it finds, and returns why nothing may be bought of the pool
// now; empty where it may. launching are the pools that buy by RunInstances.
func (l *Ledger) Check(known *pool.Pool, launching sets.Set[string], found problem.Set) string {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	a := l.state.account(known.ID)
	why := a.check(known, found)
	if !a.unreadSince.IsZero() {
		why = "its activities have not been read" // a problem of its own
	}
	for _, poolID := range slices.Sorted(maps.Keys(l.state.accounts)) {
		if other := l.state.accounts[poolID]; !other.unreadSince.IsZero() && l.state.config.Clock.Since(other.unreadSince) < UnreadFor {
			why = "what was bought before of pool " + poolID + " has not been read"
		}
	}
	if launching.Len() > 0 && l.state.config.Clock.Since(l.state.begun) < LaunchListLag {
		why = fmt.Sprintf("what was bought before of %s may not be listed yet", strings.Join(sets.List(launching), ", "))
	}
	if a.launchesUnread {
		why = "what was launched for it cannot be listed" // a problem of its own
	}
	return why
}

// keepGroups is for how long node groups are known that no pool has any more. Core holds on to those of a loop, and to failed purchases for
// minutes.
const keepGroups = 24 * time.Hour

// SetPools enters the pools that a refresh has built, and with them the end of the refresh.
func (l *Ledger) SetPools(pools map[string]*pool.Pool, types map[string]alicloud.InstanceType, refreshed time.Time) {
	l.state.mu.Lock()
	defer l.state.publishAndUnlock()
	groups := map[string]snapshot.Group{}
	for id, group := range l.state.facts.Groups {
		if refreshed.Sub(group.Seen) < keepGroups {
			groups[id] = group
		}
	}
	for _, known := range pools {
		for id, offered := range known.NodeGroups {
			groups[id] = snapshot.Group{PoolID: known.ID, Offering: offered.Offering, Seen: refreshed}
		}
	}
	l.state.facts.Pools, l.state.facts.Groups, l.state.facts.Types, l.state.facts.Refreshed = pools, groups, types, refreshed
	for _, a := range l.state.accounts {
		a.guessOfferings()
	}
}

// Loop is what the nodes of the cluster say at the start of a loop. All sets are of instance ids.
type Loop struct {
	Reclaiming, Lost, Disputed sets.Set[string]
	// Removed are those whose Node says that it was given back.
	Removed     sets.Set[string]
	ProviderIDs map[string]string
}

// BeginLoop enters what stays the same until the next loop.
func (l *Ledger) BeginLoop(loop Loop) {
	l.state.mu.Lock()
	defer l.state.publishAndUnlock()
	l.state.facts.Loop = snapshot.Loop{Reclaiming: loop.Reclaiming, Lost: loop.Lost, Disputed: loop.Disputed, ProviderIDs: loop.ProviderIDs}
	l.state.facts.Loop.OutOfService = l.outOfService(loop.Removed)
}

// outOfService returns the instances that are no capacity though they are not being reclaimed: those that are being removed,
// or were removed, those on standby or stopped, and those that are given back because their purchase came short.
func (l *Ledger) outOfService(removed sets.Set[string]) sets.Set[string] {
	found := l.state.removed.Clone()
	for id, instance := range l.state.facts.Instances {
		switch l.state.facts.StandingOf(instance) {
		case snapshot.Removing, snapshot.Standby, snapshot.Stopped:
			found.Insert(id)
		}
	}
	for _, a := range l.state.accounts {
		for _, p := range a.book {
			found = found.Union(l.state.noCapacity(p))
		}
	}
	if l.state.facts.Refreshed.IsZero() {
		return found // no instance is known to be gone
	}
	for id := range removed {
		if !l.state.listed(id) {
			found.Insert(id) // a former process gave it back
		}
	}
	return found
}
