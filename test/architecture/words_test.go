package architecture

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

// jargon are words that nobody would search for. Each has a word of the field in its place, most of them in the glossary of
// docs/architecture.md.
var jargon = map[string]string{
	"doomed": "reclaiming", "dying": "reclaiming", "evacuee": "reclaiming pod", "evacuees": "reclaiming pods",
	"kin":    "equivalent pending pods",
	"unrest": "interruption penalty",
	"tally":  "sizes", "tallies": "sizes", "census": "sizes, or a count",
	"crew": "pods of a job", "crews": "pods of a job",
	"sibling": "the pods or replicas that are meant", "siblings": "the pods or replicas that are meant",
	"slim": "what is left out", "slimmed": "what is left out",
	"discreet": "what is not shown", "hearsay": "unconfirmed notice",
	"bury": "delete", "buries": "delete", "buried": "deleted",
	"fate": "outcome", "fates": "outcomes", "stake": "what would be lost", "stakes": "what would be lost",
	"story": "end-to-end test", "stories": "end-to-end tests",
	"frugal": "cheapest first", "lookalike": "equivalent", "lookalikes": "equivalent",
}

// jargonIn are the directories in which such words are still in use.
var jargonIn = []string{
	"test/architecture/", // this file
}

func TestJargonIsNotUsed(t *testing.T) {
	used := sets.New[string]()
	for _, file := range append(sources(t, ".go", ".md", ".py", ".yaml", ".tmpl", "Makefile"), scripts(t)...) {
		found := sets.New[string]()
		for _, word := range wordsOf(file.text) {
			if jargon[word] != "" {
				found.Insert(word)
			}
		}
		directory, allowed := directoryWithJargon(file.path)
		if found.Len() > 0 && allowed {
			used.Insert(directory)
			continue
		}
		for word := range found {
			assert.Fail(t, "jargon", "%s says %q: say %q", file.path, word, jargon[word])
		}
	}
	for _, directory := range jargonIn {
		if !used.Has(directory) {
			t.Logf("%s is in jargonIn and need not be any more", directory)
		}
	}
}

func TestWordsOfIdentifiers(t *testing.T) {
	assert.Equal(t, []string{"the", "parse", "pods", "of", "http", "server", "two", "x"}, wordsOf("the parsePods_of HTTPServer, twoX1"))
}

// scripts returns the files of .ci, which sources leaves out.
func scripts(t *testing.T) (files []source) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, ".ci"))
	require.NoError(t, err)
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, ".ci", entry.Name()))
		require.NoError(t, err)
		files = append(files, source{".ci/" + entry.Name(), string(text)})
	}
	require.NotEmpty(t, files)
	return files
}

func directoryWithJargon(path string) (directory string, ok bool) {
	for _, directory := range jargonIn {
		if strings.HasPrefix(path, directory) {
			return directory, true
		}
	}
	return "", false
}

// wordsOf returns the words of a text in lower case, those that identifiers consist of included: parsePods is parse and pods,
// HTTPServer is http and server.
func wordsOf(text string) (words []string) {
	for start := 0; start < len(text); {
		end := start
		for end < len(text) && isUpper(text[end]) {
			end++
		}
		uppers := end - start
		for end < len(text) && isLower(text[end]) {
			end++
		}
		switch lowers := end - start - uppers; {
		case uppers > 1 && lowers > 0: // the last capital begins the next word
			end = start + uppers - 1
		case uppers+lowers == 0:
			start++
			continue
		}
		words = append(words, strings.ToLower(text[start:end]))
		start = end
	}
	return words
}

func isUpper(b byte) bool { return 'A' <= b && b <= 'Z' }
func isLower(b byte) bool { return 'a' <= b && b <= 'z' }
