package market

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// recording holds the change points of a trace by its own zones.
type recording struct {
	available map[string]steps[bool]
	usd       map[string]steps[float64]
}

func readRecording(availability, price io.Reader) (recording, error) {
	available, err := readChanges(availability, "available", strconv.ParseBool)
	if err != nil {
		return recording{}, fmt.Errorf("market: availability trace: %w", err)
	}
	usd, err := readChanges(price, "usd_per_hour", parsePrice)
	if err != nil {
		return recording{}, fmt.Errorf("market: price trace: %w", err)
	}
	return recording{available, usd}, nil
}

// Recording is what a trace says of its zones, by its own ticks. It does not change.
type Recording struct{ recorded recording }

// ReadRecording reads change points as [NewTrace] does.
func ReadRecording(availability, price io.Reader) (Recording, error) {
	recorded, err := readRecording(availability, price)
	return Recording{recorded}, err
}

// Has says whether the recording has the zone.
func (r Recording) Has(zone string) bool {
	return len(r.recorded.available[zone]) > 0 && len(r.recorded.usd[zone]) > 0
}

// At returns whether an instance can be bought and kept in the zone at the tick, and what it costs per hour. Before its first change
// point a zone is not available, and costs what it does there.
func (r Recording) At(zone string, tick int) (available bool, usd float64) {
	at := time.Duration(tick) * Tick
	availability, _ := r.recorded.available[zone].at(at)
	price, known := r.recorded.usd[zone].at(at)
	if !known {
		price = r.recorded.usd[zone][0]
	}
	return availability.value, price.value
}

func parsePrice(cell string) (float64, error) {
	price, err := strconv.ParseFloat(cell, 64)
	if err == nil && (!(price > 0) || math.IsInf(price, 0)) {
		err = fmt.Errorf("price %q is not a number above 0", cell)
	}
	return price, err
}

// readChanges reads "zone,tick,<column>" into steps per zone.
func readChanges[T any](r io.Reader, column string, parse func(string) (T, error)) (map[string]steps[T], error) {
	t, err := readTable(r, "zone", "tick", column)
	if err != nil {
		return nil, err
	}
	changes := map[string]steps[T]{}
	for i, record := range t.records {
		line := i + 2 // the header is line 1
		zone := t.text(record, "zone")
		tick, err := strconv.ParseUint(t.text(record, "tick"), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		value, err := parse(t.text(record, column))
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		at := time.Duration(tick) * Tick
		if last := len(changes[zone]) - 1; last >= 0 && changes[zone][last].at >= at {
			return nil, fmt.Errorf("line %d: tick %d of %s is not after the one before", line, tick, zone)
		}
		changes[zone] = append(changes[zone], step[T]{at, value})
	}
	return changes, nil
}
