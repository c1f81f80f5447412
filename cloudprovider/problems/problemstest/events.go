// Package problemstest records Events about the autoscaler, for tests.
package problemstest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Events keeps Events as "<reason>: <message>", in order. The zero value is ready, and it is safe for concurrent use.
type Events struct {
	mu       sync.Mutex
	recorded []string
}

// Eventf implements problems.EventSink.
func (e *Events) Eventf(_, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorded = append(e.recorded, reason+": "+fmt.Sprintf(format, args...))
}

// All returns all Events.
func (e *Events) All() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.recorded)
}

// With returns the Events with this reason.
func (e *Events) With(reason string) []string {
	return slices.DeleteFunc(e.All(), func(event string) bool { return !strings.HasPrefix(event, reason+":") })
}

// Take returns the Events since it was last called.
func (e *Events) Take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.recorded
	e.recorded = nil
	return taken
}
