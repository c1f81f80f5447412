package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/market"
)

// choosers are the policies of a stream, each made anew.
func choosers(zones []string, o options) map[string]chooser {
	ticks := func(d time.Duration) int { return int(math.Ceil(float64(d) / float64(o.tick))) }
	return map[string]chooser{
		"random": &randomly{rand.New(rand.NewPCG(1, 1)), len(zones)},
		// It asks the cheapest zone, however often that refuses: COST_OPTIMIZED of ESS, which remembers nothing from one purchase to the next.
		"cheapest": &remembering{forget: func(int) int { return 0 }},
		// Karpenter's providers leave out what was refused for three minutes (UnavailableOfferingsTTL in pkg/cache of karpenter-provider-aws).
		"karpenter": &remembering{forget: func(int) int { return ticks(3 * time.Minute) }},
		// Cluster Autoscaler's backoff: 5 minutes, doubled with each failure up to 30 (--initial-node-group-backoff-duration and --max-node-group-backoff-duration).
		"cluster-autoscaler": &remembering{forget: backoff(ticks)},
		"ours":               newLearning(zones, o, backoff(ticks)),
	}
}

func backoff(ticks func(time.Duration) int) func(int) int {
	return func(failures int) int { return ticks(min(30*time.Minute, 5*time.Minute<<min(failures-1, 10))) }
}

// chooserNames are in the order of the table.
var chooserNames = []string{"random", "cheapest", "karpenter", "cluster-autoscaler", "ours"}

// randomly asks any zone.
type randomly struct {
	*rand.Rand
	zones int
}

func (r *randomly) choose(int, []float64) int           { return r.IntN(r.zones) }
func (*randomly) bought(int, int)                       {}
func (*randomly) refused(int, int)                      {}
func (*randomly) observe(int, map[int]int, map[int]int) {}

// remembering asks the cheapest zone of those that have not refused lately.
type remembering struct {
	// forget is after how many ticks a refusal is forgotten, after so many in a row.
	forget func(failures int) int
	zones  map[int]*refusals
}

// refusals are those of a zone: the tick of the last, which is known from the next tick on, and how many ticks in a row there were some.
type refusals struct{ last, inARow int }

func (r *remembering) choose(tick int, price []float64) int {
	return r.least(tick, len(price), func(zone int) float64 { return price[zone] })
}

// least returns the zone of the least cost of those that have not refused lately.
func (r *remembering) least(tick, zones int, cost func(zone int) float64) int {
	best, least := idle, math.Inf(1)
	for zone := range zones {
		if c := cost(zone); c < least && !r.remembers(zone, tick) {
			best, least = zone, c
		}
	}
	return best
}

func (r *remembering) remembers(zone, tick int) bool {
	known := r.zones[zone]
	return known != nil && tick > known.last && tick <= known.last+r.forget(known.inARow)
}

func (r *remembering) bought(zone, _ int) { delete(r.zones, zone) }

func (r *remembering) refused(zone, tick int) {
	if r.zones == nil {
		r.zones = map[int]*refusals{}
	}
	known := r.zones[zone]
	if known == nil {
		known = &refusals{last: -1}
		r.zones[zone] = known
	}
	if known.last != tick {
		known.last, known.inARow = tick, known.inARow+1
	}
}

func (*remembering) observe(int, map[int]int, map[int]int) {}

// learning is what the autoscaler does: Cluster Autoscaler's backoff, the useful cost by what market.Memory remembers, and the interruption
// penalty of package ess.
type learning struct {
	remembering
	memory *market.Memory
	sold   []pricing.Offering
	terms  pricing.Terms
	listed float64
	tick   time.Duration
	// penalized is until when a zone counts for more because an instance was lost there.
	penalized map[int]int
}

// penalty and penaltyTime are those of package ess.
const (
	penalty     = 1.5
	penaltyTime = 10 * time.Minute
)

func newLearning(zones []string, o options, forget func(int) int) *learning {
	l := &learning{
		remembering: remembering{forget: forget}, memory: market.NewMemory(), terms: pricing.Terms{Restart: o.restart, ValueOfTime: o.valueOfTime},
		listed: o.onDemand, tick: o.tick, penalized: map[int]int{},
	}
	for _, zone := range zones {
		l.sold = append(l.sold, pricing.Offering{InstanceType: "v100", Zone: zone, Spot: true})
	}
	return l
}

func (l *learning) choose(tick int, price []float64) int {
	return l.least(tick, len(price), func(zone int) float64 {
		cost := pricing.UsefulCost(price[zone], l.listed, l.memory.Of(l.sold[zone]), l.terms)
		if tick <= l.penalized[zone] {
			cost *= penalty
		}
		return cost
	})
}

func (l *learning) bought(zone, tick int) {
	l.remembering.bought(zone, tick)
	l.memory.Asked(l.sold[zone], 1)
}

func (l *learning) refused(zone, tick int) {
	l.remembering.refused(zone, tick)
	l.memory.Asked(l.sold[zone], 1)
	l.memory.Refused(l.sold[zone], 1)
}

func (l *learning) observe(tick int, living, lost map[int]int) {
	var all []market.Living
	for id, zone := range living {
		all = append(all, market.Living{ID: fmt.Sprint(id), Offering: l.sold[zone]})
	}
	for id, zone := range lost {
		l.penalized[zone] = tick + int(penaltyTime/l.tick)
		all = append(all, market.Living{ID: fmt.Sprint(id), Offering: l.sold[zone], Lost: true})
	}
	l.memory.Observe(all, time.Unix(0, 0).Add(time.Duration(tick+1)*l.tick))
}
