package serving

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

// Readiness answers /readyz. A replica is ready once it knows that another one leads: it takes pushed notices and waits for the lease. The
// leader is ready once a refresh of the pools and a poll for notices have succeeded. It stays ready if later ones fail, because no other
// replica would do better; the answer says what is wrong. Before either is known a replica is not ready: it may be about to lead, and a
// rollout would end before anybody has read the pools. Readiness is safe for concurrent use.
type Readiness struct {
	standby atomic.Bool
	// board is nil until this process leads.
	board atomic.Pointer[problems.Board]
}

// StandBy tells that another replica leads.
func (r *Readiness) StandBy() { r.standby.Store(true) }

// Lead tells that this process leads from now on, and has its problems on the board.
func (r *Readiness) Lead(board *problems.Board) { r.board.Store(board) }

// ServeHTTP answers in the form of the API server's /readyz?verbose, except that it gives reasons. A problem
// that does not make the replica unready is marked with "[!]".
func (r *Readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
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

// serveBriefly answers whether the replica is ready, without reasons.
func (r *Readiness) serveBriefly(w http.ResponseWriter, _ *http.Request) {
	if _, ready := r.text(); !ready {
		http.Error(w, "not ready", http.StatusInternalServerError)
		return
	}
	fmt.Fprint(w, "ok")
}

func (r *Readiness) text() (text string, ready bool) {
	board := r.board.Load()
	switch {
	case board == nil && !r.standby.Load():
		return "[-]leader failed: it is not known yet which replica leads\nreadyz check failed\n", false
	case board == nil:
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
	for _, active := range report.Problems {
		fmt.Fprintf(&lines, "[!]%s\n", active.Line(active.Source))
	}
	outcome := "passed"
	if !report.Ready {
		outcome = "failed"
	}
	fmt.Fprintf(&lines, "readyz check %s\n", outcome)
	return lines.String(), report.Ready
}
