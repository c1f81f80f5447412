package deploy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// testSources are the sources of tests that docs/jobs.md names: the files in test/e2e, and the strings in each test function there and
// below cloudprovider/jobs, by its name. The names of parts are among them.
type testSources struct {
	files     sets.Set[string]
	functions map[string]sets.Set[string]
	// operators are the strings of test/operators, the names of operators among them.
	operators sets.Set[string]
}

func readTestSources(t *testing.T) testSources {
	t.Helper()
	sources := testSources{files: sets.New[string](), functions: map[string]sets.Set[string]{}, operators: sets.New[string]()}
	each := func(root string, do func(path string, file *ast.File)) {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				do(path, file)
			}
			return err
		}))
	}
	tests := func(_ string, file *ast.File) {
		for _, declared := range file.Decls {
			if function, ok := declared.(*ast.FuncDecl); ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") {
				sources.functions[function.Name.Name] = stringsIn(function)
			}
		}
	}
	each("../test/e2e", func(path string, file *ast.File) {
		sources.files.Insert(filepath.Base(path))
		tests(path, file)
	})
	each("../cloudprovider/jobs", tests)
	each("../test/operators", func(_ string, file *ast.File) { sources.operators = sources.operators.Union(stringsIn(file)) })
	return sources
}

// stringsIn returns the values of the string literals below the node.
func stringsIn(node ast.Node) sets.Set[string] {
	found := sets.New[string]()
	ast.Inspect(node, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				found.Insert(text)
			}
		}
		return true
	})
	return found
}

// has returns whether there is the test, and the part of it, or of the test that was named before if the name is of a part alone.
func (s testSources) has(name string, before *string) bool {
	if strings.HasSuffix(name, ".go") {
		return s.files.Has(name)
	}
	if !strings.HasPrefix(name, "Test") {
		return s.functions[*before].Has(name)
	}
	test, part, _ := strings.Cut(name, "/")
	*before = test
	known, ok := s.functions[test]
	if _, inParts, divided := strings.Cut(part, "parts/"); divided {
		return ok && known.Has("parts") && known.Has(inParts)
	}
	return ok && (part == "" || known.Has(part) || s.operators.Has(part))
}

// TestEveryTestThatThePageOfJobsNamesExists holds the table of job systems and their tests to the sources.
func TestEveryTestThatThePageOfJobsNamesExists(t *testing.T) {
	sources := readTestSources(t)
	for _, page := range []string{"../docs/jobs.md", "../docs/zh-CN/jobs.md"} {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		names := 0
		for row := range strings.Lines(string(text)) {
			cells := strings.Split(strings.TrimSpace(row), "|")
			if len(cells) != 5 || !strings.Contains(cells[3], "`Test") {
				continue
			}
			before := ""
			for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
				if strings.HasPrefix(name[1], "cloudprovider/") {
					assert.DirExists(t, "../"+name[1])
					continue
				}
				names++
				assert.True(t, sources.has(name[1], &before), "%s: %s names the test %s, which does not exist", page, strings.TrimSpace(cells[1]), name[1])
			}
		}
		assert.Greater(t, names, 25, "%s: the table of tests was not found", page)
	}
}
