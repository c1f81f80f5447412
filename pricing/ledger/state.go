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
}

type savedJob struct {
	JobLine
	Announced bool `json:"announced,omitempty"`
}

// encode returns the totals as they are saved.
func encode(t *totals) ([]byte, error) {
	saved := savedTotals{Version: version, Currency: t.currency, Since: t.since, Until: t.until, Namespaces: t.namespaces}
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
	var saved savedTotals
	if err := state.Decode(text, version, &saved); err != nil {
		return nil, fmt.Errorf("read the saved cost ledger: %w", err)
	}
	t.currency, t.since, t.until = saved.Currency, saved.Since, saved.Until
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
