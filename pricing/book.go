package pricing

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Source is where prices come from. It is implemented by *client.Client of package alicloud/client.
type Source interface {
	// SpotPriceHistory returns the prices of an instance type with or without a protected hour in a zone, or in all zones if zoneID is "".
	SpotPriceHistory(ctx context.Context, instanceType, zoneID string, isProtected bool, since time.Time) ([]alicloud.SpotPrice, error)
	OnDemandPrice(ctx context.Context, instanceType, zoneID string) (float64, error)
	// Currency returns the currency of all prices, or "" while it is not known.
	Currency() string
}

// BookOptions configure a Book. Only Source is required.
type BookOptions struct {
	Source Source
	// Interval is the time between two lookups of a spot price. Default 5 min.
	Interval time.Duration
	// OnDemandInterval is the time between two lookups of an on-demand price, which hardly ever changes.
	// Default 12 intervals, or half of MaxAge if that is less: one lookup may fail before the price is stale.
	OnDemandInterval time.Duration
	// MaxAge is how long a price is fresh after it was seen. Default 1 h.
	MaxAge time.Duration
	// Clock schedules the lookups. Default is the real one.
	Clock clock.Clock
}

// DefaultMaxAge is how long a price is fresh: Alibaba Cloud publishes spot prices by the hour.
const DefaultMaxAge = time.Hour

// Book holds the last known price of each offering. It is safe for concurrent use. Only Run calls the source.
type Book struct {
	options BookOptions
	wake    chan struct{}

	mu     sync.RWMutex
	wanted wanted
	prices prices
	// lookedUp is closed, and replaced, after each lookup.
	lookedUp chan struct{}
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
		options:  options,
		wake:     make(chan struct{}, 1),
		wanted:   wanted{offerings: map[Offering]bool{}, lookups: map[lookup]*schedule{}},
		prices:   newPrices(),
		lookedUp: make(chan struct{}),
	}
}

// SetOfferings sets the offerings whose prices are wanted from now on, and the instance types that are bought as spot instances without a
// protected hour only, which are cheaper: the price of any other is that with a protected hour.
// Run looks up soon those that are new, or that are wanted again and due. SetOfferings does not wait for that. Prices of offerings that
// are not wanted any more are kept for two days, but not refreshed.
// Source: https://www.alibabacloud.com/help/en/ecs/spot-instance, "Billing rules"; SpotDuration of DescribeSpotPriceHistory, ECS 2014-05-26.
func (b *Book) SetOfferings(offerings []Offering, unprotected sets.Set[string]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.options.Clock.Now()
	added := b.wanted.set(offerings, unprotected, now)
	b.prices.forget(now.Add(-keepPrices), b.wanted.types())
	if added {
		select {
		case b.wake <- struct{}{}:
		default: // Run is to wake up already
		}
	}
}

// Price returns the price of an offering, as far as it is known: the last spot price; else, for spot too, the on-demand price in
// the zone; else the highest on-demand price of the instance type in other zones. It does not call the source.
func (b *Book) Price(o Offering) (float64, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.prices.of(o, ever)
}

// ExactPrice returns the last price of exactly this offering, if there is one. It does not call the source.
func (b *Book) ExactPrice(o Offering) (float64, bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	found, ok := b.prices.exactly(o, ever)
	return found.price, ok
}

// Currency returns the currency of all prices, or "" while it is not known.
func (b *Book) Currency() string { return b.options.Source.Currency() }

// FreshPrice returns what Price returns, from prices that were seen within the maximum age, so that it can be compared with a
// price cap. Where the spot price is older, a fresh on-demand price takes its place: "the market price can be up to the
// pay-as-you-go price" (Alibaba Cloud's API reference, SpotStrategy).
func (b *Book) FreshPrice(o Offering) (float64, bool) {
	freshSince := b.freshSince()
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.prices.of(o, freshSince)
}

func (b *Book) freshSince() time.Time { return b.options.Clock.Now().Add(-b.options.MaxAge) }

// Known returns the wanted offerings that have a price.
func (b *Book) Known() map[Offering]float64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	known := make(map[Offering]float64, len(b.wanted.offerings))
	for o := range b.wanted.offerings {
		if price, ok := b.prices.of(o, ever); ok {
			known[o] = price
		}
	}
	return known
}

// Wanted returns all wanted offerings, with the last price of exactly each of them, 0 where there is none.
func (b *Book) Wanted() map[Offering]float64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	wanted := make(map[Offering]float64, len(b.wanted.offerings))
	for o := range b.wanted.offerings {
		exact, _ := b.prices.exactly(o, ever)
		wanted[o] = exact.price
	}
	return wanted
}

// AwaitFirstLookup returns when every wanted price has been looked up, successfully or not, or with the context's error. After
// a start it makes the first purchase wait for prices.
func (b *Book) AwaitFirstLookup(ctx context.Context) error {
	for {
		done, lookedUp := b.firstLookupDone()
		if done {
			return nil
		}
		select {
		case <-lookedUp:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// firstLookupDone returns whether every wanted price has been looked up, and a channel that is closed after the next lookup.
func (b *Book) firstLookupDone() (bool, <-chan struct{}) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.wanted.firstDone(), b.lookedUp
}
