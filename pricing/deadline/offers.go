package deadline

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/pricing"
)

// mostSpot is how many spot offerings a plan is made of: the decision is about the best of them.
const mostSpot = 12

// Offer is an offering that a job may run on.
type Offer struct {
	pricing.Offering
	// Share is the part of an instance that a pod of the job takes. Only how the shares of several offers compare matters to a plan, and
	// jobs for which that differs have different plans.
	Share float64
	// Protected is for how long a new spot instance is not reclaimed.
	Protected time.Duration
}

// Offers are all offerings that a job may run on. They do not change.
type Offers struct {
	all []Offer
	key string
	// isChoice is whether there are both spot and on-demand.
	isChoice bool
}

// NewOffers returns these offers, which it sorts. Those whose type or zone are not known beforehand do not count.
func NewOffers(all []Offer) *Offers {
	all = slices.DeleteFunc(all, func(o Offer) bool {
		return o.Share <= 0 || o.InstanceType == pricing.AnyType || o.Spot && (o.Zone == pricing.AnyZone || o.Zone == "")
	})
	slices.SortFunc(all, func(a, b Offer) int {
		switch {
		case a.InstanceType != b.InstanceType:
			return strings.Compare(a.InstanceType, b.InstanceType)
		case a.Zone != b.Zone:
			return strings.Compare(a.Zone, b.Zone)
		case a.Spot != b.Spot:
			return strings.Compare(a.PurchaseOption(), b.PurchaseOption())
		default:
			return cmp.Compare(a.Protected, b.Protected)
		}
	})
	// Pools may sell the same offering. It counts with the shortest protection.
	all = slices.CompactFunc(all, func(a, b Offer) bool { return a.Offering == b.Offering })
	digest := fnv.New128a()
	spot := 0
	for _, o := range all {
		write(digest, o.InstanceType, o.Zone, o.PurchaseOption(), o.Protected.String(), fmt.Sprintf("%.6g", o.Share/all[0].Share))
		if o.Spot {
			spot++
		}
	}
	return &Offers{all: all, key: hex.EncodeToString(digest.Sum(nil)), isChoice: spot > 0 && spot < len(all)}
}

func write(digest hash.Hash, parts ...string) {
	for _, part := range parts {
		_, _ = io.WriteString(digest, part+"\x00") // a hash returns no error
	}
}

// onDemand returns the price per hour of the on-demand offer that costs a pod the least, and which part of it the pod takes.
func (d *Desk) onDemand(offers *Offers) (price, share float64, known bool) {
	for _, o := range offers.all {
		if at, ok := d.config.Price(o.Offering); ok && !o.Spot && (!known || at*o.Share < price*share) {
			price, share, known = at, o.Share, true
		}
	}
	return price, share, known
}

// Priced is a spot offer, with what an hour of useful work of a pod costs there.
type Priced struct {
	Offer
	Cost float64
	// Life is how long an instance is kept on average, 0 if it is not lost.
	Life time.Duration
}

// Spot returns the spot offers whose price is known, none if no on-demand price is. The value of time is what the job states, nil for nothing.
func (d *Desk) Spot(offers *Offers, valueOfTime *float64) (priced []Priced) {
	onDemand, share, isKnown := d.onDemand(offers)
	for _, o := range offers.all {
		if price, known := d.config.Price(o.Offering); known && o.Spot && isKnown {
			cost, life := d.usefulCost(o, price, onDemand*share, valueOfTime)
			priced = append(priced, Priced{o, cost, life})
		}
	}
	return priced
}

// usefulCost returns what an hour of useful work of a pod costs on the offer, at that price of an instance, and how long one is kept on average.
func (d *Desk) usefulCost(o Offer, price, onDemand float64, valueOfTime *float64) (cost float64, life time.Duration) {
	known, terms := d.config.Memory.Of(o.Offering), d.config.Terms.With(valueOfTime)
	terms.ValueOfTime *= o.Share
	return pricing.UsefulCost(price*o.Share, onDemand, known, terms), known.Life
}

// Price returns the market price of an offering per instance-hour.
func (d *Desk) Price(o pricing.Offering) (float64, bool) { return d.config.Price(o) }

// best returns the spot offers of which something was seen, those of the least useful cost, and whether others of which nothing was cost less
// than on-demand.
func (d *Desk) best(offers *Offers, onDemand float64, valueOfTime *float64) (seen []Offer, others bool) {
	costs := map[pricing.Offering]float64{}
	for _, o := range offers.all {
		price, known := d.config.Price(o.Offering)
		switch {
		case !o.Spot || !known:
		case d.config.Memory.Seen(o.Offering):
			seen = append(seen, o)
			costs[o.Offering], _ = d.usefulCost(o, price, onDemand, valueOfTime)
		case price*o.Share < onDemand:
			others = true
		}
	}
	slices.SortStableFunc(seen, func(a, b Offer) int { return cmp.Compare(costs[a.Offering], costs[b.Offering]) })
	return seen[:min(len(seen), mostSpot)], others
}

// Offerings returns all of them.
func (o *Offers) Offerings() (offerings []pricing.Offering) {
	for _, each := range o.all {
		offerings = append(offerings, each.Offering)
	}
	return offerings
}
