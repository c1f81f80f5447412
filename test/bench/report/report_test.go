package report

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTableHasAColumnForEachKeyAndALineForEachAim(t *testing.T) {
	type row struct {
		Nodes   int     `json:"nodes"`
		Calls   int     `json:"calls"`
		Seconds float64 `json:"seconds"`
		Temper  string  `json:"temper"`
	}
	var out strings.Builder
	Report{
		Title: "Deletion", Rows: []row{{Nodes: 100, Calls: 5, Seconds: 12.3456, Temper: "strict"}},
		Aims: []Aim{AtMost(5, 5, "calls"), AtMost(1.5, 2, "seconds"), AtLeast(100, 100, "given back"), AtLeast(100, 99.5, "found")},
	}.Print(&out)
	assert.Equal(t, `
Deletion
  nodes  calls  seconds  temper
    100      5   12.346  strict
  met     calls: 5 of at most 5
  MISSED  seconds: 2 of at most 1.5
  met     given back: 100 of at least 100
  MISSED  found: 99.5 of at least 100
`, out.String())
}

func TestPercentile(t *testing.T) {
	values := []float64{4, 1, 3, 2}
	for p, want := range map[int]float64{0: 1, 25: 1, 50: 2, 51: 3, 75: 3, 99: 4, 100: 4} {
		assert.Equal(t, want, Percentile(values, p), p)
	}
	assert.Equal(t, 7., Percentile([]float64{7}, 50))
	assert.Zero(t, Percentile(nil, 50))
}

func TestProcFields(t *testing.T) {
	now, peak, err := ResidentBytes(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, now)
	assert.GreaterOrEqual(t, peak, now)
	_, err = CPUSeconds(os.Getpid())
	require.NoError(t, err)
	_, err = procField("/proc/self/status", "NoSuchField")
	assert.ErrorContains(t, err, "NoSuchField")
}

func TestTableSaysWhatAPointerLeadsTo(t *testing.T) {
	type row struct {
		Restarts *int `json:"restarts"`
	}
	var out strings.Builder
	two := 2
	Report{Title: "Jobs", Rows: []row{{&two}, {nil}}}.Print(&out)
	assert.Equal(t, `
Jobs
  restarts
         2
     <nil>
`, out.String())
}
