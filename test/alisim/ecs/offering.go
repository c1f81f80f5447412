package ecs

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Codes of instances that cannot be had.
const (
	CodeNoStock     = "OperationDenied.NoStock"
	CodeNotOnSale   = "Zone.NotOnSale"
	CodePriceTooLow = "InvalidSpotPriceLimit.LowerThanPublicPrice"
	CodeQuota       = "QuotaExceed.ElasticQuota"
	CodeNoAddress   = "InvalidVSwitchId.IpNotEnough"
)

type offeringKey struct{ instanceType, zone string }

// offering counts what runs of a type in a zone.
type offering struct {
	offeringKey
	// spot lists running spot instances, reclaiming ones included.
	spot     cloud.Roster[*Instance]
	onDemand int
	// onDemandStock is how many pay-as-you-go instances the zone carries; market.Unlimited means no bound.
	onDemandStock int
}

func (c *Compute) offeringOf(instanceType, zone string) *offering {
	key := offeringKey{instanceType, zone}
	o, known := c.offerings[key]
	if !known {
		o = &offering{offeringKey: key, onDemandStock: market.Unlimited}
		c.offerings[key] = o
	}
	return o
}

func (o *offering) hasSpot(capacity int) bool {
	return capacity == market.Unlimited || o.spot.Len() < capacity
}

func (o *offering) hasOnDemand() bool {
	return o.onDemandStock == market.Unlimited || o.onDemand < o.onDemandStock
}

func (o *offering) take(i *Instance) {
	if i.IsSpot() {
		o.spot.Add(i)
	} else {
		o.onDemand++
	}
}

func (o *offering) give(i *Instance) {
	if i.IsSpot() {
		o.spot.Remove(i)
	} else {
		o.onDemand--
	}
}

// Offer is one way to buy an instance.
type Offer struct {
	Type Type
	Zone string
	// Strategy is NoSpot, SpotAsPriceGo or SpotWithPriceLimit; PriceLimit, in CNY per hour, counts for the last.
	Strategy   string
	PriceLimit float64

	vsw  *vswitch
	sold *offering
}

// OfferKey tells offers of one account apart.
type OfferKey struct{ InstanceType, Zone, Strategy string }

// Key returns what the offer is told apart by.
func (o Offer) Key() OfferKey { return OfferKey{o.Type.ID, o.Zone, o.Strategy} }

// Offer returns the way to buy a type that Sells, in a vSwitch that HasVSwitch.
func (c *Compute) Offer(instanceType, vswitchID, strategy string, priceLimit float64) Offer {
	v := c.vswitches[vswitchID]
	return Offer{
		Type: c.types[instanceType], Zone: v.Zone, Strategy: strategy, PriceLimit: priceLimit,
		vsw: v, sold: c.offeringOf(instanceType, v.Zone),
	}
}

// PricePerCPU returns CNY per hour and vCPU.
func (o Offer) PricePerCPU(m *market.Static, now time.Time) float64 {
	q := m.Quote(o.Type.ID, o.Zone, now)
	if o.Strategy == NoSpot {
		return q.OnDemand / float64(o.Type.VCPU)
	}
	return q.Spot / float64(o.Type.VCPU)
}

// Room is how many more instances of an offer can be had, as far as anything but its price decides.
func (c *Compute) Room(o Offer, now time.Time) int {
	room := o.vsw.AvailableIPs - o.vsw.used
	if quota, limited := (accountActions{c}).quotaRoom(o); limited {
		room = min(room, quota)
	}
	q := c.Market.Quote(o.Type.ID, o.Zone, now)
	if o.Strategy == NoSpot && o.sold.onDemandStock != market.Unlimited {
		room = min(room, o.sold.onDemandStock-o.sold.onDemand)
	}
	if o.Strategy != NoSpot && q.Capacity != market.Unlimited {
		room = min(room, q.Capacity-o.sold.spot.Len())
	}
	return max(0, room)
}

// WhyNot says why an offer cannot be had, nil if it can.
func (c *Compute) WhyNot(o Offer, now time.Time) *protocol.Failure {
	q := c.Market.Quote(o.Type.ID, o.Zone, now)
	quota, limited := accountActions{c}.quotaRoom(o)
	switch {
	case limited && quota <= 0:
		return protocol.Fail(CodeQuota, "The quota of the account is used up: %+v.", c.Quota)
	case o.vsw.used >= o.vsw.AvailableIPs:
		return protocol.Fail(CodeNoAddress, "vSwitch %s has no address left.", o.vsw.ID)
	case q.Spot == 0 && q.OnDemand == 0, c.retired.Has(o.Type.ID):
		return protocol.Fail(CodeNotOnSale, "%s is not on sale in zone %s.", o.Type.ID, o.Zone)
	case o.Strategy == NoSpot:
		if q.OnDemand == 0 || !o.sold.hasOnDemand() {
			return protocol.Fail(CodeNoStock, "%s is sold out in zone %s.", o.Type.ID, o.Zone)
		}
	case !q.Available || !o.sold.hasSpot(q.Capacity):
		return protocol.Fail(CodeNoStock, "%s is sold out as spot in zone %s.", o.Type.ID, o.Zone)
	case o.Strategy == SpotWithPriceLimit && o.PriceLimit < q.Spot:
		return protocol.Fail(CodePriceTooLow, "The price limit %g of %s is below the spot price %g in zone %s.",
			o.PriceLimit, o.Type.ID, q.Spot, o.Zone)
	}
	return nil
}
