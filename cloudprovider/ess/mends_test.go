package ess

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
	page, err := os.ReadFile("../../docs/operations.md")
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
	for reason, mend := range mends {
		assert.Contains(t, rows[reason], mend, reason)
	}
	assert.Equal(t, sets.List(reasonsInSource(t)), sets.List(sets.KeySet(rows)))
}

// reasonsInSource are those that the code gives to problems.
func reasonsInSource(t *testing.T) sets.Set[string] {
	t.Helper()
	found := sets.New("not_allowed", "standby", "stopped") // made of what the cloud says
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	given := regexp.MustCompile(`problem\{.*?"([a-z_]+)"\}|\bfail\("([a-z_]+)"|found\["([a-z_]+)"\]|return "([a-z]+_autoscaler)"`)
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		text, err := os.ReadFile(file.Name())
		require.NoError(t, err)
		for _, match := range given.FindAllStringSubmatch(string(text), -1) {
			found.Insert(strings.Join(match[1:], ""))
		}
	}
	require.Greater(t, found.Len(), 20)
	return found
}
