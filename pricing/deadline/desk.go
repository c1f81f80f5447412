package deadline

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

const (
	// LearnEvery is how often a plan learns anew. When the market changes, its last hours tell the most.
	LearnEvery = 6 * time.Hour
	// soonest is how soon a plan learns anew if the market has changed more than in all the time before.
	soonest = time.Hour
	// learningTime is for how long the first job of its kind waits for its plan. A plan learns in about a second, but up to mostPlans may be due at once,
	// and they learn one after the other.
	learningTime = time.Minute
	// lookEvery is how old what was seen of the present may be, if nothing has changed. An offering that nobody has seen for minutes may be gone.
	lookEvery = time.Minute
)

// Choice is what may be bought for a job now.
type Choice int

const (
	// Undecided is that there is no choice between spot and on-demand, or that their prices are not known.
	Undecided Choice = iota
	// Spot is that it costs less to wait for spot than to buy on demand, if there is none.
	Spot
	// OnDemand is that spot costs more until the job is over, or that no time is left for it.
	OnDemand
	// Any is the same where an attempt at spot may cost less all the same: there are offerings of which nothing is known, or none of those that
	// are known is up. Both may be bought.
	Any
	// Learning is that it is known in a moment.
	Learning
	// Wait is that it costs less to wait until spot that has just come back has lasted. Nothing is to be bought.
	Wait
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
	// isRunning is whether they do.
	isRunning atomic.Bool
}

// NewDesk returns a Desk. It learns nothing before Run runs.
func NewDesk(config Config) *Desk {
	return &Desk{config: config, plans: plans{all: map[key]*plan{}}, due: make(chan *plan, mostPlans)}
}

// Run has plans learn until the context ends.
func (d *Desk) Run(ctx context.Context) {
	d.isRunning.Store(true)
	defer d.isRunning.Store(false)
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
	// Whole is all of its useful time, done or not, by which it is judged whether the slack is much. The Work counts if that is more.
	Whole time.Duration
	// ValueOfTime is what it is worth per instance-hour that the job is over sooner, as pricing.ValueOfTime returns it: 0 stands for the on-demand
	// price, and nil for nothing, since there is a deadline.
	ValueOfTime *float64
	// Idle is whether no other pods of the job have an instance, which would be paid for while these wait. Without it, Wait is no choice.
	Idle bool
	// Hurries is whether the job is not to wait for what is being learnt. Then Learning is no choice, and a Guess decides.
	Hurries bool
}

// Choose returns what may be bought now for a job that may run on the offers. As long as too little was seen of the market, that is a Guess.
func (d *Desk) Choose(offers *Offers, job Job) Choice {
	now := d.config.Clock.Now()
	known, state, isLearning := d.consult(offers, job, now)
	if isLearning && !job.Hurries {
		return Learning
	}
	if known != nil {
		if choice := d.choose(known, state, job.Idle, now); choice != Undecided {
			return choice
		}
	}
	return d.chooseByGuess(offers, job)
}

// Better returns the spot offerings on which it costs less to finish than on-demand, for a job that runs there. As long as too little was seen of the
// market it returns false, or none if the job stays where it is by a Guess.
func (d *Desk) Better(offers *Offers, job Job) (better []pricing.Offering, decided bool) {
	now := d.config.Clock.Now()
	known, state, _ := d.consult(offers, job, now)
	if known == nil {
		return nil, d.staysByGuess(offers, job)
	}
	present := d.config.Memory.Present(known.spot, now)
	situation, isKnown := d.situation(known, present, now)
	if !isKnown {
		return nil, d.staysByGuess(offers, job)
	}
	state.On = finish.OnDemand
	for _, place := range known.planner.Better(state, situation) {
		better = append(better, known.spot[place])
	}
	return better, true
}

// consult returns what the plan for the job knows, and where the job stands on its tables; nil if too little is known, perhaps because it is just being
// learnt.
func (d *Desk) consult(offers *Offers, job Job, now time.Time) (known *outlook, state finish.State, isLearning bool) {
	if !offers.isChoice || job.Work <= 0 || job.Slack <= 0 {
		return nil, state, false
	}
	g, state := GridOf(job, d.config.Terms.Restart)
	changes := d.config.Memory.Changes()
	p := d.plans.get(key{g, offers.key}, offers, job.Namespace, now)
	d.enqueue(p, now, changes)
	if p.now.Load() == nil {
		p = d.plans.larger(p, now)
		d.enqueue(p, now, changes)
	}
	if known = p.now.Load(); known == nil || known.planner == nil {
		return nil, state, (known == nil || p.queued.Load()) && d.isRunning.Load() && d.plans.keeps(p) && now.Sub(p.made) < learningTime
	}
	if known.isOld(now, changes) {
		before := known
		known = d.look(before, now, changes)
		p.now.CompareAndSwap(before, known) // unless the plan has learnt anew meanwhile
	}
	return known, state, false
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
