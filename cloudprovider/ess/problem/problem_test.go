package problem

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestTheManualExplainsEveryProblemOfAPoolInTheWordsOfTheEvents(t *testing.T) {
	page, err := os.ReadFile("../../../docs/operations.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Problems of a pool\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z_]+(?:, [a-z_]+)*) \|(.*)$`).FindAllStringSubmatch(section, -1) {
		for reason := range strings.SplitSeq(row[1], ", ") {
			rows[reason] = row[2]
		}
	}
	delete(rows, "reason") // the head
	for reason, fix := range fixes {
		assert.Contains(t, rows[string(reason)], fix, reason)
	}
	assert.Equal(t, sets.List(reasonsInSource(t)), sets.List(sets.KeySet(rows)))
}

// reasonsInSource are the constants of type Reason, and the reason of the cloud that a refused purchase gives.
func reasonsInSource(t *testing.T) sets.Set[string] {
	t.Helper()
	found := sets.New("not_allowed")
	text, err := os.ReadFile("problem.go")
	require.NoError(t, err)
	for _, match := range regexp.MustCompile(`\w+ +Reason = "([a-z_]+)"`).FindAllStringSubmatch(string(text), -1) {
		found.Insert(match[1])
	}
	require.Greater(t, found.Len(), 20)
	return found
}
