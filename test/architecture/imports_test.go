package architecture

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "gpu-spot-autoscaler/"

// TestImportsAreThoseOfThePicture holds the imports of all packages to the first picture of docs/architecture.md. Only files that are
// not tests count: tests may import package test and what it needs.
func TestImportsAreThoseOfThePicture(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	picture := readPicture(string(text))
	require.Greater(t, len(picture.arrows), 10, "the picture of docs/architecture.md is read")
	imports := readImports(t)
	require.Contains(t, imports, "cloudprovider/api", "packages are read")
	for _, violation := range picture.violations(imports) {
		t.Error(violation)
	}
}

// picture is what docs/architecture.md says of imports. A room is a directory with all packages below it that are in no room of their
// own, or a package of another module.
type picture struct {
	rooms map[string]bool
	// leaves are the rooms that every other may import and that import only one another. The picture leaves them out, and the table
	// below it says so.
	leaves map[string]bool
	arrows map[arrow]bool
}

// arrow is an import from one room to another. As an import it is from one package to another.
type arrow struct{ from, to string }

func (a arrow) String() string { return a.from + " → " + a.to }

var (
	drawnRooms  = regexp.MustCompile(`(?m)^\s*(\w+)\[\(?"([^"<]+)`)
	drawnArrows = regexp.MustCompile(`(?m)^\s*(\w+) --> (\w+)$`)
	tableLeaves = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|.*picture leaves.*\\|$")
)

// readPicture reads the first mermaid block of the text, and the leaves from its tables.
func readPicture(text string) picture {
	p := picture{rooms: map[string]bool{}, leaves: map[string]bool{}, arrows: map[arrow]bool{}}
	_, block, _ := strings.Cut(text, "```mermaid\n")
	block, _, _ = strings.Cut(block, "```")
	byID := map[string]string{}
	for _, room := range drawnRooms.FindAllStringSubmatch(block, -1) {
		byID[room[1]] = room[2]
		p.rooms[room[2]] = true
	}
	for _, drawn := range drawnArrows.FindAllStringSubmatch(block, -1) {
		p.arrows[arrow{byID[drawn[1]], byID[drawn[2]]}] = true
	}
	for _, leaf := range tableLeaves.FindAllStringSubmatch(text, -1) {
		p.rooms[leaf[1]], p.leaves[leaf[1]] = true, true
	}
	return p
}

// violations returns what contradicts the picture, in order.
func (p picture) violations(imports map[string][]string) (violations []string) {
	fail := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	found := map[arrow]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(imports)) {
		for _, imported := range imports[pkg] {
			found[arrow{p.roomOf(pkg), p.roomOf(imported)}] = true
			_, ours := imports[imported]
			if wrong := p.wrong(pkg, imported, ours); wrong != "" {
				fail("%s: %s", arrow{pkg, imported}, wrong)
			}
		}
	}
	for _, drawn := range slices.SortedFunc(maps.Keys(p.arrows), compare) {
		if !found[drawn] {
			fail("%s: docs/architecture.md has this arrow, but there is no such import", drawn)
		}
	}
	if circle := p.circle(); circle != nil {
		fail("the arrows of docs/architecture.md make a circle: %s", strings.Join(circle, " → "))
	}
	return violations
}

// wrong returns why the package may not import the other, or "". The other is ours or of another module.
func (p picture) wrong(pkg, imported string, ours bool) string {
	from, to := p.roomOf(pkg), p.roomOf(imported)
	switch {
	case from == to && (from != "" || !ours || isTest(pkg)):
		return ""
	case isTest(pkg):
		if strings.HasPrefix(imported, "cmd/") {
			return "nothing imports cmd"
		}
		return ""
	case ours && isTest(imported):
		return "nothing but test imports test"
	case from == "" || to == "" && ours:
		return "one of them is in no room of docs/architecture.md"
	case to == "" || p.leaves[to] || p.arrows[arrow{from, to}]:
		return ""
	case p.leaves[from]:
		return from + " is a leaf in docs/architecture.md"
	}
	return fmt.Sprintf("docs/architecture.md has no arrow %s", arrow{from, to})
}

// roomOf returns the innermost room of a package, or "" if it is in none.
func (p picture) roomOf(pkg string) (innermost string) {
	for room := range p.rooms {
		if (pkg == room || strings.HasPrefix(pkg, room+"/")) && len(room) > len(innermost) {
			innermost = room
		}
	}
	return innermost
}

// circle returns rooms that the arrows connect in a circle, or nil.
func (p picture) circle() []string {
	done := map[string]bool{}
	var search func(way []string) []string
	search = func(way []string) []string {
		room := way[len(way)-1]
		if before := slices.Index(way, room); before < len(way)-1 {
			return way[before:]
		}
		if done[room] {
			return nil
		}
		for drawn := range p.arrows {
			if drawn.from == room {
				if circle := search(append(slices.Clone(way), drawn.to)); circle != nil {
					return circle
				}
			}
		}
		done[room] = true
		return nil
	}
	for _, room := range slices.Sorted(maps.Keys(p.rooms)) {
		if circle := search([]string{room}); circle != nil {
			return circle
		}
	}
	return nil
}

func isTest(pkg string) bool { return pkg == "test" || strings.HasPrefix(pkg, "test/") }

func compare(a, b arrow) int { return strings.Compare(a.String(), b.String()) }

// readImports returns the imports of each package of this module, in order. Packages of this module are named by their directory.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	for _, file := range sources(t, ".go") {
		if strings.HasSuffix(file.path, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.path, file.text, parser.ImportsOnly)
		require.NoError(t, err)
		pkg := path.Dir(file.path)
		imports[pkg] = slices.Grow(imports[pkg], len(parsed.Imports))
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			imports[pkg] = append(imports[pkg], strings.TrimPrefix(imported, module))
		}
	}
	for pkg, imported := range imports {
		slices.Sort(imported)
		imports[pkg] = slices.Compact(imported)
	}
	return imports
}

func TestPicturesThatAreWrongAreFound(t *testing.T) {
	const picture = "# Architecture\n```mermaid\nflowchart TD\n" + `
    app["cmd/app<br/>wiring"]
    high["cloud/high<br/>above"]
    inner["cloud/high/inner"]
    low["cloud/low<br/>below"]
    core[("example.com/core<br/>not ours")]

    app --> high
    high --> inner
    high --> low
    high --> core
` + "```\n" + "| `cloud/leaf` | a leaf, which the picture leaves out |\n| `cmd/leaf` | the picture leaves it out too |\n"
	imports := func(more ...arrow) map[string][]string {
		imports := map[string][]string{}
		for _, each := range append([]arrow{
			{"cmd/app", "cloud/high"}, {"cmd/app/options", "cloud/high/sub"}, {"cloud/high", "cloud/high/inner"}, {"cloud/high", "cloud/high/sub"},
			{"cloud/high/sub", "cloud/low"}, {"cloud/high", "example.com/core/part"}, {"cloud/high", "example.com/other"}, {"cloud/low", "fmt"},
		}, more...) {
			imports[each.from] = append(imports[each.from], each.to)
		}
		return imports
	}
	undrawn := imports()
	undrawn["cloud/high"] = slices.DeleteFunc(undrawn["cloud/high"], func(to string) bool { return strings.HasPrefix(to, "example.com/core") })
	for name, c := range map[string]struct {
		picture string
		imports map[string][]string
		want    []string
	}{
		"all is as drawn":                {picture, imports(), nil},
		"leaves are imported by all":     {picture, imports(arrow{"cloud/low", "cloud/leaf"}, arrow{"cmd/app", "cmd/leaf"}), nil},
		"tests import all":               {picture, imports(arrow{"test/e2e", "cloud/low"}, arrow{"test/e2e", "test/rig"}, arrow{"test/rig", "fmt"}), nil},
		"an import that is not drawn":    {picture, imports(arrow{"cmd/app", "cloud/low"}), []string{"cmd/app → cloud/low: docs/architecture.md has no arrow"}},
		"an import upwards":              {picture, imports(arrow{"cloud/low", "cloud/high/sub"}), []string{"has no arrow cloud/low → cloud/high"}},
		"of a room within one":           {picture, imports(arrow{"cloud/high/inner", "cloud/low"}), []string{"has no arrow cloud/high/inner → cloud/low"}},
		"of another module":              {picture, imports(arrow{"cloud/low", "example.com/core"}), []string{"has no arrow cloud/low → example.com/core"}},
		"a leaf that imports others":     {picture, imports(arrow{"cloud/leaf", "cloud/low"}), []string{"cloud/leaf is a leaf"}},
		"a test that imports cmd":        {picture, imports(arrow{"test/e2e", "cmd/app"}), []string{"nothing imports cmd"}},
		"an import of test":              {picture, imports(arrow{"cloud/low", "test/rig"}, arrow{"test/rig", "fmt"}), []string{"nothing but test imports test"}},
		"a package that is in no room":   {picture, imports(arrow{"other", "cloud/low"}), []string{"in no room"}},
		"an arrow without an import":     {picture, undrawn, []string{"cloud/high → example.com/core: docs/architecture.md has this arrow"}},
		"arrows that go round in circle": {strings.Replace(picture, "high --> low", "high --> low\n    low --> high", 1), imports(arrow{"cloud/low", "cloud/high"}), []string{"make a circle"}},
	} {
		t.Run(name, func(t *testing.T) {
			violations := readPicture(c.picture).violations(c.imports)
			require.Len(t, violations, len(c.want), "%v", violations)
			for i, want := range c.want {
				assert.Contains(t, violations[i], want)
			}
		})
	}
}
