package market

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/pricing"
)

const (
	// stockFresh is how long it counts what ECS said of a stock: two observations may fail.
	stockFresh = 3 * stockInterval
	// stockWeight is how many instances that were asked for count as much as the prior of a category.
	stockWeight = 10.
	// heardPrice is by which part the price may change within a run that is only known from what is said: nobody pays it.
	heardPrice = .25
	// likelyUp is up to which probability of a refusal an offering is taken to be up by what is said of it.
	likelyUp = .5
)

// priorRefusals is how often a purchase is refused in each category before any was made. WithStock says no more than that nothing is said: where
// nothing was learnt, it changes nothing. They are assumptions, which a few purchases outweigh.
var priorRefusals = map[alicloud.StockCategory]float64{
	alicloud.WithStock: priorRefused / priorAsked, alicloud.ClosedWithStock: .2, alicloud.WithoutStock: .85, alicloud.ClosedWithoutStock: .85,
}

// stock is what ECS and ESS say of the offerings, and how often that was so. It is not safe for concurrent use.
type stock struct {
	said map[place]saying
	// tried are the purchases by what was said: by category, by strength, and by both.
	tried map[hint]experience
	// read is when the categories of all offerings were observed last, strengthRead when the strengths were.
	read, strengthRead time.Time
}

func newStock() stock {
	return stock{said: map[place]saying{}, tried: map[hint]experience{}}
}

// note enters the category of an offering, and returns whether it was said before, at another time.
func (s *stock) note(at place, category alicloud.StockCategory, now int64) (again bool) {
	last := s.said[at]
	since := repeat(last.Category == category, last.Since, last.At, now)
	again = since < now && last.At < now
	last.Category, last.Since, last.At = category, since, max(last.At, now)
	s.said[at] = last
	return again
}

// noteStrength enters the strength of an offering.
func (s *stock) noteStrength(at place, strength alicloud.Strength, now int64) {
	last := s.said[at]
	last.StrengthSince = repeat(last.Strength == strength, last.StrengthSince, last.StrengthAt, now)
	last.Strength, last.StrengthAt = strength, max(last.StrengthAt, now)
	s.said[at] = last
}

// learn enters a purchase. A refusal belongs to what was said when it was asked for.
func (s *stock) learn(at place, e experience, now int64) {
	said, known := s.said[at]
	if !known || e.Asked+e.Refused == 0 {
		return
	}
	if e.Asked > 0 {
		said.asked = said.current(now)
		s.said[at] = said
	}
	for _, each := range said.asked.parts() {
		tried := s.tried[each]
		tried.add(e, 1)
		s.tried[each] = tried
	}
}

// refusalIn returns how often a purchase is refused where that is said, as far as that was learnt. Until purchases have taught what a strength
// means beside a category, it is as often as in the category, and beside none as often as where nothing is said.
func (s *stock) refusalIn(said hint) float64 {
	prior := priorRefused / priorAsked
	switch {
	case said.category != "" && said.strength != "":
		prior = s.refusalIn(hint{category: said.category})
	case said.category != "":
		prior = priorRefusals[said.category]
	}
	tried := s.tried[said]
	return min(mostRefusal, (min(tried.Refused, tried.Asked)+stockWeight*prior)/(tried.Asked+stockWeight))
}

// refusal returns how often a purchase of the offering is refused. Otherwise is how often it is without regard to what is said of the
// stock now. Its odds are multiplied by how much higher the odds of a refusal are where that is said than in general (a Bayes factor).
// If a purchase was refused since the category was said, the factor is 1 at least: what was tried counts for more than what is said.
func (s *stock) refusal(at place, otherwise float64, now, refused int64) float64 {
	said := s.said[at]
	current := said.current(now)
	if current == (hint{}) {
		return otherwise
	}
	factor := odds(s.refusalIn(current)) / odds(priorRefused/priorAsked)
	if refused >= said.since(now) {
		factor = max(factor, 1)
	}
	likely := odds(otherwise) * factor
	return likely / (1 + likely)
}

func odds(probability float64) float64 { return probability / (1 - probability) }

// fade multiplies the purchases, and forgets what is said of offerings that are not observed any more.
func (s *stock) fade(factor float64, now int64) {
	for said, tried := range s.tried {
		tried.add(tried, factor-1)
		s.tried[said] = tried
	}
	maps.DeleteFunc(s.said, func(_ place, said saying) bool { return now-said.last() > int64(StaleAfter/time.Second) })
}

// Said is what ECS says of the stock of a spot offering.
type Said struct {
	Offering pricing.Offering
	Category alicloud.StockCategory
	// Price is what an instance of the offering costs per hour now, 0 if that is not known.
	Price float64
}

// NoteStock enters what ECS says of offerings. What is said twice in a row is seen in the History of the offering, too, unless instances of it are
// kept, or it has refused a purchase since that is said: a single answer is wrong too often.
func (m *Memory) NoteStock(said []Said, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := at.Unix()
	for _, each := range said {
		if _, known := priorRefusals[each.Category]; !known {
			continue
		}
		where := place{each.Offering.InstanceType, each.Offering.Zone}
		if m.stock.note(where, each.Category, now) {
			heard := m.stock.said[where]
			m.past.hear(where, now, heard.Since, m.stock.refusalIn(hint{category: heard.Category}) <= likelyUp, each.Price)
		}
	}
}

// NoteStrengths enters how well ESS expects spot offerings to be had. A strength that is not known says nothing. If not all pools were asked, one that
// is weaker than what was said before says nothing either: the pool that said so may be missing.
func (m *Memory) NoteStrengths(said map[pricing.Offering]alicloud.Strength, isWhole bool, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, strength := range said {
		where := place{o.InstanceType, o.Zone}
		before := m.stock.said[where]
		if o.Spot && (hint{strength: strength}).isKnown() && (isWhole || !isStronger(before.current(at.Unix()).strength, strength)) {
			m.stock.noteStrength(where, strength, at.Unix())
		}
	}
}

// StockRead enters that the categories of all offerings were observed.
func (m *Memory) StockRead(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stock.read = at
}

// StrengthsRead enters that the strengths of all pools were observed.
func (m *Memory) StrengthsRead(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stock.strengthRead = at
}

// hear enters that the offering is said to be up, at a price, or down, since a time. It does not before it is known of which offerings instances are
// kept, and of none that is: that says more. Without any price an offering would count as one that costs nothing.
func (p *past) hear(at place, now, since int64, up bool, price float64) {
	var last run
	if runs := p.runs[at]; len(runs) > 0 {
		last = runs[len(runs)-1]
	}
	switch {
	case p.kept == nil, p.kept.Has(at), last.to > now, up && p.refused[at].last >= since, up && price == 0 && last.price == 0:
		return
	case isAbout(price, last.price, heardPrice):
		price = last.price
	}
	if up {
		delete(p.refused, at)
	}
	p.see(at, now, up, price)
}

// stockState is what is remembered of the stock, as it is saved.
type stockState struct {
	Said  []placeSaying       `json:"said,omitempty"`
	Tried map[hint]experience `json:"tried,omitempty"`
}

type placeSaying struct {
	place
	saying
}

func (s *stock) encode() (saved stockState) {
	saved.Tried = maps.Clone(s.tried)
	for at, said := range s.said {
		saved.Said = append(saved.Said, placeSaying{at, said})
	}
	slices.SortFunc(saved.Said, func(a, b placeSaying) int {
		return cmp.Or(cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone))
	})
	return saved
}

// restore remembers what was encoded, in addition to what was seen since. What was said in words that are not known is left out.
func (s *stock) restore(saved stockState) {
	for _, each := range saved.Said {
		if _, since := s.said[each.place]; !since {
			s.said[each.place] = each.withKnownWords()
		}
	}
	for said, tried := range saved.Tried {
		if said.isKnown() {
			tried.add(s.tried[said], 1)
			s.tried[said] = tried
		}
	}
}
