package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadPointsNamesTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"zone,tick,available\na,0,1\na,0,0\n": "line 3",
		"zone,tick,available\na,x,1\n":        "line 2",
		"zone,tick\na,0\n":                    "line 2",
	} {
		_, err := readPoints(strings.NewReader(text))
		assert.ErrorContains(t, err, want)
	}
}

func TestSpreadHoldsEachValueUntilTheNext(t *testing.T) {
	points, err := readPoints(strings.NewReader("zone,tick,available\na,1,1\na,3,0\n"))
	require.NoError(t, err)
	assert.Equal(t, []float64{9, 1, 1, 0, 0}, spread(points["a"], 5, 9))
}
