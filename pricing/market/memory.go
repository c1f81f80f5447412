package market

import (
	"maps"
	"math"
	"sync"
	"time"

	"gpu-spot-autoscaler/pricing"
)

// Memory remembers how long spot instances were kept, and how often purchases were refused, and estimates from that how reliable an
// offering is. It also remembers when each offering was up, which is its History. What is seen in one pool counts for all: an instance
// type in a zone is one market. It is safe for concurrent use.
type Memory struct {
	mu  sync.RWMutex
	now time.Time
	// seen is by offering; byType and byZone are sums of it.
	seen           map[place]*experience
	byType, byZone map[string]*experience
	// lost are the instances whose loss was counted, with the time at which they were last listed: a notice may be withdrawn and come back.
	lost  map[string]time.Time
	past  past
	stock stock
}

// place is an instance type in a zone.
type place struct{ InstanceType, Zone string }

// experience is what was seen of an offering. It fades, since markets change.
type experience struct {
	// Hours are those in which instances were kept, Losses counts their reclaims.
	Hours  float64 `json:"hours,omitempty"`
	Losses float64 `json:"losses,omitempty"`
	// Asked counts the instances that were asked for, Refused those of them that were out of stock.
	Asked   float64 `json:"asked,omitempty"`
	Refused float64 `json:"refused,omitempty"`
}

const (
	// halfLife is after how long something counts for half.
	halfLife = 7 * 24 * time.Hour
	// priorHours is how long an instance is kept where nothing was ever seen, and the weight of that belief: as if one had been lost after so long.
	priorHours = 24.
	// priorAsked and priorRefused are the same of purchases.
	priorAsked, priorRefused = 20., 1.
	// likeness is how much something counts that was seen of another zone or another type. It is an assumption: the
	// stream of jobs of test/bench/market costs the same within a few percent with .2 and .5.
	likeness = .2
	// negligible is how little is left of an offering when it is forgotten.
	negligible = .01
)

// NewMemory returns a Memory of nothing.
func NewMemory() *Memory {
	return &Memory{seen: map[place]*experience{}, byType: map[string]*experience{}, byZone: map[string]*experience{}, lost: map[string]time.Time{}, past: newPast(), stock: newStock()}
}

// Living is a spot instance.
type Living struct {
	ID       string
	Offering pricing.Offering
	// Created is zero if it is not known.
	Created time.Time
	// Lost is true from the notice on that the market takes it away.
	Lost bool
	// Price is what an instance of the offering costs per hour now, 0 if that is not known.
	Price float64
}

// maxGap is the longest time between two calls of Observe that counts: what happened in a longer one was not seen.
const maxGap = time.Hour

// Observe enters that these are all spot instances at that time. The time since the last call counts as lived through by each of them.
func (m *Memory) Observe(instances []Living, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !at.After(m.now) {
		return
	}
	gap := at.Sub(m.now)
	isFirst := m.now.IsZero()
	m.now = at
	if isFirst {
		gap = 0
	}
	faded := math.Exp2(-gap.Hours() / halfLife.Hours())
	m.fade(faded)
	m.stock.fade(faded, at.Unix())
	for _, i := range instances {
		_, counted := m.lost[i.ID]
		if counted {
			m.lost[i.ID] = at
		}
		switch {
		case !i.Lost:
			lived := min(gap, maxGap)
			if !i.Created.IsZero() {
				lived = max(0, min(lived, at.Sub(i.Created)))
			}
			m.add(i.Offering, experience{Hours: lived.Hours()})
		case !counted:
			m.lost[i.ID] = at
			m.add(i.Offering, experience{Losses: 1})
		}
	}
	m.past.lookAt(instances, at.Unix())
	maps.DeleteFunc(m.lost, func(_ string, listed time.Time) bool { return at.Sub(listed) > maxGap })
}

// Asked enters that instances of the offering were asked for.
func (m *Memory) Asked(o pricing.Offering, instances int) {
	m.enter(o, experience{Asked: float64(instances)})
}

// Refused enters that instances that were asked for were out of stock.
func (m *Memory) Refused(o pricing.Offering, instances int) {
	m.enter(o, experience{Refused: float64(instances)})
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := (place{o.InstanceType, o.Zone}); o.Spot && !m.now.IsZero() {
		said := m.stock.said[at]
		m.past.refuse(at, max(m.now.Unix(), said.last())) // the instances may have been listed before that was said
	}
}

// History returns what was seen of the offerings in the last 30 days, and since when; zero if nothing was. The hourly price of each is multiplied by
// a unit, to be that of another time or of a part of the instance.
func (m *Memory) History(offerings []pricing.Offering, units []float64) (history *History, since time.Time) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.past.history(offerings, units)
}

// Present returns what is known of the offerings at a time, which is now.
func (m *Memory) Present(offerings []pricing.Offering, now time.Time) Present {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.past.present(offerings, now.Unix())
}

// Seen returns whether anything is in the History of the offering.
func (m *Memory) Seen(o pricing.Offering) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return o.Spot && len(m.past.runs[place{o.InstanceType, o.Zone}]) > 0
}

// Changes returns how often an offering went up or down so far.
func (m *Memory) Changes() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.past.changes
}

func (m *Memory) enter(o pricing.Offering, e experience) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(o, e)
	if o.Spot {
		m.stock.learn(place{o.InstanceType, o.Zone}, e, m.now.Unix())
	}
}

func (m *Memory) add(o pricing.Offering, e experience) {
	if !o.Spot {
		return
	}
	entry(m.seen, place{o.InstanceType, o.Zone}).add(e, 1)
	entry(m.byType, o.InstanceType).add(e, 1)
	entry(m.byZone, o.Zone).add(e, 1)
}

func entry[K comparable](all map[K]*experience, key K) *experience {
	if all[key] == nil {
		all[key] = &experience{}
	}
	return all[key]
}

func (e *experience) add(other experience, times float64) {
	e.Hours += times * other.Hours
	e.Losses += times * other.Losses
	e.Asked += times * other.Asked
	e.Refused += times * other.Refused
}

// fade multiplies all that was seen, and forgets what is left of hardly anything.
func (m *Memory) fade(factor float64) {
	fadeAll(m.seen, factor)
	fadeAll(m.byType, factor)
	fadeAll(m.byZone, factor)
}

func fadeAll[K comparable](all map[K]*experience, factor float64) {
	for key, e := range all {
		e.add(*e, factor-1)
		if e.Hours+e.Losses+e.Asked+e.Refused < negligible {
			delete(all, key)
		}
	}
}

// Of returns how reliable the offering is, by what was seen of it, of the same instance type in other zones and of other types in the same
// zone, which counts for a fifth: the less was seen of it, the more counts that. What ECS and ESS say of its stock counts the
// more, the more often that was right. On-demand instances are not reclaimed.
func (m *Memory) Of(o pricing.Offering) pricing.Reliability {
	if !o.Spot {
		return pricing.Reliability{}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	at := place{o.InstanceType, o.Zone}
	own := orNothing(m.seen[at])
	near := experience{Hours: priorHours, Losses: 1, Asked: priorAsked, Refused: priorRefused}
	near.add(orNothing(m.byType[o.InstanceType]), likeness)
	near.add(orNothing(m.byZone[o.Zone]), likeness)
	near.add(own, -2*likeness)
	hoursPerLoss := near.Hours / near.Losses
	refusal := min(1, near.Refused/near.Asked)
	// Of the others, as much counts as one loss and one refusal.
	life := (own.Hours + hoursPerLoss) / (own.Losses + 1)
	weight := priorRefused / max(refusal, negligible)
	refusal = min(mostRefusal, (own.Refused+weight*refusal)/(max(own.Asked, own.Refused)+weight))
	return pricing.Reliability{
		Life:    time.Duration(life * float64(time.Hour)),
		Refusal: min(mostRefusal, m.stock.refusal(at, refusal, m.now.Unix(), m.past.refused[at].last)),
	}
}

// mostRefusal keeps the cost of refusals finite.
const mostRefusal = .95

func orNothing(e *experience) experience {
	if e == nil {
		return experience{}
	}
	return *e
}
