package walkthrough

import (
	"encoding/xml"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/status/view"
)

// typedCommand is what was typed, and what it has printed.
type typedCommand struct{ typed, printed string }

const (
	terminalMargin, terminalTop = 24, 54
	letterWidth, lineHeight     = 7.5, 18
)

// drawTerminal draws a session at a terminal as an SVG, with the colours of the other pages of the project, light or dark as the reader has it.
// The text is as it was printed.
func drawTerminal(session []typedCommand) string {
	var b strings.Builder
	y, widest := terminalTop, 0
	line := func(class, text string) {
		widest = max(widest, utf8.RuneCountInString(text))
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\"%s xml:space=\"preserve\">%s</text>\n", terminalMargin, y, class, html.EscapeString(text))
		y += lineHeight
	}
	for _, c := range session {
		line(` class="typed"`, "$ "+c.typed)
		for _, printed := range strings.Split(strings.TrimRight(c.printed, "\n"), "\n") {
			line("", printed)
		}
		y += lineHeight / 2
	}
	width := int(float64(widest)*letterWidth) + 2*terminalMargin
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d">
<style>%[3]s
text { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: var(--text); white-space: pre }
.typed { font-weight: 700 }</style>
<rect width="100%%" height="100%%" rx="14" style="fill:var(--card)"/>
<circle cx="26" cy="24" r="5" style="fill:var(--line)"/><circle cx="44" cy="24" r="5" style="fill:var(--line)"/><circle cx="62" cy="24" r="5" style="fill:var(--line)"/>
%[4]s</svg>
`, width, y+8, view.Style, b.String())
}

// wordsOf returns the words in a picture of a terminal that are the same in each run: those with neither digits nor dots in them.
func wordsOf(picture string) sets.Set[string] {
	_, texts, _ := strings.Cut(picture, "</style>")
	words := sets.New[string]()
	for _, word := range strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(texts, " "))) {
		if word = strings.Trim(word, ":,;.()"); !strings.ContainsAny(word, "0123456789.") && !strings.Contains(word, "/wide-") {
			words.Insert(word)
		}
	}
	return words
}

func TestWhatIsComparedOfAPictureIsTheSameInEachRun(t *testing.T) {
	one := drawTerminal([]typedCommand{{"top", "Pod:      default/wide-qtx4n\nSaved:  1.50 CNY (60 %)"}})
	other := drawTerminal([]typedCommand{{"top", "Pod:      default/wide-qtxxn\nSaved:  22.50 CNY (5 %)"}})
	assert.Equal(t, wordsOf(one), wordsOf(other))
	assert.NotEqual(t, wordsOf(one), wordsOf(drawTerminal([]typedCommand{{"top", "Pod:      default/wide-qtx4n\nSpent:  1.50 CNY (60 %)"}})))
}

func TestAPictureOfATerminalHasTheTextAsItWasPrinted(t *testing.T) {
	picture := drawTerminal([]typedCommand{{"explain pod a/b", "Why:  <none> & more\nStep: 1"}})
	assert.NoError(t, xml.Unmarshal([]byte(picture), new(struct{})))
	for _, want := range []string{">$ explain pod a/b<", ">Why:  &lt;none&gt; &amp; more<", ">Step: 1<"} {
		assert.Contains(t, picture, want)
	}
}
