package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThresholdsDecideByTheirNumbers(t *testing.T) {
	const left = 100
	never, always := line{ticks: math.Inf(1)}, line{}
	both := seen{sight: sight{up: []bool{true, true}, price: []float64{1, 1.1}}, life: []float64{10, 200}}
	none := seen{sight: sight{up: []bool{false, false}, price: []float64{1, 1.1}}, life: []float64{0, 0}}
	for name, test := range map[string]struct {
		numbers numbers
		seen    seen
		on      int
		slack   int
		want    int
	}{
		"the cheapest":                          {numbers{idles: never}, both, idle, 20, 0},
		"one that lasts, if losses count":       {numbers{idles: never, lossWeight: 1}, both, idle, 20, 1},
		"an outage with enough slack":           {numbers{waits: line{10, .1}}, none, idle, 20, idle},
		"an outage with too little slack":       {numbers{waits: line{11, .1}}, none, idle, 20, onDemand},
		"no time for a loss":                    {numbers{idles: never}, both, idle, 7, onDemand},
		"too short a life with little slack":    {numbers{idles: never, hurries: never, hurryLife: 11}, both, idle, 20, onDemand},
		"too short a life with much slack":      {numbers{idles: always, idleLife: 11}, both, idle, 20, idle},
		"on demand, with enough slack":          {numbers{returns: line{20, 0}}, both, onDemand, 20, 0},
		"on demand, with too little slack":      {numbers{returns: line{21, 0}}, both, onDemand, 20, onDemand},
		"on demand, and what is up is too bad":  {numbers{returns: always, returnLife: 11}, both, onDemand, 20, onDemand},
		"on spot it stays, however little time": {numbers{returns: always}, both, 1, 5, 1},
	} {
		j := job{work: left, restart: 4, deadline: left + test.slack}
		p := &thresholds{numbers: test.numbers, job: j, looks: looks{every: 3, all: []seen{test.seen}}, experience: newExperience()}
		assert.Equal(t, test.want, p.decide(progress{left: left, on: test.on}, sight{}), name)
	}
}

func TestThresholdsForgetWhatTheyLostAtTheNextLook(t *testing.T) {
	up := seen{sight: sight{up: []bool{true, true}, price: []float64{1, 1.1}}, life: []float64{10, 10}}
	j := job{work: 100, restart: 4, deadline: 150}
	p := &thresholds{numbers: numbers{idles: line{ticks: 1000}}, job: j, looks: looks{every: 3, all: []seen{up, up}}, experience: newExperience()}
	assert.Equal(t, 0, p.decide(progress{left: 100, on: idle}, sight{}))
	assert.Equal(t, 1, p.decide(progress{elapsed: 1, left: 100, on: idle}, sight{}), "the first was lost")
	assert.Equal(t, 0, p.decide(progress{elapsed: 3, left: 100, on: idle}, sight{}), "only the second since the last look")
}

func TestThresholdsOfMoreDrawsAreNoDearerAndNoneIsCheaperThanTheOmniscient(t *testing.T) {
	o, err := parse([]string{"--starts", "5", "--fit", "0:6646", "--report", "6646:8862"})
	require.NoError(t, err)
	s := setting{fit: o.fit, report: o.report, zones: o.zones[1], slack: 1.15, knows: polled}
	recording, err := readRecording("../../alisim/market/data/v100-9zone/availability.csv", "../../alisim/market/data/v100-9zone/price.csv")
	require.NoError(t, err)
	found, err := newTrace(recording, s.zones, s.report.to)
	require.NoError(t, err)
	j := o.job(s)
	starts, err := o.startsOf(s.report, j)
	require.NoError(t, err)
	market := newSighted(found, j, o, s)
	few, many, again := inHindsight(market, j, starts, 10), inHindsight(market, j, starts, 60), inHindsight(market, j, starts, 60)
	assert.LessOrEqual(t, many, few)
	assert.Equal(t, many, again)
	least := 0.0
	for _, start := range starts {
		least += omniscient(found, start, j) / float64(j.work) / float64(len(starts))
	}
	assert.Greater(t, many, least)
	assert.Less(t, many, j.onDemandPrice)
}
