package alisim

import (
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim/market"
)

// Market describes the spot market. Its parts are layers: the published prices of October 2024 below, then Trace,
// then Script; what is set by hand while the world runs (Server.SetStock, Server.SetPrice) lies on top. All three may
// be left out, which is a static market.
type Market struct {
	// Offset is the market time at which the world begins: how far into the trace and the script.
	Offset metav1.Duration `json:"offset,omitempty"`
	// Trace replays recorded availability and prices.
	Trace *Trace `json:"trace,omitempty"`
	// Script lists changes by market time; those at 0s describe a static market.
	Script []Change `json:"script,omitempty"`
}

// Trace lays a recording over zones of the world.
type Trace struct {
	// Zones maps a zone of the world, or "<instance-type>/<zone>", to a zone of the recording.
	Zones map[string]string `json:"zones"`
	// PoolSize is how many spot instances an offering carries while it is available; 0 means without bound.
	PoolSize int `json:"poolSize,omitempty"`
	// Availability and Price are CSV files ("zone,tick,available" and "zone,tick,usd_per_hour", ticks of 195 s); without
	// them the embedded recording of V100 in nine zones is used.
	Availability string `json:"availability,omitempty"`
	Price        string `json:"price,omitempty"`
	// OnDemandUSD is the recorded machine's on-demand price per hour; default 3.06.
	OnDemandUSD float64 `json:"onDemandUSD,omitempty"`
}

// Change is one event of the script. What is left out stays as it was.
type Change struct {
	// At is the market time of the event.
	At metav1.Duration `json:"at"`
	// InstanceType and Zone say which offerings change; empty means all.
	InstanceType string `json:"instanceType,omitempty"`
	Zone         string `json:"zone,omitempty"`
	// Stock is how many spot instances a zone carries at once, running ones included: at 0 they are reclaimed; -1 means
	// without bound.
	Stock *int `json:"stock,omitempty"`
	// Spot and OnDemand are CNY per instance-hour.
	Spot     *float64 `json:"spot,omitempty"`
	OnDemand *float64 `json:"onDemand,omitempty"`
}

func (m Market) validate() error {
	for i, c := range m.Script {
		if c.Stock != nil && *c.Stock < market.Unlimited {
			return fmt.Errorf("script[%d]: stock %d", i, *c.Stock)
		}
	}
	if t := m.Trace; t != nil {
		if len(t.Zones) == 0 {
			return fmt.Errorf("trace: no zones")
		}
		if (t.Availability == "") != (t.Price == "") {
			return fmt.Errorf("trace: availability and price go together")
		}
	}
	return nil
}

// build puts the layers on each other.
func (w World) buildMarket(start time.Time) (*market.Static, market.Timeline, error) {
	timeline := market.Timeline{Start: start, Offset: w.Market.Offset.Duration, Speed: w.Speed}
	described := market.NewStatic(nil)
	for _, t := range w.Types {
		if t.Spot == 0 && t.OnDemand == 0 {
			continue
		}
		for _, zone := range w.zones() {
			described.SetPrice(t.ID, zone, t.Spot, t.OnDemand, time.Time{})
		}
	}
	var m market.Market = described
	if t := w.Market.Trace; t != nil {
		traced, err := t.build(m, timeline)
		if err != nil {
			return nil, timeline, err
		}
		m = traced
	}
	if len(w.Market.Script) > 0 {
		m = market.NewScript(m, timeline, changes(w.Market.Script))
	}
	return market.NewStatic(m), timeline, nil
}

func (t Trace) build(base market.Market, timeline market.Timeline) (market.Market, error) {
	opts := market.TraceOptions{Timeline: timeline, Zones: t.Zones, PoolSize: t.PoolSize, OnDemandUSD: t.OnDemandUSD}
	if t.Availability == "" {
		return market.V100Trace(base, opts)
	}
	availability, err := os.Open(t.Availability)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer availability.Close()
	price, err := os.Open(t.Price)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer price.Close()
	return market.NewTrace(base, opts, availability, price)
}

func changes(script []Change) []market.Change {
	list := make([]market.Change, 0, len(script))
	for _, c := range script {
		list = append(list, market.Change{
			At: c.At.Duration, InstanceType: c.InstanceType, Zone: c.Zone, Stock: c.Stock, Spot: c.Spot, OnDemand: c.OnDemand,
		})
	}
	return list
}
