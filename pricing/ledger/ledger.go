package ledger

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/state"
)

// Instance is an instance that is paid for.
type Instance struct {
	ID       string
	Pool     string
	Offering pricing.Offering
	GPUs     float64
	// Created is zero if it is not known.
	Created time.Time
	// Protected is for how long from its creation it costs the price of its purchase, 0 for none.
	Protected time.Duration
	// Reclaiming is true from the notice on.
	Reclaiming bool
	// Lost is true from then on if it is the market that takes it away.
	Lost bool
	// Shares are the parts of it that pods request.
	Shares []Share
}

// Share is the part of an instance that a pod of a job requests there, from 0 to 1.
type Share struct {
	Job  Job
	Part float64
	// Since is when the pod began to run there; zero if it is not known.
	Since time.Time
}

// Inventory tells which instances there are. It has to be safe for concurrent use.
type Inventory interface {
	// Instances returns all instances, and as of when; zero while they are not known.
	Instances() (instances []Instance, at time.Time)
}

// Prices are the market prices per instance-hour. *pricing.Book implements it.
type Prices interface {
	// ExactPrice returns the price of this offering and no other.
	ExactPrice(pricing.Offering) (perHour float64, known bool)
	// Price returns the price, or the one that comes closest to it.
	Price(pricing.Offering) (perHour float64, known bool)
	// PriceAt returns the price at a time, or the one that comes closest to it.
	PriceAt(o pricing.Offering, at time.Time) (perHour float64, known bool)
	// MarketCost returns what an instance costs from one time to another at the market price of each moment.
	MarketCost(o pricing.Offering, from, to time.Time) (cost float64, known bool)
	Currency() string
}

// Config is what a Ledger needs. Ended and Anew are optional.
type Config struct {
	Inventory Inventory
	Prices    Prices
	Store     state.Store
	Clock     clock.WithTicker
	// Ended is called for each job whose pods have been gone for a minute, and again a minute later if it returns false, for an hour. It must
	// not call the ledger.
	Ended func(ctx context.Context, job Job, cost Amounts, currency string) bool
	// Anew is called if the ledger begins anew: what was saved cannot be read, or is in another currency.
	Anew func(error)
}

const (
	// accountEvery is how often the instances are counted. One that is gone counts for half of the time since then.
	accountEvery = 10 * time.Second
	// saveEvery is how often the totals are saved. A process that ends without saving has them counted again.
	saveEvery   = time.Minute
	saveTimeout = 10 * time.Second
	// pricePatience is how long nothing is counted while prices are not known: after a start they are looked up.
	pricePatience = 5 * time.Minute
)

// Ledger is safe for concurrent use.
type Ledger struct {
	config Config

	mu     sync.Mutex
	totals *totals
	// last are the instances that were counted last, by id; nil before the first time. gone are those that are not listed any more, with the time
	// until which they were counted.
	last map[string]Instance
	gone map[string]time.Time
	// begun is from when on this process accounts, with the totals that it has loaded. measuredUntil is until when the metrics have what was
	// accounted for.
	begun, measuredUntil time.Time
	// listed are the instances that were listed last, accounted for or not, as of listedAt; zero before the first time.
	listed   []Instance
	listedAt time.Time

	// The following is Run's own. waiting is since when nothing is counted for want of prices, given up those offerings of which none came.
	waiting time.Time
	givenUp map[pricing.Offering]bool
}

// New returns a ledger that is empty until Run runs.
func New(config Config) *Ledger {
	return &Ledger{config: config, totals: newTotals(), gone: map[string]time.Time{}, givenUp: map[pricing.Offering]bool{}}
}

// Run loads the totals and accounts until ctx ends. It accounts and saves once more then. As long as they cannot be loaded, nothing is
// accounted for, so that nothing is overwritten. Run is to be called once.
func (l *Ledger) Run(ctx context.Context) {
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
				l.end(context.WithoutCancel(ctx))
			}
			return
		}
	}
}

// end accounts once more and saves: whoever reads what is saved when this process has ended looks for the instances that there are then.
// Jobs are told by the next leader.
func (l *Ledger) end(ctx context.Context) {
	if instances, at, ready := l.list(); ready {
		if err := l.accountUntil(instances, at); err != nil {
			l.beginAnew(ctx, err)
		}
	}
	l.save(ctx)
}

// load replaces the totals by the saved ones. It returns false if that has to be tried again.
func (l *Ledger) load(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	saved, err := l.config.Store.Load(bounded)
	if err != nil {
		if ctx.Err() == nil {
			storeErrors.Inc()
			klog.FromContext(ctx).Error(err, "Cannot load the cost ledger, will try again")
		}
		return false
	}
	loaded, err := decode(saved)
	if err != nil {
		l.beginAnew(ctx, err)
		loaded = newTotals()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.totals, l.last, l.gone = loaded, nil, map[string]time.Time{}
	return true
}

func (l *Ledger) beginAnew(ctx context.Context, why error) {
	klog.FromContext(ctx).Error(why, "The cost ledger begins anew; what was saved is set aside")
	l.config.Store.SetAside()
	if l.config.Anew != nil {
		l.config.Anew(why)
	}
}

// save saves the totals. It returns false if somebody else has saved since, so that they have to be loaded anew: what was accounted for
// since then is accounted for again.
func (l *Ledger) save(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	l.mu.Lock()
	l.totals.running, l.totals.runningAt = l.running()
	saved, err := encode(l.totals)
	l.mu.Unlock()
	if err == nil {
		err = l.config.Store.Save(bounded, saved)
	}
	if err != nil && ctx.Err() == nil {
		storeErrors.Inc()
		klog.FromContext(ctx).Error(err, "Cannot save the cost ledger, will try again")
	}
	return !apierrors.IsConflict(err)
}

// account accounts for all instances until now. It returns false while they, or their prices, are not known.
func (l *Ledger) account(ctx context.Context) bool {
	instances, at, ready := l.list()
	if !ready {
		return false
	}
	if err := l.accountUntil(instances, at); err != nil {
		l.beginAnew(ctx, err)
	}
	l.tell(ctx)
	return true
}

// list lists the instances. They are not ready to be accounted for while they, or their prices, are not known.
func (l *Ledger) list() (instances []Instance, at time.Time, ready bool) {
	if instances, at = l.config.Inventory.Instances(); at.IsZero() {
		return nil, at, false
	}
	l.mu.Lock()
	l.listed, l.listedAt = instances, at
	l.mu.Unlock()
	return instances, at, !l.awaitsPrices(instances)
}

// awaitsPrices returns whether prices of instances are not known that may be soon. If they do not come in time, the closest ones are taken.
func (l *Ledger) awaitsPrices(instances []Instance) bool {
	now := l.config.Clock.Now()
	var unknown []pricing.Offering
	for _, i := range instances {
		if _, known := l.config.Prices.ExactPrice(i.Offering); !known && !l.givenUp[i.Offering] {
			unknown = append(unknown, i.Offering)
		}
	}
	switch {
	case len(unknown) == 0:
		l.waiting = time.Time{}
		return false
	case l.waiting.IsZero():
		l.waiting = now
		return true
	case now.Sub(l.waiting) < pricePatience:
		return true
	}
	for _, offering := range unknown {
		l.givenUp[offering] = true
	}
	l.waiting = time.Time{}
	return false
}

// tell tells jobs that have ended what they cost, a few at a time.
func (l *Ledger) tell(ctx context.Context) {
	if l.config.Ended == nil {
		return
	}
	l.mu.Lock()
	ended, currency := l.totals.ended(l.totals.until), l.totals.currency
	l.mu.Unlock()
	told := map[Job]bool{}
	for job, cost := range ended {
		told[job] = l.config.Ended(ctx, job, cost, currency)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for job, done := range told {
		l.totals.announce(job, done)
	}
}
