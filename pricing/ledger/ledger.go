package ledger

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
)

// Instance is an instance that is paid for.
type Instance struct {
	ID       string
	Pool     string
	Offering pricing.Offering
	GPUs     float64
	// Created is zero if it is not known.
	Created time.Time
	// Reclaiming is true from the notice on.
	Reclaiming bool
	// Shares are the parts of it that pods request.
	Shares []Share
}

// Share is the part of an instance that the pods of a job request there, from 0 to 1.
type Share struct {
	Job  Job
	Part float64
}

// Inventory tells which instances there are. It has to be safe for concurrent use.
type Inventory interface {
	// Instances returns all instances, and as of when; zero while they are not known.
	Instances() (instances []Instance, at time.Time)
}

// Prices are the market prices per instance-hour. *pricing.Book implements it.
type Prices interface {
	Price(pricing.Offering) (perHour float64, known bool)
	Currency() string
}

// Store keeps the totals across restarts. Errors for which apierrors.IsConflict holds say that somebody else has saved since.
type Store interface {
	// Load returns what was saved last, nil if nothing was.
	Load(ctx context.Context) ([]byte, error)
	Save(ctx context.Context, state []byte) error
}

// Config is what a Ledger needs. Ended and Corrupt are optional.
type Config struct {
	Inventory Inventory
	Prices    Prices
	Store     Store
	Clock     clock.WithTicker
	// Ended is called once for each job whose pods have been gone for a minute, and again if it has pods again and loses them. It must not
	// call the ledger.
	Ended func(ctx context.Context, job Job, cost Amounts, currency string)
	// Corrupt is called if what was saved cannot be read. The ledger begins anew then.
	Corrupt func(error)
}

const (
	// accountEvery is how often the instances are counted. One that is gone counts for half of the time since then.
	accountEvery = 10 * time.Second
	// saveEvery is how often the totals are saved. A process that ends without saving has them counted again.
	saveEvery = time.Minute
	// endedAfter is how long a job has to be without pods to have ended.
	endedAfter  = 10 * time.Minute
	saveTimeout = 10 * time.Second
)

// Ledger is safe for concurrent use.
type Ledger struct {
	config Config

	mu     sync.Mutex
	totals *totals
	// last are the instances that were counted last, by id.
	last map[string]Instance
}

// New returns a ledger that is empty until Run runs.
func New(config Config) *Ledger {
	return &Ledger{config: config, totals: newTotals(), last: map[string]Instance{}}
}

// Run loads the totals and accounts until ctx ends. It saves them then once more. As long as they cannot be loaded, nothing is accounted
// for, so that nothing is overwritten. Run is to be called once.
func (l *Ledger) Run(ctx context.Context) {
	published.Store(l)
	defer published.CompareAndSwap(l, nil)
	ticker := l.config.Clock.NewTicker(accountEvery)
	defer ticker.Stop()
	loaded := false
	var saved time.Time // the first time is saved at once: what is created later counts from its creation, whoever leads
	for {
		switch {
		case !loaded:
			loaded = l.load(ctx)
		case l.account(ctx) && l.config.Clock.Since(saved) >= saveEvery:
			saved = l.config.Clock.Now()
			loaded = l.save(ctx)
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			if loaded {
				l.save(context.WithoutCancel(ctx))
			}
			return
		}
	}
}

// load replaces the totals by the saved ones. It returns false if that has to be tried again.
func (l *Ledger) load(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	state, err := l.config.Store.Load(ctx)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot load the cost ledger, will try again")
		}
		return false
	}
	loaded, err := decode(state)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The saved cost ledger cannot be read; it begins anew")
		if l.config.Corrupt != nil {
			l.config.Corrupt(err)
		}
		loaded = newTotals()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.totals, l.last = loaded, map[string]Instance{}
	return true
}

// save saves the totals. It returns false if somebody else has saved since, so that they have to be loaded anew: what was accounted for
// since then is accounted for again.
func (l *Ledger) save(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	l.mu.Lock()
	state, err := encode(l.totals)
	l.mu.Unlock()
	if err == nil {
		err = l.config.Store.Save(ctx, state)
	}
	if err != nil && ctx.Err() == nil {
		saveErrors.Inc()
		klog.FromContext(ctx).Error(err, "Cannot save the cost ledger, will try again")
	}
	return !apierrors.IsConflict(err)
}

// account accounts for all instances until now. It returns false while they are not known.
func (l *Ledger) account(ctx context.Context) bool {
	instances, at := l.config.Inventory.Instances()
	if at.IsZero() {
		return false
	}
	ended, currency := l.accountUntil(instances, at)
	for job, cost := range ended {
		if l.config.Ended != nil {
			l.config.Ended(ctx, job, cost, currency)
		}
	}
	return true
}

func (l *Ledger) accountUntil(instances []Instance, at time.Time) (ended map[Job]Amounts, currency string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.totals
	t.currency = l.config.Prices.Currency()
	if t.since.IsZero() {
		t.since, t.until = at, at
	}
	if !at.After(t.until) {
		return nil, t.currency
	}
	now := make(map[string]Instance, len(instances))
	for _, i := range instances {
		now[i.ID] = i
		t.add(i, l.costOf(i, at.Sub(t.from(i, at))), at)
		delete(l.last, i.ID)
	}
	for _, i := range l.last { // released since
		t.add(i, l.costOf(i, at.Sub(t.until)/2), t.until)
	}
	l.last, t.until = now, at
	t.fold(at)
	return t.ended(at), t.currency
}

// from returns from when on the instance has to be accounted for.
func (t *totals) from(i Instance, at time.Time) time.Time {
	switch {
	case i.Created.After(at):
		return at
	case i.Created.After(t.until):
		return i.Created
	}
	return t.until
}

// costOf returns what the instance costs for so long, without its pods.
func (l *Ledger) costOf(i Instance, length time.Duration) Amounts {
	hours := length.Hours()
	a := Amounts{InstanceHours: hours, GPUHours: hours * i.GPUs}
	if i.Reclaiming {
		a.Reclaiming = a.GPUHours
	}
	price, known := l.config.Prices.Price(i.Offering)
	if !known {
		a.Unpriced = hours
		return a
	}
	onDemand := i.Offering
	onDemand.Spot = false
	listed, known := l.config.Prices.Price(onDemand)
	if !known {
		listed = price
	}
	a.Cost, a.OnDemand = hours*price, hours*listed
	return a
}

// ended returns the jobs that have ended, each once.
func (t *totals) ended(now time.Time) map[Job]Amounts {
	ended := map[Job]Amounts{}
	for job, amounts := range t.jobs {
		if !amounts.announced && now.Sub(amounts.lastSeen) >= endedAfter {
			amounts.announced = true
			ended[job] = amounts.Amounts
		}
	}
	return ended
}
