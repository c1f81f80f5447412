package ecs

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/market"
)

// Meter adds up what instances cost: each the price of its offering from its creation to its release, a spot instance the market price
// at its purchase while it is protected, and then the market price, as that changes. It has to be read before anything changes a price.
// Source: https://www.alibabacloud.com/help/en/ecs/spot-instance, "Billing rules".
type Meter struct {
	market *market.Static
	cny    float64
}

// unprotectedDiscount is what instances without a protected hour cost, compared with others. The amount is a guess.
const unprotectedDiscount = .9

// spotPrice returns the market price with a protected time in hours. Without one it is "typically lower" (Billing rules).
func spotPrice(market float64, protected int) float64 {
	if protected == 0 {
		return market * unprotectedDiscount
	}
	return market
}

// Read returns what all instances have cost until now, those that are released among them, in CNY. It is given those that are not.
func (m *Meter) Read(living []*Instance, now time.Time) float64 {
	for _, i := range living {
		m.add(i, now)
	}
	return m.cny
}

// add adds what the instance has cost since the last time.
func (m *Meter) add(i *Instance, now time.Time) {
	if protected := i.ProtectedUntil.Sub(i.billedUntil); protected > 0 {
		protected = min(protected, now.Sub(i.billedUntil))
		m.cny += i.bought * protected.Hours()
		i.billedUntil = i.billedUntil.Add(protected)
	}
	quote := m.market.Quote(i.Type.ID, i.VSwitch.Zone, i.billedUntil)
	price := quote.OnDemand
	if i.IsSpot() {
		price = spotPrice(quote.Spot, i.SpotDuration)
	}
	m.cny += price * now.Sub(i.billedUntil).Hours()
	i.billedUntil = now
}
