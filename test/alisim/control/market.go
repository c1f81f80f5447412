package control

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/market"
)

// marketPanel sets what there is to be had, and for how much.
type marketPanel struct{ services }

// SetStock says how many spot instances of a type a zone carries at once, running ones included; market.Unlimited
// lifts the bound. Running instances beyond it are reclaimed once their protected time is over.
func (p marketPanel) SetStock(instanceType, zone string, stock int) {
	p.locked(func() { p.compute.SetStock(instanceType, zone, stock) })
}

// SetOnDemandStock says how many pay-as-you-go instances of a type a zone carries at once; running ones stay.
func (p marketPanel) SetOnDemandStock(instanceType, zone string, stock int) {
	p.locked(func() { p.compute.SetOnDemandStock(instanceType, zone, stock) })
}

// Retire has an instance type neither described nor sold any more. Its instances run on.
func (p marketPanel) Retire(instanceType string) {
	p.locked(func() { ecs.Supply{Compute: p.compute}.Retire(instanceType) })
}

// DeleteVSwitch deletes a vSwitch in which nothing is. Scaling groups that name it go on naming it.
func (p marketPanel) DeleteVSwitch(id string) (err error) {
	p.locked(func() { err = ecs.Supply{Compute: p.compute}.DeleteVSwitch(id) })
	return err
}

// SetPrice says what an instance-hour costs, in CNY. Running instances whose price limit is passed are reclaimed once
// their protected time is over.
func (p marketPanel) SetPrice(instanceType, zone string, spot, onDemand float64) {
	p.locked(func() { p.compute.SetPrice(instanceType, zone, spot, onDemand) })
}

// Quote returns what the market says of a type in a zone now. Its capacity includes the instances that run.
func (p marketPanel) Quote(instanceType, zone string) market.Quote {
	return p.compute.Market.Quote(instanceType, zone, p.cloud.Clock.Now())
}

// MarketHour is how long an hour of market time takes, and the protected first hour of a spot instance.
func (p marketPanel) MarketHour() time.Duration { return p.compute.Timeline.Hour() }

// Bill returns what all instances have cost so far, those that are released among them, in CNY.
func (p marketPanel) Bill() (cny float64) {
	p.locked(func() { cny = p.compute.Meter.Read(p.compute.Instances(), p.cloud.Clock.Now()) })
	return cny
}
