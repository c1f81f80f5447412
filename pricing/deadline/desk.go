package deadline

import (
	"context"
	"strconv"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

const (
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
	plans  plans
	// due are plans that have to learn.
	due chan *plan
}

// NewDesk returns a Desk. Nothing is decided before Run runs.
func NewDesk(config Config) *Desk {
	return &Desk{config: config, plans: plans{all: map[key]*plan{}}, due: make(chan *plan, mostPlans)}
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

// Job is what a decision is about.
type Job struct {
	Namespace string
	// Work is how much useful time the job needs, and Slack by how much longer it is until its deadline.
	Work, Slack time.Duration
	// ValueOfTime is what it is worth per instance-hour that the job is over sooner, as pricing.ValueOfTime returns it: 0 stands for the on-demand
	// price, and nil for nothing, since there is a deadline.
	ValueOfTime *float64
}

// Choose returns what may be bought now for a job that may run on the offers.
func (d *Desk) Choose(offers *Offers, job Job) Choice {
	if !offers.isChoice || job.Work <= 0 || job.Slack <= 0 {
		return Undecided
	}
	g, state := gridOf(job, d.config.Terms.Restart)
	now, changes := d.config.Clock.Now(), d.config.Memory.Changes()
	p := d.plans.get(key{g, offers.key}, offers, job.Namespace, now)
	d.enqueue(p, now, changes)
	if p.now.Load() == nil {
		p = d.plans.larger(p, now)
		d.enqueue(p, now, changes)
	}
	known := p.now.Load()
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

// enqueue has the plan learn anew if what it knows is outdated.
func (d *Desk) enqueue(p *plan, now time.Time, changes int) {
	if p.now.Load().isOutdated(now, changes) && d.plans.keeps(p) && p.queued.CompareAndSwap(false, true) {
		select {
		case d.due <- p:
		default:
			p.queued.Store(false) // the next decision asks again
		}
	}
}

// renew has the plan learn, if it is still kept.
func (d *Desk) renew(ctx context.Context, p *plan) {
	defer p.queued.Store(false)
	if !d.plans.keeps(p) {
		return
	}
	now, changes := d.config.Clock.Now(), d.config.Memory.Changes()
	learnt := d.learn(p, now, changes)
	valueOfTime := "not stated"
	if stated := p.grid.stated(); stated != nil {
		valueOfTime = strconv.FormatFloat(*stated, 'g', -1, 64)
	}
	klog.FromContext(ctx).V(1).Info("Learnt what a job with a deadline runs on", "work", time.Duration(p.grid.work)*p.grid.tick,
		"slack", time.Duration(p.grid.slack)*p.grid.tick, "valueOfTime", valueOfTime, "offerings", learnt.spot, "learnt", learnt.planner != nil, "took", d.config.Clock.Since(now))
	p.now.Store(d.look(learnt, now, changes))
}
