package reasons

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestTheManualSaysWhatEveryCodeMeansAndWhatToDo(t *testing.T) {
	source, err := os.ReadFile("reasons.go")
	require.NoError(t, err)
	codes := sets.New[string]()
	for _, match := range regexp.MustCompile(`(?m)^\t\w+ Code = "([a-z-]+)"$`).FindAllStringSubmatch(string(source), -1) {
		codes.Insert(match[1])
	}
	require.Greater(t, codes.Len(), 20)
	assert.Equal(t, sets.List(codes), sets.List(codesIn(t, "operations.md", "Why a pod is pending")))
	assert.Equal(t, sets.List(codes), sets.List(codesIn(t, "troubleshooting.md", "A pod stays pending")))
}

// codesIn returns those in the first column of the table that begins with "code", in a section of a page.
func codesIn(t *testing.T, page, section string) sets.Set[string] {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	require.True(t, found, "%s has no section %q", page, section)
	_, table, found := strings.Cut(rest, "\n| code |")
	require.True(t, found, "%s has no table of codes in %q", page, section)
	table, _, _ = strings.Cut(table, "\n\n")
	codes := sets.New[string]()
	for _, row := range regexp.MustCompile("(?m)^\\| ([`a-z, -]+?)(?: everywhere)? \\|").FindAllStringSubmatch(table, -1) {
		if strings.HasPrefix(row[1], "none") {
			continue
		}
		for code := range strings.SplitSeq(row[1], ", ") {
			codes.Insert(strings.Trim(code, "`"))
		}
	}
	return codes
}
