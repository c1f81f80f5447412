package main

import (
	"strings"
	"time"

	"gpu-spot-autoscaler/pricing/finish"
	"gpu-spot-autoscaler/pricing/market"
)

// sighted is a market that is looked at every so many ticks, with what this project learns of it. It is not safe for concurrent use.
type sighted struct {
	trace *trace
	terms finish.Terms
	// poll is how many ticks there are between two looks.
	poll    int
	tick    time.Duration
	history *market.History
	// planners are those of each day, that learnt from the days before.
	planners map[int]*finish.Planner
}

// newSighted looks at all of the trace. Nothing that a planner is asked about a tick, or that it has learnt, is of a later one.
func newSighted(t *trace, j job, poll int, tick time.Duration) *sighted {
	var regions []string
	for _, zone := range t.zones {
		regions = append(regions, strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz"))
	}
	s := &sighted{
		trace: t, poll: poll, tick: tick, history: market.NewHistory(regions), planners: map[int]*finish.Planner{},
		terms: finish.Terms{Work: j.work, Slack: j.deadline - j.work, Restart: j.restart, Protected: j.protected, OnDemand: j.onDemandPrice},
	}
	for at := 0; at < t.ticks(); at += poll {
		for zone := range t.zones {
			s.history.Observe(zone, s.time(at), t.up[zone][at], t.price[zone][at])
		}
	}
	return s
}

func (s *sighted) time(tick int) time.Time { return time.Unix(0, 0).Add(time.Duration(tick) * s.tick) }

// planner returns that of the day of the tick.
func (s *sighted) planner(tick int) *finish.Planner {
	perDay := int(24 * time.Hour / s.tick)
	day := tick / perDay
	if s.planners[day] == nil {
		s.planners[day] = finish.NewPlanner(s.history, s.terms, s.tick, time.Duration(s.poll)*s.tick, s.time(0), s.time(day*perDay))
	}
	return s.planners[day]
}

// ours is the policy of this project, for one run of a job from the start on. Between two looks it knows only of its own losses and refusals.
type ours struct {
	market *sighted
	job    job
	start  int
	// last is what it chose last, looked the tick of the last look, and gone what has been lost or refused since.
	last, looked int
	gone         map[finish.Place]bool
	// darkSince is the tick since which no zone has been up.
	darkSince int
	dark      bool
}

func newOurs(m *sighted, j job, start int) *ours {
	return &ours{market: m, job: j, start: start, last: idle, looked: -1}
}

func (o *ours) decide(p progress, _ sight) int {
	now := o.start + p.elapsed
	if look := now - now%o.market.poll; look != o.looked {
		o.looked, o.gone = look, map[finish.Place]bool{}
	}
	if o.last >= 0 && p.on == idle {
		o.gone[finish.Place(o.last)] = true
	}
	state := finish.State{Work: p.left, Slack: p.slack(o.job), On: finish.Place(p.on), WarmUp: p.warmUp, Age: p.age}
	o.last = int(o.market.planner(now).Choose(state, finish.Situation{
		Now: o.market.time(now), Gone: o.gone, Outage: time.Duration(o.outage(now)) * o.market.tick,
	}))
	return o.last
}

// outage returns for how many ticks nothing has been known to be up.
func (o *ours) outage(now int) int {
	for zone := range o.market.trace.zones {
		if o.market.trace.up[zone][o.looked] && !o.gone[finish.Place(zone)] {
			o.dark = false
			return 0
		}
	}
	if !o.dark {
		o.dark, o.darkSince = true, now
	}
	return now - o.darkSince
}
