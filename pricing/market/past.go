package market

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/pricing"
)

const (
	// look is how far apart the observations of a History are that a run stands for.
	look = 10 * time.Minute
	// pastLength is how long a run is remembered, and mostRuns how many of them are, of all offerings: some 12 bytes each where they are saved.
	pastLength = 30 * 24 * time.Hour
	mostRuns   = 20_000
	// pruneEvery is how often that is seen to.
	pruneEvery = time.Hour
	// samePrice is by which part a price may change within a run.
	samePrice = .05
	// refusedFor is for how long nobody counts on an offering that has refused a purchase though instances of it are kept.
	refusedFor = time.Hour
)

// past is what was seen of each offering, by purchases and by the instances that were kept or lost. It is not safe for concurrent use.
type past struct {
	runs map[place][]run
	// refused are the purchases that were refused, unless instances were delivered since.
	refused map[place]refusals
	// kept are the offerings of which instances were kept when they were looked at last; nil before that.
	kept sets.Set[place]
	// changes counts the runs that differ from the one before.
	changes int
	pruned  int64
}

// refusals are one after the other, each within refusedFor of the one before: when the first and the last was, in Unix seconds.
type refusals struct{ since, last int64 }

// run is a time in which an offering was seen to be up, or down, at one price. Times are in Unix seconds: when it was seen so first and last.
type run struct {
	from, to int64
	up       bool
	// price is 0 if it was not known.
	price float64
}

func newPast() past { return past{runs: map[place][]run{}, refused: map[place]refusals{}} }

// see enters that the offering is up or down at a time. If that is before the last one, as the list of instances may be older than what was said
// of the stock since, it counts as right after that.
func (p *past) see(at place, now int64, up bool, price float64) {
	runs := p.runs[at]
	if len(runs) > 0 {
		last := &runs[len(runs)-1]
		if price == 0 {
			price = last.price
		}
		if last.up != up {
			p.changes++
		} else if now-last.to <= int64(maxGap/time.Second) && isAbout(price, last.price, samePrice) {
			last.to = max(last.to, now)
			return
		}
		now = max(now, last.to+1)
	}
	p.runs[at] = append(runs, run{from: now, to: now, up: up, price: price})
}

func isAbout(a, b, part float64) bool { return max(a, b) <= min(a, b)*(1+part) }

// refuse enters that there was none to buy. That instances of the offering are kept says more about how long one is.
func (p *past) refuse(at place, now int64) {
	since := now
	if before, was := p.refused[at]; was && now-before.last <= int64(refusedFor/time.Second) {
		since = before.since
	}
	p.refused[at] = refusals{since: since, last: now}
	if p.kept != nil && !p.kept.Has(at) {
		p.see(at, now, false, 0)
	}
}

// lookAt enters what the instances tell: an offering is up if more of its instances are kept than reclaimed, and down if not. Of one without
// instances nothing is seen.
func (p *past) lookAt(instances []Living, now int64) {
	type count struct {
		kept, lost int
		price      float64
	}
	counts := map[place]*count{}
	for _, i := range instances {
		if !i.Offering.Spot {
			continue
		}
		at := place{i.Offering.InstanceType, i.Offering.Zone}
		if counts[at] == nil {
			counts[at] = &count{}
		}
		c := counts[at]
		c.price = i.Price
		if i.Lost {
			c.lost++
			continue
		}
		c.kept++
		if refused, was := p.refused[at]; was && i.Created.Unix() > refused.last {
			delete(p.refused, at)
		}
	}
	p.kept = sets.New[place]()
	for at, c := range counts {
		isKept := c.kept > c.lost
		if isKept {
			p.kept.Insert(at)
		}
		p.see(at, now, isKept, c.price)
	}
	p.prune(now)
}

// prune forgets runs that are too old, and the oldest if there are too many.
func (p *past) prune(now int64) {
	if now-p.pruned < int64(pruneEvery/time.Second) {
		return
	}
	p.pruned = now
	oldest := now - int64(pastLength/time.Second)
	var ends []int64
	for _, runs := range p.runs {
		for _, r := range runs {
			ends = append(ends, r.to)
		}
	}
	if len(ends) > mostRuns {
		slices.Sort(ends)
		oldest = max(oldest, ends[len(ends)-mostRuns])
	}
	for at, runs := range p.runs {
		runs = slices.DeleteFunc(runs, func(r run) bool { return r.to < oldest })
		p.runs[at] = runs
		if len(runs) == 0 {
			delete(p.runs, at)
		}
	}
	for at, refused := range p.refused {
		if refused.last < oldest {
			delete(p.refused, at)
		}
	}
}

// history returns what was seen of the offerings as observations, with the prices times these units, and when the first was made; zero if there
// were none.
func (p *past) history(offerings []pricing.Offering, units []float64) (h *History, since time.Time) {
	h = NewHistory(make([]string, len(offerings))) // all are of one region
	for i, o := range offerings {
		for _, r := range p.runs[place{o.InstanceType, o.Zone}] {
			if from := time.Unix(r.from, 0); since.IsZero() || from.Before(since) {
				since = from
			}
			for at := r.from; at < r.to; at += int64(look / time.Second) {
				h.observe(i, at, r.up, r.price*units[i])
			}
			h.observe(i, r.to, r.up, r.price*units[i])
		}
	}
	return h, since
}

// Present is what is known of offerings now.
type Present struct {
	// Up are those that were seen to be up, and Gone those that have refused a purchase since.
	Up, Gone []bool
	// Outage is for how long none of them has been up.
	Outage time.Duration
	// Stale is true if nothing was seen of any of them for hours.
	Stale bool
}

// AnyUp returns whether an instance can probably be bought.
func (p Present) AnyUp() bool {
	for i, up := range p.Up {
		if up && !p.Gone[i] {
			return true
		}
	}
	return false
}

func (p *past) present(offerings []pricing.Offering, now int64) Present {
	result := Present{Up: make([]bool, len(offerings)), Gone: make([]bool, len(offerings)), Stale: true}
	darkSince := int64(0)
	for i, o := range offerings {
		at := place{o.InstanceType, o.Zone}
		runs := p.runs[at]
		if len(runs) == 0 {
			continue
		}
		last := runs[len(runs)-1]
		result.Stale = result.Stale && isStale(last.to, now)
		result.Up[i] = last.up || isStale(last.to, now)
		if refused, was := p.refused[at]; was && last.up && now-refused.last <= int64(refusedFor/time.Second) {
			result.Gone[i] = true
			darkSince = max(darkSince, refused.since)
		}
		if !result.Up[i] {
			darkSince = max(darkSince, downSince(runs))
		}
	}
	if !result.AnyUp() && darkSince > 0 {
		result.Outage = time.Duration(now-darkSince) * time.Second
	}
	return result
}

// downSince returns since when an offering has been down.
func downSince(runs []run) (since int64) {
	for _, r := range slices.Backward(runs) {
		if r.up {
			break
		}
		since = r.from
	}
	return since
}

// placePast is the past of an offering as it is saved.
type placePast struct {
	place
	// Runs are for each run the seconds from the end of the one before, its length in seconds, 1 if it was up, and the price.
	Runs [][4]float64 `json:"runs"`
}

func (p *past) encode() (saved []placePast) {
	for at, runs := range p.runs {
		each, end := placePast{place: at}, int64(0)
		for _, r := range runs {
			up := 0.
			if r.up {
				up = 1
			}
			each.Runs = append(each.Runs, [4]float64{float64(r.from - end), float64(r.to - r.from), up, r.price})
			end = r.to
		}
		saved = append(saved, each)
	}
	slices.SortFunc(saved, func(a, b placePast) int {
		return cmp.Or(cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone))
	})
	return saved
}

// decodePast returns the runs that were encoded.
func decodePast(saved []placePast) (map[place][]run, error) {
	all := map[place][]run{}
	for _, each := range saved {
		end := int64(0)
		for _, r := range each.Runs {
			if r[0] < 0 || r[1] < 0 {
				return nil, errors.New("a run of an offering begins before the end of the one before, or ends before it begins")
			}
			next := run{from: end + int64(r[0]), up: r[2] != 0, price: r[3]}
			next.to = next.from + int64(r[1])
			all[each.place], end = append(all[each.place], next), next.to
		}
	}
	return all, nil
}

// prepend remembers runs from before those that were seen since, which is a change.
func (p *past) prepend(saved map[place][]run) {
	p.changes++
	for at, runs := range saved {
		if since := p.runs[at]; len(since) > 0 {
			runs = slices.DeleteFunc(runs, func(r run) bool { return r.to > since[0].from })
		}
		p.runs[at] = append(runs, p.runs[at]...)
	}
}
