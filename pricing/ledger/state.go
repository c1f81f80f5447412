package ledger

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// version is that of what is saved. A process that reads another one begins anew.
const version = 1

// state is what is saved.
type state struct {
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

// encode returns the totals as compressed JSON: in plain, 2,000 jobs and 1,000 offerings may be more than a ConfigMap holds.
func encode(t *totals) ([]byte, error) {
	saved := state{Version: version, Currency: t.currency, Since: t.since, Until: t.until, Namespaces: t.namespaces}
	for offering, amounts := range t.offerings {
		saved.Offerings = append(saved.Offerings, OfferingLine{offering, amounts})
	}
	for job, amounts := range t.jobs {
		saved.Jobs = append(saved.Jobs, savedJob{JobLine{job, amounts.lastSeen, amounts.Amounts}, amounts.announced})
	}
	var text bytes.Buffer
	compressed := gzip.NewWriter(&text)
	if err := errors.Join(json.NewEncoder(compressed).Encode(saved), compressed.Close()); err != nil {
		return nil, fmt.Errorf("write the cost ledger: %w", err)
	}
	return text.Bytes(), nil
}

// decode returns empty totals for nothing.
func decode(text []byte) (*totals, error) {
	t := newTotals()
	if len(text) == 0 {
		return t, nil
	}
	var saved state
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err == nil {
		err = json.NewDecoder(plain).Decode(&saved)
	}
	if err != nil {
		return nil, fmt.Errorf("read the saved cost ledger: %w", err)
	}
	if saved.Version != version {
		return nil, fmt.Errorf("read the saved cost ledger: its version is %d, and not %d", saved.Version, version)
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
