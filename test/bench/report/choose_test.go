package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMeasurementsAreChosenByName(t *testing.T) {
	itself := func(name string) string { return name }
	all := []string{"refresh", "delete", "loop"}
	for names, want := range map[string][]string{"": all, "loop,delete": {"loop", "delete"}} {
		chosen, err := Choose(all, names, itself)
		require.NoError(t, err)
		assert.Equal(t, want, chosen)
	}
	_, err := Choose(all, "loop,lop", itself)
	assert.ErrorContains(t, err, `"lop"`)
}
