package ledger

import (
	"fmt"
	"time"

	"gpu-spot-autoscaler/pricing/state"
)

// version is that of what is saved. A process that reads another one begins anew.
const version = 1

// savedTotals is what is saved.
type savedTotals struct {
	Version    int                `json:"version"`
	Currency   string             `json:"currency,omitempty"`
	Since      time.Time          `json:"since"`
	Until      time.Time          `json:"until"`
	Offerings  []OfferingLine     `json:"offerings"`
	Namespaces map[string]Amounts `json:"namespaces"`
	Jobs       []savedJob         `json:"jobs"`
	// Running is for those who read the state without the process, as of RunningAt.
	Running   []RunningLine `json:"running,omitempty"`
	RunningAt time.Time     `json:"runningAt,omitzero"`
}

// RunningLine has the instances of an offering that were paid for when the state was saved.
type RunningLine struct {
	Offering
	// Price is per instance and hour, zero if it is not known.
	Price     float64  `json:"price,omitempty"`
	Instances []string `json:"instances"`
}

// Running is what was paid for when a state was saved.
type Running struct {
	Currency string
	// At is as of when. It is zero if the instances were not known yet.
	At    time.Time
	Lines []RunningLine
}

// RunningOf returns what was paid for when the state was saved, nothing for an empty one.
func RunningOf(text []byte) (Running, error) {
	if len(text) == 0 {
		return Running{}, nil
	}
	saved, err := read(text)
	at := saved.RunningAt
	if at.IsZero() {
		at = saved.Until // saved before it was noted
	}
	return Running{Currency: saved.Currency, At: at, Lines: saved.Running}, err
}

type savedJob struct {
	JobLine
	Announced bool `json:"announced,omitempty"`
}

// encode returns the totals as they are saved.
func encode(t *totals) ([]byte, error) {
	saved := savedTotals{
		Version: version, Currency: t.currency, Since: t.since, Until: t.until, Namespaces: t.namespaces, Running: t.running, RunningAt: t.runningAt,
	}
	for offering, amounts := range t.offerings {
		saved.Offerings = append(saved.Offerings, OfferingLine{offering, amounts})
	}
	for job, amounts := range t.jobs {
		saved.Jobs = append(saved.Jobs, savedJob{JobLine{job, amounts.lastSeen, amounts.Amounts}, amounts.announced})
	}
	text, err := state.Encode(saved)
	if err != nil {
		return nil, fmt.Errorf("write the cost ledger: %w", err)
	}
	return text, nil
}

// decode returns empty totals for nothing.
func decode(text []byte) (*totals, error) {
	t := newTotals()
	if len(text) == 0 {
		return t, nil
	}
	saved, err := read(text)
	if err != nil {
		return nil, err
	}
	t.currency, t.since, t.until = saved.Currency, saved.Since, saved.Until
	t.running, t.runningAt = saved.Running, saved.RunningAt
	for _, line := range saved.Offerings {
		t.offerings[line.Offering] = line.Amounts
	}
	for namespace, amounts := range saved.Namespaces {
		t.namespaces[namespace] = amounts
	}
	for _, line := range saved.Jobs {
		t.jobs[line.Job] = &jobAmounts{Amounts: line.Amounts, lastSeen: line.LastSeen, announced: line.Announced}
	}
	return t, nil
}

func read(text []byte) (saved savedTotals, err error) {
	if err := state.Decode(text, version, &saved); err != nil {
		return savedTotals{}, fmt.Errorf("read the saved cost ledger: %w", err)
	}
	return saved, nil
}
