package main

import (
	"errors"
	"fmt"
	"os"

	"gpu-spot-autoscaler/test/alisim/market"
)

// trace is what some zones of a recording offered, tick by tick.
type trace struct {
	zones []string
	// up says whether an instance can be bought and kept, price is what it costs per hour; both by zone and tick.
	up    [][]bool
	price [][]float64
}

// ticks is how long the trace is.
func (t *trace) ticks() int {
	if len(t.up) == 0 {
		return 0
	}
	return len(t.up[0])
}

// sight shows the zones as they are at the tick.
func (t *trace) sight(tick int) sight {
	seen := sight{up: make([]bool, len(t.zones)), price: make([]float64, len(t.zones))}
	for zone := range t.zones {
		seen.up[zone], seen.price[zone] = t.up[zone][tick], t.price[zone][tick]
	}
	return seen
}

// readRecording reads both files of a recording.
func readRecording(availability, price string) (recording market.Recording, err error) {
	available, err := os.Open(availability)
	if err != nil {
		return recording, err
	}
	defer available.Close()
	prices, err := os.Open(price)
	if err != nil {
		return recording, err
	}
	defer prices.Close()
	return market.ReadRecording(available, prices)
}

// newTrace returns the first ticks of the zones.
func newTrace(recording market.Recording, zones []string, ticks int) (*trace, error) {
	t := &trace{zones: zones}
	for _, zone := range zones {
		if !recording.Has(zone) {
			return nil, fmt.Errorf("zone %q is not in the recording", zone)
		}
		up, price := make([]bool, ticks), make([]float64, ticks)
		for tick := range ticks {
			up[tick], price[tick] = recording.At(zone, tick)
		}
		t.up, t.price = append(t.up, up), append(t.price, price)
	}
	if len(zones) == 0 || ticks <= 0 {
		return nil, errors.New("a trace needs zones and ticks")
	}
	return t, nil
}
