// Package problems keeps what stands between the autoscaler and its work until somebody mends it, and says it: by Events, in
// metrics, and to whoever asks.
package problems

import (
	"cmp"
	"fmt"
	"strings"
)

// Source is the work that a problem was met in.
type Source string

const (
	// Refresh is the reading of pools and instances, which all purchases go by.
	Refresh Source = "refresh"
	// Poll is the asking for reclaim notices.
	Poll Source = "poll"
	// Pools is the look at what was read of each pool.
	Pools Source = "pools"
)

// Problem is something that stays as it is until somebody, or time, mends it.
type Problem struct {
	// Pool is the scaling group; empty where all are concerned.
	Pool string
	// Reason is one word for it: a label of metrics, and what docs/operations.md explains it under.
	Reason string
	// Cause says what is wrong, without a full stop; Mend is a sentence that says what to do, empty where nothing can be said.
	Cause, Mend string
	// Transient: it often passes by itself, so that it is told only when it has stood for a while.
	Transient bool
}

// Text is the cause and what to do about it.
func (p Problem) Text() string {
	if p.Mend == "" {
		return p.Cause
	}
	return strings.TrimSuffix(p.Cause, ".") + ". " + p.Mend
}

// eventReasons are those of the Events that tell of problems.
var eventReasons = map[Source]string{Refresh: "SpotRefreshFailed", Poll: "SpotReclaimPollFailed", Pools: "SpotPoolProblem"}

// Line is one line that says all, as /readyz has it: source, scaling group, reason, text.
func (p Problem) Line(source Source) string {
	head := string(source)
	if p.Pool != "" {
		head += " " + p.Pool
	}
	return head + " " + p.Reason + ": " + p.Text()
}

// message is what an Event says.
func (p Problem) message(source Source) string {
	switch source {
	case Refresh:
		return fmt.Sprintf("The pools cannot be read (%s): %s", p.Reason, p.Text())
	case Poll:
		return fmt.Sprintf("Reclaim notices cannot be asked for (%s): %s", p.Reason, p.Text())
	}
	if p.Pool == "" {
		return fmt.Sprintf("Pools (%s): %s", p.Reason, p.Text())
	}
	return fmt.Sprintf("Pool %s (%s): %s", p.Pool, p.Reason, p.Text())
}

func (s Standing) compare(other Standing) int {
	return cmp.Or(cmp.Compare(s.Source.rank(), other.Source.rank()), cmp.Compare(s.Pool, other.Pool), cmp.Compare(s.Reason, other.Reason))
}

// rank puts first what keeps all from working.
func (s Source) rank() int {
	switch s {
	case Refresh:
		return 0
	case Poll:
		return 1
	}
	return 2
}
