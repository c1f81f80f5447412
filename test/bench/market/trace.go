package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
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
func (t *trace) sight(tick, _ int) sight {
	seen := sight{up: make([]bool, len(t.zones)), price: make([]float64, len(t.zones))}
	for zone := range t.zones {
		seen.up[zone], seen.price[zone] = t.up[zone][tick], t.price[zone][tick]
	}
	return seen
}

// changePoint is a line of a recording: the value holds from the tick on.
type changePoint struct {
	tick  int
	value float64
}

// readTrace reads the zones of a recording from two CSV files with a header: "zone,tick,available" with 0 or 1, and
// "zone,tick,usd_per_hour", the ticks of a zone in ascending order. Before its first price a zone has that price, and before its first
// availability it is not available. The trace ends with the last change of any zone, or at least so many ticks.
func readTrace(availability, price string, zones []string, least int) (*trace, error) {
	available, err := readFile(availability)
	if err != nil {
		return nil, err
	}
	prices, err := readFile(price)
	if err != nil {
		return nil, err
	}
	length := least
	for _, points := range available {
		length = max(length, points[len(points)-1].tick+1)
	}
	t := &trace{zones: zones}
	for _, zone := range zones {
		if len(available[zone]) == 0 || len(prices[zone]) == 0 {
			return nil, fmt.Errorf("zone %q is not in %s and %s", zone, availability, price)
		}
		up := make([]bool, length)
		for tick, value := range spread(available[zone], length, 0) {
			up[tick] = value == 1
		}
		t.up = append(t.up, up)
		t.price = append(t.price, spread(prices[zone], length, prices[zone][0].value))
	}
	return t, nil
}

func readFile(path string) (map[string][]changePoint, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	points, err := readPoints(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return points, nil
}

// readPoints returns the change points by zone.
func readPoints(r io.Reader) (map[string][]changePoint, error) {
	lines, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, err
	}
	points := map[string][]changePoint{}
	for i, line := range lines[min(1, len(lines)):] {
		if len(line) != 3 {
			return nil, fmt.Errorf("line %d has %d fields, not zone, tick and value", i+2, len(line))
		}
		tick, tickErr := strconv.Atoi(line[1])
		value, valueErr := strconv.ParseFloat(line[2], 64)
		zone := points[line[0]]
		if tickErr != nil || valueErr != nil || len(zone) > 0 && zone[len(zone)-1].tick >= tick {
			return nil, fmt.Errorf("line %d: %q is no tick after the one before and a value", i+2, line[1:])
		}
		points[line[0]] = append(zone, changePoint{tick, value})
	}
	return points, nil
}

// spread returns the value of each tick; before the first change it is the given one.
func spread(points []changePoint, length int, before float64) []float64 {
	values := slices.Repeat([]float64{before}, length)
	for i, point := range points {
		end := length
		if i+1 < len(points) {
			end = points[i+1].tick
		}
		for tick := point.tick; tick < min(end, length); tick++ {
			values[tick] = point.value
		}
	}
	return values
}
