package spotfirst

import (
	"cmp"
	"math"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// mostOfferings is among how many offerings, the cheapest ones, spot is bought for a pod that moves.
const mostOfferings = 12

// Moves says which jobs on on-demand instances are to move to spot ones. It is safe for concurrent use.
type Moves struct {
	deadlines *Deadlines
	progress  Progress
	terms     pricing.Terms
	clock     clock.PassiveClock
}

// NewMoves returns Moves that know the market as the Deadlines do. The progress may be nil.
func NewMoves(deadlines *Deadlines, progress Progress, terms pricing.Terms, clock clock.PassiveClock) *Moves {
	return &Moves{deadlines: deadlines, progress: progress, terms: terms, clock: clock}
}

// Job is a job that may move.
type Job struct {
	// Pods are those on on-demand instances, which are alone on the Nodes, and have all run since then. Rest are the others.
	Pods, Rest []*apiv1.Pod
	Nodes      []*apiv1.Node
	Since      time.Time
	// Zone is where its spot instances have to be, empty for anywhere.
	Zone string
}

// Plan is how a job is to move.
type Plan struct {
	// OnDemand is what the on-demand instances cost per hour, and Spot what an hour of useful work costs on the best spot ones, as many of them as
	// the pods need.
	OnDemand, Spot float64
	// Offerings are those on which each of the pods may be for the move to pay.
	Offerings [][]pricing.Offering
	// Saved is how much of its work the job has done, if it states that.
	Saved time.Duration
}

// Saves returns what is saved per hour.
func (p Plan) Saves() float64 { return p.OnDemand - p.Spot }

// Wanted returns whether the owner of the pod wants it to move to spot where that pays; said is false if the pod does not say. One that is to be on
// demand, or of a job of which some are, does not.
func (m *Moves) Wanted(pod *apiv1.Pod) (wanted, said bool) {
	s, _ := settingsOf(pod)
	if s.onDemand || s.floor != nil {
		return false, true
	}
	if s.move == nil {
		return false, false
	}
	return *s.move, true
}

// kind is pods of a job that may be on the same nodes.
type kind struct {
	pods    []int
	options []option
	// paying are the options with which the move pays.
	paying []pricing.Offering
}

// option is a spot offering for all pods of a kind, and what an hour of useful work costs there on as many whole instances as they need.
type option struct {
	pricing.Offering
	// losses are how many of the instances are lost per hour.
	cost, losses float64
}

// Plan returns how the job is to move, and false if it is not to: prices are not known, there would be no time for another reclaim before its
// deadline, or it does not pay. If all of it is on demand and it states its work and its deadline, that is decided by what is expected to cost least
// until it is over, if enough is known of the market. Otherwise pricing.Move decides, for as long as the work of the job takes yet, or, if it does not
// say, as long as it has run.
func (m *Moves) Plan(job Job) (plan Plan, pays bool) {
	others := sets.New[string]()
	for _, pod := range job.Rest {
		others.Insert(pod.Spec.NodeName)
	}
	move := pricing.Move{Instances: len(job.Nodes) + others.Len(), Others: others.Len(), GoesOn: m.clock.Since(job.Since)}
	left, mayLeave := m.leftOf(job)
	if left.Work >= 0 {
		move.GoesOn = min(move.GoesOn, left.Work)
	}
	var known bool
	if move.OnDemand, known = m.priceOf(job.Nodes); !known || !mayLeave || len(job.Pods) == 0 {
		return Plan{}, false
	}
	kinds, decided := m.kinds(job, left)
	for _, k := range kinds {
		if len(k.options) == 0 {
			return Plan{}, false
		}
		move.Useful += k.options[0].cost
		move.Losses += k.options[0].losses
	}
	move.Rest = move.Useful / float64(len(job.Pods)) * float64(len(job.Rest))
	pay := pricing.Move.Pays
	if decided && !slices.ContainsFunc(job.Rest, countsIn(job.Pods)) {
		pay = pricing.Move.IsWorthIt // the table knows how long it goes on
	}
	plan = Plan{OnDemand: move.OnDemand, Spot: move.Useful, Saved: max(0, left.Whole-left.Work), Offerings: make([][]pricing.Offering, len(job.Pods))}
	terms := m.terms.With(left.ValueOfTime)
	for _, k := range kinds {
		for _, o := range k.options[:min(len(k.options), mostOfferings)] {
			if pay(k.with(o, move), terms) {
				k.paying = append(k.paying, o.Offering)
			}
		}
		for _, pod := range k.pods {
			plan.Offerings[pod] = k.paying
		}
	}
	return plan, pay(move, terms)
}

// countsIn returns whether a pod counts in a job with these pods: if some of them request GPUs, only those that do.
func countsIn(pods []*apiv1.Pod) func(*apiv1.Pod) bool {
	if slices.ContainsFunc(pods, processors.RequestsGPU) {
		return processors.RequestsGPU
	}
	return func(*apiv1.Pod) bool { return true }
}

// priceOf returns what the Nodes cost per hour, and false if that is not known.
func (m *Moves) priceOf(nodes []*apiv1.Node) (sum float64, known bool) {
	for _, node := range nodes {
		price, known := m.deadlines.chooser.Price(pricing.OfferingOf(node))
		if !known {
			return 0, false
		}
		sum += price
	}
	return sum, true
}

// with returns the move with that option in place of the best.
func (k *kind) with(o option, move pricing.Move) pricing.Move {
	move.Useful += o.cost - k.options[0].cost
	move.Losses += o.losses - k.options[0].losses
	return move
}

// kinds returns the pods of the job by the nodes that they may be on, each with its options, the cheapest first. If the job states how much work and
// slack it has left, those are left on which it is expected to cost less until it is over than on demand; decided is false if too little is known
// for that. Of a job with GPUs that is decided by the pods that request some.
func (m *Moves) kinds(job Job, left deadline.Job) (kinds []*kind, decided bool) {
	index := map[*deadline.Offers]*kind{}
	for i, pod := range job.Pods {
		offers := m.deadlines.offersOf(pod)
		k := index[offers]
		if k == nil {
			k = &kind{}
			index[offers] = k
			kinds = append(kinds, k)
		}
		k.pods = append(k.pods, i)
	}
	decided = left.Slack > 0
	isCounted := countsIn(job.Pods)
	for offers, k := range index {
		var better []pricing.Offering
		known := false
		if isCounted(job.Pods[k.pods[0]]) {
			better, known = m.deadlines.chooser.Better(offers, left)
			decided = decided && known
		}
		is := sets.New(better...)
		for _, o := range m.deadlines.chooser.Spot(offers, left.ValueOfTime) {
			if job.Zone != "" && o.Zone != job.Zone || known && !is.Has(o.Offering) {
				continue
			}
			instances := math.Ceil(float64(len(k.pods))*o.Share - 1e-9)
			each := option{Offering: o.Offering, cost: o.Cost / o.Share * instances}
			if o.Life > 0 {
				each.losses = instances / o.Life.Hours()
			}
			k.options = append(k.options, each)
		}
		slices.SortStableFunc(k.options, func(a, b option) int { return cmp.Compare(a.cost, b.cost) })
	}
	return kinds, decided
}

// done returns how much of its work the job of the pod has done, which has run since a time, and false as long as that is being read.
func (m *Moves) done(pod *apiv1.Pod, s settings, since time.Time) (done time.Duration, known bool) {
	switch {
	case saysDone(pod):
		return 0, true
	case m.progress != nil && !s.deadline.IsZero():
		return m.progress.Done(pod)
	}
	return max(0, m.clock.Since(since)-m.terms.Restart), true
}

// leftOf returns how much work is left of the job, negative if no pod states it, and how much longer it is until its deadline, 0 if not all pods that
// count state both. It returns false if the deadline allows no move.
func (m *Moves) leftOf(job Job) (left deadline.Job, mayLeave bool) {
	left = deadline.Job{Work: -1, Slack: math.MaxInt64, ValueOfTime: pricing.ValueOfTime(slices.Concat(job.Pods, job.Rest)...)}
	all, isCounted := true, countsIn(job.Pods)
	for _, pod := range job.Pods {
		s, _ := settingsOf(pod)
		left.Namespace = pod.Namespace
		done, known := m.done(pod, s, job.Since)
		if !known {
			return left, false
		}
		if s.work > 0 {
			s.work = max(0, s.work-done)
		}
		left.Work, left.Whole = max(left.Work, s.work), max(left.Whole, s.whole)
		slack, hasDeadline := s.slack(m.clock.Now())
		all = all && (hasDeadline || !isCounted(pod))
		switch {
		case !s.deadline.IsZero() && !hasDeadline, hasDeadline && slack < restarts*m.terms.Restart:
			return left, false
		case hasDeadline:
			left.Slack = min(left.Slack, slack)
		}
	}
	if !all || left.Work < 0 {
		left.Slack = 0
	}
	return left, true
}
