package deadline

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

const (
	// mostPlans is how many plans are kept, of up to ten megabytes each; those that were not asked for the longest are forgotten.
	mostPlans = 16
	// learnEvery is how often a plan learns anew, and soonest how soon it does if the market has changed more than in all the time before.
	learnEvery, soonest = 24 * time.Hour, time.Hour
	// lookEvery is how old what was seen of the present may be, if nothing has changed.
	lookEvery = 10 * time.Minute
)

// Choice is what may be bought for a job now.
type Choice int

const (
	// Undecided is that too little is known.
	Undecided Choice = iota
	// Spot is that it costs less to wait for spot than to buy on demand, if there is none.
	Spot
	// OnDemand is that spot costs more until the job is over, or that no time is left for it.
	OnDemand
	// Any is the same where an attempt at spot may cost less all the same: there are offerings of which nothing is known, or none of those that
	// are known is up. Both may be bought.
	Any
)

// Config is what a Desk needs. All of it is required.
type Config struct {
	Memory *market.Memory
	// Price returns the market price of an offering per instance-hour.
	Price func(pricing.Offering) (float64, bool)
	// Terms are what time is worth.
	Terms pricing.Terms
	Clock clock.Clock
}

// Desk decides what is bought for jobs. It is safe for concurrent use.
type Desk struct {
	config Config
	mu     sync.Mutex
	plans  *lru.Cache
	// due are plans that have to learn.
	due chan *plan
}

// plan is what is known of jobs of some kind.
type plan struct {
	terms  grid
	offers *Offers
	now    atomic.Pointer[outlook]
	queued atomic.Bool
}

// NewDesk returns a Desk. Nothing is decided before Run runs.
func NewDesk(config Config) *Desk {
	return &Desk{config: config, plans: lru.New(mostPlans), due: make(chan *plan, mostPlans)}
}

// Run has plans learn until the context ends.
func (d *Desk) Run(ctx context.Context) {
	for {
		select {
		case p := <-d.due:
			d.renew(ctx, p)
		case <-ctx.Done():
			return
		}
	}
}

// Choose returns what may be bought now for a job that may run on the offers and needs so much useful time, if the time until its deadline is so
// much longer. The value of time is what it is worth per instance-hour that the job is over sooner: 0 stands for the on-demand price, and nil for
// nothing, since there is a deadline.
func (d *Desk) Choose(offers *Offers, work, slack time.Duration, valueOfTime *float64) Choice {
	if !offers.isChoice || work <= 0 || slack <= 0 {
		return Undecided
	}
	g, state := gridOf(work, slack, d.config.Terms.Restart)
	g.valueOfTime = valueFor(valueOfTime)
	p := d.planOf(g, offers)
	known, now, changes := p.now.Load(), d.config.Clock.Now(), d.config.Memory.Changes()
	if known.isOutdated(now, changes) && p.queued.CompareAndSwap(false, true) {
		select {
		case d.due <- p:
		default:
			p.queued.Store(false) // the next decision asks again
		}
	}
	if known == nil {
		p = d.larger(p)
		known = p.now.Load()
	}
	if known == nil || known.planner == nil {
		return Undecided
	}
	if known.isOld(now, changes) {
		before := known
		known = d.look(before, now, changes)
		p.now.CompareAndSwap(before, known) // unless the plan has learnt anew meanwhile
	}
	return d.choose(known, state, now)
}

// key tells plans apart.
type key struct {
	grid   grid
	offers string
}

func (d *Desk) planOf(g grid, offers *Offers) *plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := key{g, offers.key}
	if known, ok := d.plans.Get(at); ok {
		return known.(*plan)
	}
	p := &plan{terms: g, offers: offers}
	d.plans.Add(at, p)
	return p
}

// larger returns a plan that has learnt for the same jobs with more slack, whose tables hold those of this one; the plan itself if there is none.
// The slack of a job that waits gets less. Each time that it needs a smaller table nothing would be decided until that has learnt, and the rule of
// its pool would buy on-demand.
func (d *Desk) larger(than *plan) *plan {
	d.mu.Lock()
	defer d.mu.Unlock()
	for g := than.terms; g.slack < mostSlack; {
		g.slack = min(sizeFor(g.slack+1), mostSlack)
		if known, ok := d.plans.Get(key{g, than.offers.key}); ok && known.(*plan).now.Load() != nil {
			return known.(*plan)
		}
	}
	return than
}

// renew has the plan learn.
func (d *Desk) renew(ctx context.Context, p *plan) {
	defer p.queued.Store(false)
	now, changes := d.config.Clock.Now(), d.config.Memory.Changes()
	learnt := d.learn(p, now, changes)
	klog.FromContext(ctx).V(1).Info("Learnt what a job with a deadline runs on", "work", time.Duration(p.terms.work)*p.terms.tick,
		"slack", time.Duration(p.terms.slack)*p.terms.tick, "offerings", learnt.spot, "learnt", learnt.planner != nil, "took", d.config.Clock.Since(now))
	p.now.Store(d.look(learnt, now, changes))
}
