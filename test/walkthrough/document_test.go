package walkthrough

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

const (
	root = "../.."
	// translations is where the translation of docs/x.md is, under the same name; that of README.md is there, too.
	translations = "docs/zh-CN"
	// index is the translation of docs/README.md, whose name that of README.md has taken.
	index = "manual.md"
)

// document is what of a page is compared with its translation, or run.
type document struct {
	// path is that in the repository.
	path string
	// levels are those of the headings, in order.
	levels []int
	blocks []block
	// keys are the cells in the first column of a table that are nothing but code, in order.
	keys []string
	// rows are how many rows each table has, in order.
	rows []int
	// names are the pieces of code in the prose and in the tables, in the order of the alphabet.
	names []string
	// links are where the links lead, see target, in the order of the alphabet.
	links []string
}

// block is a block of code.
type block struct {
	// language is empty for indented blocks.
	language string
	text     string
	// section is the heading above it, and line the number of its first line.
	section string
	line    int
}

// isShell returns whether the block is for a shell.
func (b block) isShell() bool { return b.language == "sh" || b.language == "console" }

var (
	heading = regexp.MustCompile(`^(#+) (.+)$`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	cell    = regexp.MustCompile(`^\|([^|]*)\|`)
	span    = regexp.MustCompile("`[^`]+`")
	item    = regexp.MustCompile(`^(-|\d+\.) `)
	comment = regexp.MustCompile(`(^|\s+)#(\s.*)?$`)
)

// readDocument reads a page of the repository.
func readDocument(t *testing.T, page string) document {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	require.NoError(t, err)
	return parse(page, string(text))
}

func parse(page, text string) document {
	d := document{path: page}
	var prose strings.Builder // a piece of code may go on in the next line
	section, fence, inItem, blank := "", (*block)(nil), false, true
	inTable := false
	indented := false // whether the last block is an indented one that may go on
	for number, line := range strings.Split(text, "\n") {
		switch {
		case fence != nil && strings.TrimSpace(line) == "```":
			d.blocks = append(d.blocks, *fence)
			fence = nil
			continue
		case fence != nil:
			fence.text += line + "\n"
			continue
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fence = &block{language: strings.TrimPrefix(strings.TrimSpace(line), "```"), section: section, line: number + 2}
			indented = false
			continue
		case strings.HasPrefix(line, indent(inItem)) && (blank || indented):
			if !indented {
				d.blocks = append(d.blocks, block{section: section, line: number + 1})
			}
			d.blocks[len(d.blocks)-1].text += strings.TrimPrefix(line, indent(inItem)) + "\n"
			indented, blank = true, false
			continue
		}
		if isRow := cell.MatchString(line); isRow && inTable {
			d.rows[len(d.rows)-1]++
		} else if inTable = isRow; isRow {
			d.rows = append(d.rows, 1)
		}
		blank = strings.TrimSpace(line) == ""
		if blank {
			continue
		}
		indented = false
		prose.WriteString(strings.TrimSpace(line) + " ")
		if line[0] != ' ' {
			inItem = item.MatchString(line)
		}
		if match := heading.FindStringSubmatch(line); match != nil {
			section = match[2]
			d.levels = append(d.levels, len(match[1]))
		}
		if match := cell.FindStringSubmatch(line); match != nil && isCode(match[1]) {
			d.keys = append(d.keys, strings.Join(span.FindAllString(match[1], -1), " "))
		}
		for _, match := range link.FindAllStringSubmatch(line, -1) {
			if to := target(page, match[1]); to != "" {
				d.links = append(d.links, to)
			}
		}
	}
	d.names = span.FindAllString(prose.String(), -1)
	slices.Sort(d.names)
	slices.Sort(d.links)
	return d
}

// indent returns how lines of code begin that have no fence. In a list they are further to the right: "1. " takes three letters.
func indent(inItem bool) string {
	if inItem {
		return "       "
	}
	return "    "
}

// isCode returns whether a cell has nothing but code, in any number of pieces.
func isCode(text string) bool {
	rest := span.ReplaceAllString(text, "")
	return rest != text && strings.IndexFunc(rest, func(r rune) bool { return !unicode.IsSpace(r) && !unicode.IsPunct(r) }) < 0
}

// original returns the page of which this is the translation, and whether it is one.
func original(page string) (string, bool) {
	name, isTranslation := strings.CutPrefix(page, translations+"/")
	switch {
	case !isTranslation:
		return page, false
	case name == "README.md":
		return name, true
	case name == index:
		return "docs/README.md", true
	}
	return path.Join("docs", name), true
}

// target returns where a link leads that is the same in a page and in its translation: the page, or its original; for the documentation of
// Alibaba Cloud, which has translations of its own, only that it leads there; and whether it leads to a heading, whose name differs. It is
// empty for a link to the page itself in the other language.
func target(from, to string) string {
	if strings.Contains(to, "://") {
		u, err := url.Parse(to)
		if err == nil && (strings.HasPrefix(u.Host, "help.aliyun.") || strings.HasSuffix(u.Host, "alibabacloud.com") && strings.HasPrefix(u.Path, "/help")) {
			return "the documentation of Alibaba Cloud"
		}
		return to
	}
	file, anchor, _ := strings.Cut(to, "#")
	if file == "" {
		file = from
	} else {
		file = path.Join(path.Dir(from), file)
	}
	page, _ := original(file)
	own, _ := original(from)
	switch {
	case anchor != "":
		return page + "#"
	case page == own:
		return ""
	}
	return page
}

// code returns the block without its comments, which a translation has in its language.
func (b block) code() string {
	var lines []string
	for _, line := range strings.Split(b.text, "\n") {
		if bare := strings.TrimRight(comment.ReplaceAllString(line, ""), " "); bare != "" || line == "" {
			lines = append(lines, bare)
		}
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
