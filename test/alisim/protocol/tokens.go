package protocol

import (
	"maps"
	"net/url"
	"sync"
	"time"
)

// maxClientToken is how long a ClientToken may be, in ASCII characters.
const maxClientToken = 64

// tokenLife is how long a ClientToken is remembered, unless Options say otherwise.
const tokenLife = 24 * time.Hour

// clientTokens remembers what was answered under a ClientToken, so that a request sent again does nothing again. Only
// accepted requests are remembered.
type clientTokens struct {
	// mu is held while a request is carried out: two that bring the same token must not both be new.
	mu      sync.Mutex
	life    time.Duration
	answers map[string]answered
	// seen lists keys in the order they came.
	seen []string
}

type answered struct {
	asked string
	body  Reply
	at    time.Time
}

// once carries the request out, or returns the earlier answer to the same one.
func (t *clientTokens) once(a Action, r *Request) (Reply, error) {
	token := r.Get("ClientToken")
	if token == "" {
		return a.Handle(r)
	}
	if !validToken(token) {
		return nil, BadRequest("InvalidParameter", "ClientToken has more than %d characters, or one that is not ASCII.", maxClientToken)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forget(r.Now)
	key, asked := r.Action+"/"+token, r.essence()
	if earlier, known := t.answers[key]; known {
		if earlier.asked != asked {
			return nil, BadRequest("IdempotentParameterMismatch",
				"The request uses the same client token as a previous, but non-identical request.")
		}
		return earlier.body, nil
	}
	body, err := a.Handle(r)
	if err == nil {
		t.answers[key] = answered{asked, body, r.Now}
		t.seen = append(t.seen, key)
	}
	return body, err
}

func (t *clientTokens) forget(now time.Time) {
	for len(t.seen) > 0 && now.Sub(t.answers[t.seen[0]].at) > t.life {
		delete(t.answers, t.seen[0])
		t.seen = t.seen[1:]
	}
}

func validToken(token string) bool {
	for i := range len(token) {
		if token[i] > 0x7e || token[i] < 0x20 {
			return false
		}
	}
	return len(token) <= maxClientToken
}

// essence is what two requests have in common that ask for the same: their parameters without those that the
// protocol adds to each of them anew.
func (r *Request) essence() string {
	own := url.Values(maps.Clone(r.Parameters))
	for _, name := range []string{
		"Signature", "SignatureNonce", "SignatureMethod", "SignatureVersion", "SignatureType", "Timestamp", "AccessKeyId",
		"SecurityToken", "Format", "RegionId",
	} {
		own.Del(name)
	}
	return own.Encode()
}
