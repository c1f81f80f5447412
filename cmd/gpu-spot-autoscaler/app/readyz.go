package app

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

// readiness answers /readyz. A replica that does not lead is ready, since it takes pushed notices and waits for the lease. One
// that leads is so once a refresh of the pools and a poll for notices have succeeded, and remains so: what stands in the way of
// later ones is told, but no other replica would do better.
type readiness struct {
	// board is nil until this process leads.
	board atomic.Pointer[problems.Board]
}

// lead says that this process leads, with what it knows of its work.
func (r *readiness) lead(board *problems.Board) { r.board.Store(board) }

// ServeHTTP answers in the form of the API server's /readyz?verbose, except that it gives reasons. What stands without making
// the replica unready is marked "[!]".
func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	text, ready := r.text()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !ready {
		w.WriteHeader(http.StatusInternalServerError)
	} else if _, verbose := request.URL.Query()["verbose"]; !verbose {
		text = "ok"
	}
	fmt.Fprint(w, text)
}

// serveBriefly says whether the replica is ready, and not why.
func (r *readiness) serveBriefly(w http.ResponseWriter, _ *http.Request) {
	if _, ready := r.text(); !ready {
		http.Error(w, "not ready", http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

func (r *readiness) text() (text string, ready bool) {
	board := r.board.Load()
	if board == nil {
		return "[+]leader ok: standby, another replica leads\nreadyz check passed\n", true
	}
	var lines strings.Builder
	report := board.Report()
	for _, source := range []problems.Source{problems.Refresh, problems.Poll} {
		if at, done := report.Firsts[source]; done {
			fmt.Fprintf(&lines, "[+]%s ok: since %s\n", source, at.UTC().Format("2006-01-02T15:04:05Z"))
		} else {
			fmt.Fprintf(&lines, "[-]%s failed: has not succeeded yet\n", source)
		}
	}
	for _, standing := range report.Problems {
		fmt.Fprintf(&lines, "[!]%s\n", standing.Line(standing.Source))
	}
	outcome := "passed"
	if !report.Ready {
		outcome = "failed"
	}
	fmt.Fprintf(&lines, "readyz check %s\n", outcome)
	return lines.String(), report.Ready
}
