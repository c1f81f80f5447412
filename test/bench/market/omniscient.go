package main

import "math"

// omniscient returns the least that the job can cost if it is started at the tick, by whoever knows the whole trace and is over in time;
// infinity if that cannot be. It is computed backwards over ticks, work left and zone, as a whole: an instance is only bought to warm up
// and do useful work, so a purchase is one step to its first useful tick, or for a protected instance to any tick until its protection ends.
func omniscient(t *trace, start int, j job) float64 {
	o := &optimum{trace: t, start: start, job: j, zones: len(t.zones) + 1, width: j.work + 1}
	o.free = make([][]float64, j.deadline+1)
	o.running = make([][][]float64, j.deadline+1)
	for tick := j.deadline; tick >= 0; tick-- {
		o.solve(tick)
	}
	return o.free[0][j.work]
}

// optimum holds the least cost of what is left, by tick since the start and work left.
type optimum struct {
	trace *trace
	start int
	job   job
	// zones counts on-demand as the last one. width is the number of amounts of work.
	zones, width int
	// free is without an instance, running with one of a zone that does useful work and is not protected any more.
	free    [][]float64
	running [][][]float64
}

// price returns what the zone costs at the tick; false if it is not up.
func (o *optimum) price(zone, tick int) (float64, bool) {
	if zone == o.zones-1 {
		return o.job.onDemandPrice, true
	}
	at := o.start + tick
	if at >= o.trace.ticks() || !o.trace.up[zone][at] {
		return 0, false
	}
	return o.trace.price[zone][at], true
}

func (o *optimum) solve(tick int) {
	o.free[tick] = o.never()
	o.running[tick] = make([][]float64, o.zones)
	if tick < o.job.deadline {
		o.lower(o.free[tick], o.free[tick+1], 0, 0)
	}
	for zone := range o.zones {
		o.running[tick][zone] = o.never()
		if price, up := o.price(zone, tick); up && tick < o.job.deadline {
			o.lower(o.running[tick][zone], o.running[tick+1][zone], price, 1)
		}
		o.buy(tick, zone)
	}
	for zone := range o.zones {
		o.lower(o.running[tick][zone], o.free[tick], 0, 0)
	}
}

// buy enters what a purchase at the tick leads to.
func (o *optimum) buy(tick, zone int) {
	if _, up := o.price(zone, tick); !up {
		return
	}
	cost := 0.0
	for age := 1; tick+age <= o.job.deadline; age++ {
		price, up := o.price(zone, tick+age-1)
		if !up {
			if age > o.job.protected || o.start+tick+age-1 >= o.trace.ticks() {
				return
			}
			price = o.trace.price[zone][o.start+tick+age-1]
		}
		cost += price
		done := age - o.job.restart
		if done < 0 {
			continue
		}
		if age >= o.job.protected {
			o.lower(o.free[tick], o.running[tick+age][zone], cost, done)
			return
		}
		o.lower(o.free[tick], o.free[tick+age], cost, done)
	}
}

// lower lowers the costs to those by a step that costs something and does so much work.
func (o *optimum) lower(costs, after []float64, cost float64, done int) {
	for left := 1; left < o.width; left++ {
		costs[left] = min(costs[left], cost+after[max(0, left-done)])
	}
}

func (o *optimum) never() []float64 {
	costs := make([]float64, o.width)
	for left := 1; left < o.width; left++ {
		costs[left] = math.Inf(1)
	}
	return costs
}
