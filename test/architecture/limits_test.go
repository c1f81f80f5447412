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

// directory returns the directory that the subject is in.
func (s subject) directory() string {
	switch s.unit {
	case "lines":
		return path.Dir(s.name)
	case "methods":
		return strings.TrimSuffix(s.name, path.Ext(s.name))
	}
	return s.name
}

// exception is a line of CONTRIBUTING.md.
type exception struct {
	atMost int
	// transient is an exception that is being worked on. Neither it nor anything else in its directory fails a test.
	transient bool
}

func TestTypesFilesAndPackagesKeepWithinTheLimits(t *testing.T) {
	counts := count(t)
	require.NotZero(t, counts[subject{"cloudprovider/alicloud/rpc.Caller", "methods"}], "methods are counted")
	allowed := exceptions(t)
	for what, n := range counts {
		exception, listed := allowed[what]
		switch {
		case !listed && n > limits[what.unit] && inTransition(what, allowed):
			t.Logf("%s: there are %d", what, n)
		case !listed:
			assert.LessOrEqual(t, n, limits[what.unit], "%s: split it, or add it to the exceptions in CONTRIBUTING.md with a reason", what)
		case exception.transient:
			t.Logf("%s: there are %d", what, n)
		default:
			assert.LessOrEqual(t, n, exception.atMost, "%s: CONTRIBUTING.md allows no more", what)
			assert.Greater(t, n, limits[what.unit], "%s: it needs no exception in CONTRIBUTING.md any more", what)
		}
	}
	for what, exception := range allowed {
		if _, exists := counts[what]; !exists && !exception.transient {
			t.Errorf("%s: CONTRIBUTING.md has an exception for what does not exist", what)
		}
	}
}

func inTransition(what subject, allowed map[subject]exception) bool {
	for other, exception := range allowed {
		if exception.transient && strings.HasPrefix(what.directory()+"/", other.directory()+"/") {
			return true
		}
	}
	return false
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

// exceptions reads CONTRIBUTING.md. Each exception has a line of its own:
//
//   - `<name>`, <number> <unit>: <reason>
func exceptions(t *testing.T) map[subject]exception {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	require.NoError(t, err)
	allowed := map[subject]exception{}
	for _, line := range regexp.MustCompile("(?m)^- `([^`]+)`, (\\d+) (methods|lines|files): (\\S.*)$").FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(line[2])
		require.NoError(t, err)
		what := subject{line[1], line[3]}
		require.NotContains(t, allowed, what)
		allowed[what] = exception{atMost: n, transient: strings.HasPrefix(line[4], "to be split")}
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
