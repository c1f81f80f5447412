// Package state is how what pricing learns and counts outlives the process: as compressed JSON with a version, in a store that the process
// provides.
package state

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Store keeps a state across restarts. Errors of Save for which apierrors.IsConflict holds say that somebody else has saved since.
type Store interface {
	// Load returns what was saved last, nil if nothing was.
	Load(ctx context.Context) ([]byte, error)
	Save(ctx context.Context, state []byte) error
	// SetAside has the next Save keep what was loaded, for the operator to look at.
	SetAside()
}

// envelope is what every state has.
type envelope struct {
	Version int `json:"version"`
}

// Encode returns the value as compressed JSON: in plain, it may be more than a ConfigMap holds. Its JSON has to have a field "version".
func Encode(value any) ([]byte, error) {
	var text bytes.Buffer
	compressed := gzip.NewWriter(&text)
	if err := errors.Join(json.NewEncoder(compressed).Encode(value), compressed.Close()); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

// Decode reads what Encode has returned into the value. The error says if it is of another version.
func Decode(text []byte, version int, value any) error {
	plain, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := json.NewDecoder(plain).Decode(&raw); err != nil {
		return err
	}
	var found envelope
	if err := json.Unmarshal(raw, &found); err != nil {
		return err
	}
	if found.Version != version {
		return fmt.Errorf("its version is %d, and not %d", found.Version, version)
	}
	return json.Unmarshal(raw, value)
}
