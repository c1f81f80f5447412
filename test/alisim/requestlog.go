package alisim

import (
	"errors"
	"slices"
)

// maxLogged bounds the log; the older half goes when it is full. Counts go on.
const maxLogged = 20000

// requestLog keeps the requests that came in. Guarded by the cloud's mutex.
type requestLog struct {
	requests []RequestView
	counts   map[string]int
}

// unlogged are parameters that are secret, or that the protocol adds to every request.
var unlogged = []string{
	"Signature", "SignatureNonce", "SignatureMethod", "SignatureVersion", "SignatureType", "SecurityToken", "OIDCToken",
	"Timestamp", "Format", "Version", "Action",
}

func (c *cloud) record(r *request, err error) {
	v := RequestView{Time: r.now, Service: r.service, Action: r.action, Parameters: map[string]string{}, RequestID: r.id}
	for name, values := range r.parameters {
		if !slices.Contains(unlogged, name) {
			v.Parameters[name] = values[0]
		}
	}
	var refusal *apiError
	switch {
	case err == errHangUp:
		v.Code = "-"
	case errors.As(err, &refusal):
		v.Code = refusal.Code
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.log.requests) >= maxLogged {
		c.log.requests = slices.Clone(c.log.requests[maxLogged/2:])
	}
	c.log.requests = append(c.log.requests, v)
	c.log.counts[r.action]++
}
