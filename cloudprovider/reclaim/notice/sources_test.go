package notice

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDocsExplainEverySource(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reclaim.md")
	require.NoError(t, err)
	for _, source := range Sources {
		assert.Contains(t, string(text), "\n| `"+string(source)+"` | ", "docs/reclaim.md has no row for it under Where notices come from")
	}
}
