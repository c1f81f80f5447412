package chart

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNiceStep(t *testing.T) {
	for _, test := range []struct {
		whole float64
		n     int
		want  float64
	}{{120, 8, 20}, {17, 4, 5}, {1591, 4, 500}, {.9, 4, .5}, {8, 4, 2}} {
		assert.InDelta(t, test.want, niceStep(test.whole, test.n), 1e-9, "%v in %d", test.whole, test.n)
	}
}
