package notice

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheDocsExplainEverySource(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reclaim.md")
	require.NoError(t, err)
	for _, source := range Sources {
		assert.True(t, strings.Contains(string(text), "\n| `"+string(source)+"` | "), "docs/reclaim.md has no row for %s under Where notices come from", source)
	}
}
