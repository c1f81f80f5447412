package control

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/sts"
)

// requestPanel makes requests fail and tells which came in.
type requestPanel struct{ services }

// Fault switches a fault on.
func (p requestPanel) Fault(f protocol.Fault) error { return p.endpoint.Fault(f) }

// Faults returns those that are on.
func (p requestPanel) Faults() []protocol.Fault { return p.endpoint.FaultsOn() }

// ClearFaults switches all faults off.
func (p requestPanel) ClearFaults() { p.endpoint.ClearFaults() }

// Skew has the clocks of all clients go wrong: they are behind the cloud's by so much, or ahead where it is negative.
func (p requestPanel) Skew(behind time.Duration) { p.endpoint.Skew(behind) }

// AddKey lets a temporary key sign until it expires.
func (p requestPanel) AddKey(id, secret, token string, expires time.Time) {
	p.endpoint.Keys.Add(id, protocol.Key{Secret: secret, Token: token, Expires: expires, Caller: sts.Owner(p.cloud.AccountID)})
}

// Requests returns the latest requests, oldest first: all, or those of the named actions.
func (p requestPanel) Requests(actions ...string) []protocol.RequestView {
	return p.endpoint.Requests(actions...)
}

// RequestCounts returns how many requests of each action came since the world began.
func (p requestPanel) RequestCounts() map[string]int { return p.endpoint.RequestCounts() }

// PermissionsUsed returns those of the world's RAM policy that requests have made use of, such as "ess:RemoveInstances",
// sorted.
func (p requestPanel) PermissionsUsed() []string { return p.endpoint.PermissionsUsed() }
