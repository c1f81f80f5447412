package protocol

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxLogged bounds the log; the older half goes when it is full. Counts go on.
const maxLogged = 20000

// requestLog keeps the requests that came in.
type requestLog struct {
	mu       sync.Mutex
	requests []RequestView
	counts   map[string]int
	// permissions are those that a policy gave, such as "ess:RemoveInstances", and that were used.
	permissions map[string]bool
}

func newRequestLog() requestLog {
	return requestLog{counts: map[string]int{}, permissions: map[string]bool{}}
}

// unlogged are parameters that are secret, or that the protocol adds to every request.
var unlogged = []string{
	"Signature", "SignatureNonce", "SignatureMethod", "SignatureVersion", "SignatureType", "SecurityToken", "OIDCToken",
	"Timestamp", "Format", "Version", "Action",
}

// RequestView is a request that came in.
type RequestView struct {
	Time    time.Time `json:"time"`
	Service string    `json:"service"`
	Action  string    `json:"action"`
	// Parameters are without the signature, the token and the secret ones.
	Parameters map[string]string `json:"parameters"`
	// Code is the error code of the answer, empty for success; "-" where no answer was given.
	Code      string `json:"code,omitempty"`
	RequestID string `json:"requestId"`
}

func (l *requestLog) record(r *Request, err error) {
	v := RequestView{Time: r.Now, Service: r.Service, Action: r.Action, Parameters: map[string]string{}, RequestID: r.ID}
	for name, values := range r.Parameters {
		if !slices.Contains(unlogged, name) {
			v.Parameters[name] = values[0]
		}
	}
	var refusal *Error
	switch {
	case err == errHangUp:
		v.Code = "-"
	case errors.As(err, &refusal):
		v.Code = refusal.Code
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.requests) >= maxLogged {
		l.requests = slices.Clone(l.requests[maxLogged/2:])
	}
	l.requests = append(l.requests, v)
	l.counts[r.Action]++
}

// Requests returns the latest requests, oldest first: all, or those of the named actions.
func (e *Endpoint) Requests(actions ...string) []RequestView {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	list := []RequestView{}
	for _, r := range e.log.requests {
		if len(actions) == 0 || slices.Contains(actions, r.Action) {
			list = append(list, r)
		}
	}
	return list
}

// RequestCounts returns how many requests of each action came since the world began.
func (e *Endpoint) RequestCounts() map[string]int {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return maps.Clone(e.log.counts)
}

func (l *requestLog) permit(permission string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.permissions[permission] = true
}

// PermissionsUsed returns those of the policy that requests have made use of, such as "ess:RemoveInstances", sorted.
func (e *Endpoint) PermissionsUsed() []string {
	e.log.mu.Lock()
	defer e.log.mu.Unlock()
	return slices.Sorted(maps.Keys(e.log.permissions))
}
