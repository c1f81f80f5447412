package deploy_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// What the threat model says is either shown by tests that exist, or says why by none.
func TestTheThreatModelNamesTestsThatExist(t *testing.T) {
	existing := sets.New[string]()
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		existing = existing.Union(firstGroups(declaration.FindAllStringSubmatch(string(text), -1)))
		return err
	})
	require.NoError(t, err)
	require.Contains(t, existing, t.Name())

	rows := 0
	named := regexp.MustCompile("`(Test\\w+)`")
	for _, page := range []string{"../docs/threat-model.md", "../SECURITY.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for name := range firstGroups(named.FindAllStringSubmatch(string(text), -1)) {
			assert.True(t, existing.Has(name), "%s names %s, which does not exist", page, name)
		}
		for _, table := range strings.Split(string(text), "\n\n") {
			lines := strings.Split(strings.TrimSpace(table), "\n")
			if !strings.HasSuffix(lines[0], "| shown by |") {
				continue
			}
			for _, line := range lines[2:] {
				cells := strings.Split(strings.Trim(line, "| "), " | ")
				shown := cells[len(cells)-1]
				rows++
				assert.True(t, named.MatchString(shown) || strings.HasPrefix(shown, "no test: "), "%s: neither a test nor why there is none: %s", page, line)
			}
		}
	}
	assert.NotZero(t, rows)
}
