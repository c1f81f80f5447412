package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSimulatorAnswersAsIsBelieved asks the simulator everything, on the wire. A rule of the simulator and the belief in
// the list of questions change together, or not at all.
func TestSimulatorAnswersAsIsBelieved(t *testing.T) {
	t.Parallel()
	all := questions()
	answers, err := askSimulated(t.Context(), all)
	require.NoError(t, err)
	for n, got := range answers {
		assert.Empty(t, got.Error, all[n].name)
		assert.Equal(t, all[n].believed.String(), got.String(), all[n].name)
	}
}
