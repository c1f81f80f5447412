package pricing

import (
	"context"
	"fmt"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

const (
	// history is how far back the latest spot price is looked for. ECS has hourly points.
	history = 24 * time.Hour
	// jitter lengthens each interval by up to a tenth at random, so that the lookups do not come in bursts.
	jitter = .1
	// firstRetry is the wait after a first failure. It doubles with each further failure, up to the interval.
	firstRetry = 15 * time.Second
	// maxConcurrentLookups limits the calls to the source.
	maxConcurrentLookups = 8
	// keepPrices is how long the prices of an instance type are kept that is not wanted any more.
	keepPrices = 48 * time.Hour
)

// lookup is one call to the source: for the spot prices of an instance type in all zones, or for its on-demand price in one.
type lookup struct {
	instanceType string
	// zone is "" for spot.
	zone string
	spot bool
	// unprotected is whether spot prices are those without a protected hour.
	unprotected bool
}

// wanted are the offerings whose prices are wanted, and when each is to be looked up.
type wanted struct {
	offerings map[Offering]bool
	// unprotected are the instance types whose spot prices are those without a protected hour.
	unprotected sets.Set[string]
	lookups     map[lookup]*schedule
}

// set sets the offerings, and returns whether that makes a lookup necessary. It forgets when others were looked up once they would be due again.
func (w *wanted) set(offerings []Offering, unprotected sets.Set[string], now time.Time) (added bool) {
	before, kept := w.offerings, sets.New[lookup]()
	w.offerings, w.unprotected = make(map[Offering]bool, len(offerings)), unprotected
	for _, o := range offerings {
		w.offerings[o] = true
		added = added || !before[o]
		if l := w.lookupFor(o); w.lookups[l] == nil {
			w.lookups[l] = &schedule{}
			added = true
		}
		kept.Insert(w.lookupFor(o))
	}
	maps.DeleteFunc(w.lookups, func(l lookup, s *schedule) bool { return !kept.Has(l) && !s.due.After(now) })
	return added
}

// due returns the lookups that are due.
func (w *wanted) due(now time.Time) (due []lookup) {
	seen := map[lookup]bool{}
	for o := range w.offerings {
		l := w.lookupFor(o)
		if !seen[l] && !w.lookups[l].due.After(now) {
			due = append(due, l)
		}
		seen[l] = true
	}
	return due
}

// types returns the instance types of the offerings.
func (w *wanted) types() sets.Set[string] {
	types := sets.New[string]()
	for o := range w.offerings {
		types.Insert(o.InstanceType)
	}
	return types
}

// untilNext returns how long it is until the next lookup is due, most if that is longer.
func (w *wanted) untilNext(now time.Time, most time.Duration) time.Duration {
	for o := range w.offerings {
		most = min(most, w.lookups[w.lookupFor(o)].due.Sub(now))
	}
	return max(most, 0)
}

// firstDone returns whether every price has been looked up.
func (w *wanted) firstDone() bool {
	for o := range w.offerings {
		if w.lookups[w.lookupFor(o)].due.IsZero() {
			return false
		}
	}
	return true
}

// lookupFor returns the call that tells the price of the offering.
func (w *wanted) lookupFor(o Offering) lookup {
	switch {
	case o.Spot:
		return lookup{instanceType: o.InstanceType, spot: true, unprotected: w.unprotected.Has(o.InstanceType)}
	case o.anyZone():
		return lookup{instanceType: o.InstanceType}
	default:
		return lookup{instanceType: o.InstanceType, zone: o.Zone}
	}
}

// schedule is when a lookup is due.
type schedule struct {
	// due is zero before the first lookup.
	due      time.Time
	failures int
}

// Run refreshes the prices until the context ends. A lookup that fails keeps the last price, is logged and counted, and is
// repeated sooner than after its interval. Run may be called once.
func (b *Book) Run(ctx context.Context) {
	published.Store(b)
	defer published.CompareAndSwap(b, nil)
	for ctx.Err() == nil {
		b.lookUpAll(ctx, b.due())
		if !b.sleep(ctx) {
			return
		}
	}
}

// due returns the wanted lookups that are due.
func (b *Book) due() []lookup {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.wanted.due(b.options.Clock.Now())
}

// sleep waits until the next lookup is due or an offering is added. It returns false if the context ended.
func (b *Book) sleep(ctx context.Context) bool {
	timer := b.options.Clock.NewTimer(b.untilNext())
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-b.wake:
	case <-ctx.Done():
		return false
	}
	return true
}

func (b *Book) untilNext() time.Duration {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.wanted.untilNext(b.options.Clock.Now(), b.options.Interval)
}

func (b *Book) lookUpAll(ctx context.Context, lookups []lookup) {
	var group errgroup.Group
	group.SetLimit(maxConcurrentLookups)
	for _, l := range lookups {
		group.Go(func() error {
			err := b.lookUp(ctx, l)
			b.reschedule(ctx, l, err)
			return nil
		})
	}
	_ = group.Wait() // reschedule has handled the errors
}

func (b *Book) lookUp(ctx context.Context, l lookup) error {
	if l.spot {
		return b.lookUpSpot(ctx, l)
	}
	price, err := b.options.Source.OnDemandPrice(ctx, l.instanceType, l.zone)
	if err != nil {
		return err
	}
	if price <= 0 {
		return fmt.Errorf("the on-demand price is %v", price)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.prices.quoted[place{l.instanceType, l.zone}] = point{price: price, seen: b.options.Clock.Now()}
	return nil
}

// lookUpSpot takes the latest point of each zone.
func (b *Book) lookUpSpot(ctx context.Context, l lookup) error {
	now := b.options.Clock.Now()
	points, err := b.options.Source.SpotPriceHistory(ctx, l.instanceType, "", !l.unprotected, now.Add(-history))
	if err != nil {
		return err
	}
	latest := map[string]alicloud.SpotPrice{}
	for _, p := range points {
		if known, ok := latest[p.ZoneID]; !ok || !p.Time.Before(known.Time) {
			latest[p.ZoneID] = p
		}
	}
	past := byZone(points)
	b.mu.Lock()
	defer b.mu.Unlock()
	for zone, points := range past {
		b.prices.past[place{l.instanceType, zone}] = points
	}
	for zone, p := range latest {
		at := place{l.instanceType, zone}
		if p.Spot > 0 {
			b.prices.spot[at] = point{price: p.Spot, seen: now}
		}
		if p.OnDemand > 0 {
			b.prices.listed[at] = point{price: p.OnDemand, seen: now}
		}
	}
	return nil
}

func (b *Book) reschedule(ctx context.Context, l lookup, err error) {
	if ctx.Err() != nil {
		return // the lookup was interrupted
	}
	interval := b.options.OnDemandInterval
	if l.spot {
		interval = b.options.Interval
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.lookedUp)
	b.lookedUp = make(chan struct{})
	s := b.wanted.lookups[l]
	if s == nil {
		return // it is not wanted any more
	}
	s.failures++
	if err == nil {
		s.failures = 0
	} else {
		refreshErrors.WithLabelValues(Offering{Spot: l.spot}.PurchaseOption()).Inc()
		klog.FromContext(ctx).Error(err, "Looking up a price failed, keeping the last one", "instanceType", l.instanceType,
			"zone", l.zone, "spot", l.spot, "failures", s.failures)
		interval = min(interval, firstRetry<<min(s.failures-1, 10))
	}
	s.due = b.options.Clock.Now().Add(wait.Jitter(interval, jitter))
}
