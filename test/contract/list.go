package main

import (
	"fmt"
	"strings"
)

// listing is the table of all questions, as docs/contract.md has it.
func listing() string {
	var b strings.Builder
	for _, part := range []struct {
		title  string
		spends bool
	}{{"Those that read", false}, {"Those that buy", true}} {
		fmt.Fprintf(&b, "### %s\n\n| question | asks | why | the simulator answers | source | has at most |\n|---|---|---|---|---|---|\n", part.title)
		for _, q := range questions() {
			if q.spends.anything() == part.spends {
				fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", q.name, q.asks, q.matters, cell(q.believed.String()), cell(q.source), q.spends)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell keeps a text within its cell.
func cell(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
