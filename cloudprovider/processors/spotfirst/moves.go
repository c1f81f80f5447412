package spotfirst

import (
	"cmp"
	"math"
	"slices"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/deadline"
)

// mostOfferings is among how many offerings, the cheapest ones, spot is bought for a pod that moves.
const mostOfferings = 12

// Moves says which jobs on on-demand instances are to move to spot ones. It is safe for concurrent use.
type Moves struct {
	deadlines *Deadlines
	terms     pricing.Terms
	clock     clock.PassiveClock
}

// NewMoves returns Moves that know the market as the Deadlines do.
func NewMoves(deadlines *Deadlines, terms pricing.Terms, clock clock.PassiveClock) *Moves {
	return &Moves{deadlines: deadlines, terms: terms, clock: clock}
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
}

// option is a spot offering for all pods of a kind, and what an hour of useful work costs there on as many whole instances as they need.
type option struct {
	pricing.Offering
	// losses are how many of the instances are lost per hour.
	cost, losses float64
}

// Plan returns how the job is to move, and false if it is not to: prices are not known, there would be no time for another reclaim before its
// deadline, or it does not pay for as long as the work of the job takes yet, or, if it does not say, as long as it has run.
func (m *Moves) Plan(job Job) (plan Plan, pays bool) {
	others := sets.New[string]()
	for _, pod := range job.Rest {
		others.Insert(pod.Spec.NodeName)
	}
	move := pricing.Move{Instances: len(job.Nodes) + others.Len(), Others: others.Len(), GoesOn: m.clock.Since(job.Since)}
	valueOfTime := pricing.ValueOfTime(slices.Concat(job.Pods, job.Rest)...)
	terms := m.terms.With(valueOfTime)
	for _, pod := range job.Pods {
		goesOn, mayLeave := m.goesOn(pod, m.clock.Since(job.Since), valueOfTime)
		if !mayLeave {
			return Plan{}, false
		}
		move.GoesOn = min(move.GoesOn, goesOn)
	}
	for _, node := range job.Nodes {
		price, known := m.deadlines.chooser.Price(pricing.OfferingOf(node))
		if !known {
			return Plan{}, false
		}
		move.OnDemand += price
	}
	kinds := m.kinds(job, valueOfTime)
	for _, k := range kinds {
		if len(k.options) == 0 {
			return Plan{}, false
		}
		move.Useful += k.options[0].cost
		move.Losses += k.options[0].losses
	}
	move.Rest = move.Useful / float64(max(1, len(job.Pods))) * float64(len(job.Rest))
	plan = Plan{OnDemand: move.OnDemand, Spot: move.Useful, Offerings: make([][]pricing.Offering, len(job.Pods))}
	for _, k := range kinds {
		paying := k.paying(move, terms)
		for _, pod := range k.pods {
			plan.Offerings[pod] = paying
		}
	}
	return plan, len(job.Pods) > 0 && move.Pays(terms)
}

// paying returns the offerings with which the move pays.
func (k kind) paying(move pricing.Move, terms pricing.Terms) (offerings []pricing.Offering) {
	best := k.options[0]
	for _, o := range k.options[:min(len(k.options), mostOfferings)] {
		with := move
		with.Useful += o.cost - best.cost
		with.Losses += o.losses - best.losses
		if with.Pays(terms) {
			offerings = append(offerings, o.Offering)
		}
	}
	return offerings
}

// kinds returns the pods of the job by the nodes that they may be on, each with its options, the cheapest first.
func (m *Moves) kinds(job Job, valueOfTime *float64) (kinds []*kind) {
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
	for offers, k := range index {
		for _, o := range m.deadlines.chooser.Spot(offers, valueOfTime) {
			if job.Zone != "" && o.Zone != job.Zone {
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
	return kinds
}

// goesOn returns how long the pod is taken to go on, which has run for so long, and whether its deadline, and what the time of its job is said to be
// worth beside that, allow a move.
func (m *Moves) goesOn(pod *apiv1.Pod, ran time.Duration, valueOfTime *float64) (goesOn time.Duration, mayLeave bool) {
	s, _ := settingsOf(pod)
	goesOn = ran
	if s.work >= 0 {
		s.work = max(0, s.work-ran)
		goesOn = min(ran, s.work)
	}
	slack, hasDeadline := s.slack(m.clock.Now())
	if !hasDeadline {
		return goesOn, s.deadline.IsZero()
	}
	if slack -= m.terms.Restart; slack < restarts*m.terms.Restart {
		return goesOn, false
	}
	choice := m.deadlines.chooser.Choose(m.deadlines.offersOf(pod), deadline.Job{Namespace: pod.Namespace, Work: s.work, Slack: slack, ValueOfTime: valueOfTime})
	return goesOn, choice == deadline.Spot || choice == deadline.Undecided
}
