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

// stock is what ECS says of the offerings, and how often that was so. It is not safe for concurrent use.
type stock struct {
	said map[place]saying
	// tried are the purchases in each category.
	tried map[alicloud.StockCategory]experience
	// read is when the offerings were observed last.
	read time.Time
}

// saying is what ECS says of an offering.
type saying struct {
	Category alicloud.StockCategory `json:"category"`
	// Since is when it was first said, At when last, in Unix seconds.
	Since int64 `json:"since"`
	At    int64 `json:"at"`
	// asked is what was said when instances were asked for last.
	asked alicloud.StockCategory
}

func newStock() stock {
	return stock{said: map[place]saying{}, tried: map[alicloud.StockCategory]experience{}}
}

// note enters what is said of an offering, and returns whether it was said before, at another time.
func (s *stock) note(at place, category alicloud.StockCategory, now int64) (again bool) {
	last, known := s.said[at]
	goesOn := known && last.Category == category && now-last.At <= int64(stockFresh/time.Second)
	again = goesOn && last.At < now
	if !goesOn {
		last.Category, last.Since = category, now
	}
	last.At = max(last.At, now)
	s.said[at] = last
	return again
}

// learn enters a purchase. A refusal belongs to what was said when it was asked for.
func (s *stock) learn(at place, e experience, now int64) {
	said, known := s.said[at]
	if !known || e.Asked+e.Refused == 0 {
		return
	}
	if e.Asked > 0 {
		said.asked = s.current(at, now)
		s.said[at] = said
	}
	if said.asked == "" {
		return
	}
	tried := s.tried[said.asked]
	tried.add(e, 1)
	s.tried[said.asked] = tried
}

// current returns what is said of the offering, "" if that is not known or too long ago.
func (s *stock) current(at place, now int64) alicloud.StockCategory {
	if said, known := s.said[at]; known && now-said.At <= int64(stockFresh/time.Second) {
		return said.Category
	}
	return ""
}

// refusalIn returns how often a purchase in the category is refused, as far as that was learnt.
func (s *stock) refusalIn(category alicloud.StockCategory) float64 {
	tried := s.tried[category]
	return min(mostRefusal, (min(tried.Refused, tried.Asked)+stockWeight*priorRefusals[category])/(tried.Asked+stockWeight))
}

// refusal returns how often a purchase of the offering is refused. Otherwise is how often it is without regard to what is said of the
// stock now. Its odds are multiplied by how much higher the odds of a refusal are in the category than in general (a Bayes factor).
// If a purchase was refused since that category was said, the factor is 1 at least: what was tried counts for more than what is said.
func (s *stock) refusal(at place, otherwise float64, now, refused int64) float64 {
	category := s.current(at, now)
	if category == "" {
		return otherwise
	}
	factor := odds(s.refusalIn(category)) / odds(priorRefused/priorAsked)
	if refused >= s.said[at].Since {
		factor = max(factor, 1)
	}
	likely := odds(otherwise) * factor
	return likely / (1 + likely)
}

func odds(probability float64) float64 { return probability / (1 - probability) }

// fade multiplies the purchases, and forgets what is said of offerings that are not observed any more.
func (s *stock) fade(factor float64, now int64) {
	for category, tried := range s.tried {
		tried.add(tried, factor-1)
		s.tried[category] = tried
	}
	maps.DeleteFunc(s.said, func(_ place, said saying) bool { return now-said.At > int64(StaleAfter/time.Second) })
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
			m.past.hear(where, now, m.stock.said[where].Since, m.stock.refusalIn(each.Category) <= likelyUp, each.Price)
		}
	}
}

// StockRead enters that all offerings were observed.
func (m *Memory) StockRead(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stock.read = at
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
	Said  []placeSaying                         `json:"said,omitempty"`
	Tried map[alicloud.StockCategory]experience `json:"tried,omitempty"`
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

// restore remembers what was encoded, in addition to what was seen since.
func (s *stock) restore(saved stockState) {
	for _, each := range saved.Said {
		if _, since := s.said[each.place]; !since {
			s.said[each.place] = each.saying
		}
	}
	for category, tried := range saved.Tried {
		tried.add(s.tried[category], 1)
		s.tried[category] = tried
	}
}
