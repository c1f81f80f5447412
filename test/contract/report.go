package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// report says where the simulator differs from an account. It holds no secret and no id.
type report struct {
	Region string `json:"region"`
	// Spent says that the questions that buy were asked too.
	Spent bool  `json:"spent"`
	Rows  []row `json:"rows"`
	// Same, Differing, Unknown and Failed count rows.
	Same      int `json:"same"`
	Differing int `json:"differing"`
	Unknown   int `json:"unknown"`
	Failed    int `json:"failed"`
}

// row is one question.
type row struct {
	Question string `json:"question"`
	Asks     string `json:"asks"`
	Source   string `json:"source"`
	// Rules are those of the simulator's temper that have the answer.
	Rules     []string `json:"rules,omitempty"`
	Account   answer   `json:"account"`
	Simulator answer   `json:"simulator"`
	// Differences lists the facts that differ.
	Differences []difference `json:"differences,omitempty"`
}

// difference is a fact that both could tell and tell differently.
type difference struct {
	Fact      string `json:"fact"`
	Account   string `json:"account"`
	Simulator string `json:"simulator"`
}

func newReport(asked []question, account, simulator []answer) report {
	var r report
	for n, q := range asked {
		one := row{Question: q.name, Asks: q.asks, Source: q.source, Rules: q.rules, Account: account[n], Simulator: simulator[n]}
		one.Differences = differences(account[n].Facts, simulator[n].Facts)
		r.Rows = append(r.Rows, one)
		switch {
		case one.Account.Error != "" || one.Simulator.Error != "":
			r.Failed++
		case len(one.Differences) > 0:
			r.Differing++
		case len(one.Account.Facts) == 0 || len(one.Simulator.Facts) == 0:
			r.Unknown++
		default:
			r.Same++
		}
	}
	return r
}

// differences compares what both sides could tell.
func differences(account, simulator facts) []difference {
	var found []difference
	for _, fact := range slices.Sorted(maps.Keys(account)) {
		if other, told := simulator[fact]; told && other != account[fact] {
			found = append(found, difference{fact, account[fact], other})
		}
	}
	return found
}

func (r report) exitCode() int {
	switch {
	case r.Failed > 0:
		return exitFailed
	case r.Differing > 0:
		return exitDiffers
	}
	return exitSame
}

func (r report) write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func (r report) print(w io.Writer) {
	for _, one := range r.Rows {
		word, more := "same", ""
		switch {
		case one.Account.Error != "":
			word, more = "FAILED", one.Account.Error
		case one.Simulator.Error != "":
			word, more = "FAILED", "the simulator: "+one.Simulator.Error
		case len(one.Differences) > 0:
			word = "DIFFERS"
			if len(one.Rules) > 0 {
				more = "rules of the simulator: " + strings.Join(one.Rules, ", ")
			}
		case len(one.Account.Facts) == 0:
			word, more = "unknown", one.Account.Unknown
		case len(one.Simulator.Facts) == 0:
			word, more = "unknown", "the simulator: "+one.Simulator.Unknown
		}
		fmt.Fprintf(w, "%-8s %-28s %s\n", word, one.Question, more)
		for _, d := range one.Differences {
			fmt.Fprintf(w, "%9s%s: the account says %q, the simulator %q\n", "", d.Fact, d.Account, d.Simulator)
		}
	}
	fmt.Fprintf(w, "\n%d questions: %d answered alike, %d differ, %d not known, %d failed\n",
		len(r.Rows), r.Same, r.Differing, r.Unknown, r.Failed)
}
