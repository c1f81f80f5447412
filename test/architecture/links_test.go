package architecture

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	code    = regexp.MustCompile("(?s)```.*?```")
)

func TestLinksOfTheDocsLeadSomewhere(t *testing.T) {
	for _, page := range sources(t, ".md") {
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(page.text, ""), -1) {
			to, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(to, "://") {
				continue
			}
			file := page.path
			if to != "" {
				file = path.Join(path.Dir(page.path), to)
			}
			text, err := os.ReadFile(filepath.Join(root, file))
			if info, statErr := os.Stat(filepath.Join(root, file)); statErr == nil && info.IsDir() {
				continue
			}
			if assert.NoError(t, err, "%s links to %s", page.path, match[1]) && anchor != "" {
				assert.True(t, anchorsOf(string(text)).Has(anchor), "%s links to %s, which has no such heading", page.path, match[1])
			}
		}
	}
}

func TestTheMapOfTheTestsNamesEachEndToEndTest(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "test", "README.md"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(root, "test", "e2e", "*_test.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		assert.Contains(t, string(text), "`"+filepath.Base(file)+"`", "add it to test/README.md")
	}
}

// anchorsOf returns the anchors that GitHub gives the headings of a page.
func anchorsOf(text string) sets.Set[string] {
	anchors := sets.New[string]()
	for _, match := range heading.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
		anchors.Insert(anchor(match[1]))
	}
	return anchors
}

func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r > 127 && !unicode.IsPunct(r):
			return r
		}
		return -1
	}, strings.ToLower(heading))
}

// README and docs/peers.md show the same measurement.
func TestBothTablesOfThePeersAreTheSame(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	peers, err := os.ReadFile(filepath.Join(root, "docs", "peers.md"))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(readme), "| | this autoscaler | in-tree |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	assert.Greater(t, strings.Count(table, "\n"), 10)
	assert.Contains(t, string(peers), table)
}
