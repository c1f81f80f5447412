package pricing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Source is where prices come from. It is implemented by *client.Client of package alicloud/client.
type Source interface {
	// SpotPriceHistory returns the prices of a type in a zone, or in all where zoneID is "".
	SpotPriceHistory(ctx context.Context, instanceType, zoneID string, since time.Time) ([]alicloud.SpotPrice, error)
	OnDemandPrice(ctx context.Context, instanceType, zoneID string) (float64, error)
	// Currency is that of all prices; empty while it is not known.
	Currency() string
}

// BookOptions configure a Book. Only Source is required.
type BookOptions struct {
	Source Source
	// Interval is the time between two looks at a spot price. Default 5 min.
	Interval time.Duration
	// OnDemandInterval is the time between two looks at an on-demand price, which hardly ever changes.
	// Default 12 intervals, or half of MaxAge where that is less: one look may fail before the price is stale.
	OnDemandInterval time.Duration
	// MaxAge is for how long after it was seen a price is fresh. Default 1 h.
	MaxAge time.Duration
	// Clock times the looks. Default is the real one.
	Clock clock.Clock
}

// DefaultMaxAge is for how long a price is fresh: Alibaba Cloud publishes spot prices by the hour.
const DefaultMaxAge = time.Hour

const (
	// history is how far back to look for the latest spot price. ECS lists hourly points.
	history = 24 * time.Hour
	// spread lengthens each interval by up to a tenth at random, so that the looks do not come in bursts.
	spread = .1
	// firstRetry is the wait after a first failure; it doubles with each further one, up to the interval.
	firstRetry = 15 * time.Second
	// looksAtOnce bounds the calls under way.
	looksAtOnce = 8
)

// Book holds the last known price of each offering. It is safe for concurrent use; only Run touches the network.
type Book struct {
	options BookOptions
	wake    chan struct{}

	mu     sync.RWMutex
	wanted map[Offering]bool
	looks  map[look]*schedule
	prices prices
	// looked is closed, and replaced, after each look.
	looked chan struct{}
}

// look is one question to the source: the spot prices of a type in all zones, or the on-demand price in one.
type look struct {
	instanceType string
	// zone is "" for spot.
	zone string
	spot bool
}

// schedule says when a look is due.
type schedule struct {
	// due is zero before the first look.
	due      time.Time
	failures int
}

// NewBook returns an empty book. It fills once offerings are set and Run runs.
func NewBook(options BookOptions) *Book {
	if options.Interval <= 0 {
		options.Interval = 5 * time.Minute
	}
	if options.MaxAge <= 0 {
		options.MaxAge = DefaultMaxAge
	}
	if options.OnDemandInterval <= 0 {
		options.OnDemandInterval = min(12*options.Interval, options.MaxAge/2)
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Book{
		options: options,
		wake:    make(chan struct{}, 1),
		wanted:  map[Offering]bool{},
		looks:   map[look]*schedule{},
		prices:  newPrices(),
		looked:  make(chan struct{}),
	}
}

// SetOfferings says which offerings' prices are wanted from now on. New ones are looked up soon, by Run; it does not
// wait for them. Prices of offerings that are no longer wanted are kept but not renewed.
func (b *Book) SetOfferings(offerings []Offering) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wanted = make(map[Offering]bool, len(offerings))
	fresh := false
	for _, o := range offerings {
		b.wanted[o] = true
		l := lookFor(o)
		if b.looks[l] == nil {
			b.looks[l] = &schedule{}
			fresh = true
		}
	}
	if fresh {
		select {
		case b.wake <- struct{}{}:
		default: // it is already on its way
		}
	}
}

func lookFor(o Offering) look {
	switch {
	case o.Spot:
		return look{instanceType: o.InstanceType, spot: true}
	case o.anyZone():
		return look{instanceType: o.InstanceType}
	default:
		return look{instanceType: o.InstanceType, zone: o.Zone}
	}
}

// Price returns what an offering costs per hour, as far as it is known: the last spot price; else, for spot too, the
// on-demand price of the zone; else the dearest on-demand price of the type in other zones. It never touches the
// network.
func (b *Book) Price(o Offering) (float64, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.prices.of(o, ever)
}

// Currency is that of all prices; empty while it is not known.
func (b *Book) Currency() string { return b.options.Source.Currency() }

// FreshPrice is Price as far as it was seen within the maximum age, so that a cap can be held against it. Where the spot
// price is older, an on-demand price that is not stands in for it: "the market price can be up to the pay-as-you-go price"
// (Alibaba Cloud's API reference, SpotStrategy).
func (b *Book) FreshPrice(o Offering) (float64, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.freshPrice(o)
}

// freshPrice needs b.mu.
func (b *Book) freshPrice(o Offering) (float64, bool) {
	return b.prices.of(o, b.options.Clock.Now().Add(-b.options.MaxAge))
}

// Known returns the wanted offerings that have a price.
func (b *Book) Known() map[Offering]float64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	known := make(map[Offering]float64, len(b.wanted))
	for o := range b.wanted {
		if price, ok := b.prices.of(o, ever); ok {
			known[o] = price
		}
	}
	return known
}

// AwaitFirstLook returns once every wanted price has been looked up, be it in vain, or with the context's error. It is
// for the start, so that the first purchase is not made blindly.
func (b *Book) AwaitFirstLook(ctx context.Context) error {
	for {
		b.mu.RLock()
		pending, looked := b.pending(), b.looked
		b.mu.RUnlock()
		if !pending {
			return nil
		}
		select {
		case <-looked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *Book) pending() bool {
	for o := range b.wanted {
		if b.looks[lookFor(o)].due.IsZero() {
			return true
		}
	}
	return false
}

// Run keeps the prices fresh until the context ends. A look that fails leaves the last good price as it is, is logged
// and counted, and is repeated sooner than its interval. Run may be called once.
func (b *Book) Run(ctx context.Context) {
	published.Store(b)
	defer published.CompareAndSwap(b, nil)
	for ctx.Err() == nil {
		b.lookAll(ctx, b.due())
		if !b.sleep(ctx) {
			return
		}
	}
}

// due are the looks that are wanted and due.
func (b *Book) due() []look {
	b.mu.RLock()
	defer b.mu.RUnlock()
	now := b.options.Clock.Now()
	seen := map[look]bool{}
	var due []look
	for o := range b.wanted {
		l := lookFor(o)
		if !seen[l] && !b.looks[l].due.After(now) {
			due = append(due, l)
		}
		seen[l] = true
	}
	return due
}

// sleep waits until the next look is due or a new one is wanted. It is false when the context ended.
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
	next := b.options.Interval
	for o := range b.wanted {
		next = min(next, b.looks[lookFor(o)].due.Sub(b.options.Clock.Now()))
	}
	return max(next, 0)
}

func (b *Book) lookAll(ctx context.Context, looks []look) {
	var group errgroup.Group
	group.SetLimit(looksAtOnce)
	for _, l := range looks {
		group.Go(func() error {
			err := b.lookUp(ctx, l)
			b.reschedule(ctx, l, err)
			return nil
		})
	}
	_ = group.Wait() // each look has dealt with its own error
}

func (b *Book) lookUp(ctx context.Context, l look) error {
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
func (b *Book) lookUpSpot(ctx context.Context, l look) error {
	now := b.options.Clock.Now()
	points, err := b.options.Source.SpotPriceHistory(ctx, l.instanceType, "", now.Add(-history))
	if err != nil {
		return err
	}
	latest := map[string]alicloud.SpotPrice{}
	for _, p := range points {
		if was, ok := latest[p.ZoneID]; !ok || p.Time.After(was.Time) {
			latest[p.ZoneID] = p
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
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

func (b *Book) reschedule(ctx context.Context, l look, err error) {
	if ctx.Err() != nil {
		return // a look that was broken off says nothing
	}
	interval := b.options.OnDemandInterval
	if l.spot {
		interval = b.options.Interval
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.looks[l]
	s.failures++
	if err == nil {
		s.failures = 0
	} else {
		refreshErrors.WithLabelValues(Offering{Spot: l.spot}.PurchaseOption()).Inc()
		klog.FromContext(ctx).Error(err, "Looking up a price failed; the last one stays", "instanceType", l.instanceType,
			"zone", l.zone, "spot", l.spot, "failures", s.failures)
		interval = min(interval, firstRetry<<min(s.failures-1, 10))
	}
	s.due = b.options.Clock.Now().Add(wait.Jitter(interval, spread))
	close(b.looked)
	b.looked = make(chan struct{})
}
