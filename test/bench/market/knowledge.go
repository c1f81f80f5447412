package main

import (
	"math/rand/v2"
	"strings"
	"time"

	"gpu-spot-autoscaler/pricing/deadline"
	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

// knowledge is what the policy of this project knows of the market.
type knowledge string

const (
	// polled is to see all zones at every look.
	polled knowledge = "polled"
	// noisy is polled with each zone seen wrong at wrongShare of the looks.
	noisy knowledge = "noisy"
	// probes is polled until the end of --fit. After that a job knows of its own refusals and losses only.
	probes knowledge = "probes"
	// none is a fresh install at the start of each job.
	none knowledge = "none"
)

var allKnowledge = []knowledge{polled, noisy, probes, none}

// wrongShare is the probability that a zone is seen as down that is up, or the other way round.
const wrongShare = .15

// sighted is a market that is looked at every so many ticks, with what this project learns of it. It is not safe for concurrent use.
type sighted struct {
	trace *trace
	job   job
	// worth is what an hour is worth by which a job is over sooner, nil for nothing.
	worth *float64
	knows knowledge
	// poll is how many ticks there are between two looks, tick how long one is.
	poll    int
	tick    time.Duration
	fit     window
	history *market.History
	// planners have learnt from what was seen before the time of their table.
	planners map[table]*finish.Planner
}

// table tells planners apart: by when they learnt, in multiples of deadline.LearnEvery, and by the jobs that they are for.
type table struct {
	learnt int
	grid   deadline.Grid
}

// newSighted looks at all of the trace that may be seen. Nothing that a planner is asked about a tick, or that it has learnt, is of a later one.
func newSighted(t *trace, j job, o options, with setting) *sighted {
	s := &sighted{
		trace: t, poll: o.poll(), tick: o.tick, fit: with.fit, knows: with.knows, job: j, planners: map[table]*finish.Planner{},
	}
	if o.worth > 0 {
		s.worth = &o.worth
	}
	seen := window{s.fit.from, t.ticks()}
	if s.knows == probes {
		seen.to = min(s.fit.to, seen.to)
	}
	s.history = s.look(seen)
	return s
}

// look returns what is seen of the market in the window.
func (s *sighted) look(w window) *market.History {
	var regions []string
	for _, zone := range s.trace.zones {
		regions = append(regions, strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz"))
	}
	history := market.NewHistory(regions)
	random := rand.New(rand.NewPCG(1, 1))
	for at := w.from + (s.poll-w.from%s.poll)%s.poll; at < w.to; at += s.poll {
		for zone := range s.trace.zones {
			up := s.trace.up[zone][at]
			if s.knows == noisy && random.Float64() < wrongShare {
				up = !up
			}
			history.Observe(zone, s.time(at), up, s.trace.price[zone][at])
		}
	}
	return history
}

func (s *sighted) time(tick int) time.Time { return time.Unix(0, 0).Add(time.Duration(tick) * s.tick) }

// isBlind returns whether what was seen says nothing about the present any more.
func (s *sighted) isBlind(now int) bool {
	return s.knows == probes && s.time(now).Sub(s.time(s.fit.to)) > market.StaleAfter
}

// planner returns the one that decides about jobs of the grid at the tick.
func (s *sighted) planner(tick int, grid deadline.Grid) *finish.Planner {
	every := int(deadline.LearnEvery / s.tick)
	of := table{tick / every, grid}
	planner, known := s.planners[of]
	if !known {
		planner = s.plan(grid, s.fit.from, of.learnt*every)
		s.planners[of] = planner
	}
	return planner
}

// plan learns from what was seen between two ticks.
func (s *sighted) plan(grid deadline.Grid, from, to int) *finish.Planner {
	if s.knows == probes {
		to = min(to, s.fit.to)
	}
	perHour := 1 / grid.Tick().Hours() // as all prices in the history
	terms := grid.Terms(time.Duration(s.job.protected)*s.tick, perHour, s.job.onDemandPrice)
	return finish.NewPlanner(s.history, terms, grid.Tick(), grid.Tick(), s.time(from), s.time(max(from, to)))
}

// policy returns the policy of this project for a run of the job from the start on.
func (s *sighted) policy(j job, start int) policy {
	o := &ours{market: s, job: j, start: start, experience: newExperience(), history: s.history, planner: s.planner}
	if s.knows == none {
		o.history = s.look(window{start - start%s.poll, min(start+j.deadline, s.trace.ticks())})
		o.planner = func(int, deadline.Grid) *finish.Planner { return nil } // no job lasts for as long as has to be seen to learn
	}
	return o
}
