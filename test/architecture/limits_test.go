package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// limits are how much a type, a file and a package may have. CONTRIBUTING.md has the exceptions.
var limits = map[string]int{"methods": 25, "lines": 400, "files": 15}

// subject is what is counted: the methods of a type ("directory.Type"), the lines of a file ("directory/file.go"), or the files of a
// package ("directory").
type subject struct{ name, unit string }

func (s subject) String() string { return fmt.Sprintf("`%s`, %s", s.name, s.unit) }

func TestTypesFilesAndPackagesKeepWithinTheLimits(t *testing.T) {
	counts := count(t)
	require.NotZero(t, counts[subject{"cloudprovider/alicloud/rpc.Caller", "methods"}], "methods are counted")
	allowed := exceptions(t)
	for what, n := range counts {
		atMost, listed := allowed[what]
		if !listed {
			assert.LessOrEqual(t, n, limits[what.unit], "%s: split it, or add it to the exceptions in CONTRIBUTING.md with a reason", what)
			continue
		}
		assert.LessOrEqual(t, n, atMost, "%s: CONTRIBUTING.md allows no more", what)
		assert.Greater(t, n, limits[what.unit], "%s: it needs no exception in CONTRIBUTING.md any more", what)
	}
	for what := range allowed {
		if _, exists := counts[what]; !exists {
			t.Errorf("%s: CONTRIBUTING.md has an exception for what does not exist", what)
		}
	}
}

// count counts in all Go files that are neither tests nor generated.
func count(t *testing.T) map[subject]int {
	t.Helper()
	counts := map[subject]int{}
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file.path, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.path, file.text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		if ast.IsGenerated(parsed) {
			continue
		}
		directory := path.Dir(file.path)
		counts[subject{file.path, "lines"}] = strings.Count(file.text, "\n")
		counts[subject{directory, "files"}]++
		for _, declaration := range parsed.Decls {
			if method, ok := declaration.(*ast.FuncDecl); ok && method.Recv != nil {
				counts[subject{directory + "." + receiver(method.Recv.List[0].Type), "methods"}]++
			}
		}
	}
	return counts
}

// receiver returns the name of the type in T, *T, T[P] and *T[P].
func receiver(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// exceptions reads from CONTRIBUTING.md what is allowed beyond the limits. Each exception has a line of its own:
//
//   - `<name>`, <number> <unit>: <reason>
func exceptions(t *testing.T) map[subject]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)
	allowed := map[subject]int{}
	for _, line := range regexp.MustCompile("(?m)^- `([^`]+)`, (\\d+) (methods|lines|files): (\\S.*)$").FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(line[2])
		require.NoError(t, err)
		what := subject{line[1], line[3]}
		require.NotContains(t, allowed, what)
		allowed[what] = n
	}
	return allowed
}

// source is a file of the repository. Its path is relative to the root, with slashes.
type source struct{ path, text string }

// sources returns the files with one of the endings, except what is built, hidden, or data of tests.
func sources(t *testing.T, endings ...string) (files []source) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); relative == "out" || name == "testdata" || relative != "." && strings.HasPrefix(name, ".") {
				return fs.SkipDir
			}
			return nil
		}
		for _, ending := range endings {
			if strings.HasSuffix(file, ending) {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				files = append(files, source{filepath.ToSlash(relative), string(text)})
			}
		}
		return nil
	}))
	require.NotEmpty(t, files)
	return files
}
