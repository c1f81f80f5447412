package protocol

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// FaultKind is a way in which a request goes wrong.
type FaultKind string

const (
	// FaultLatency answers late, and rightly.
	FaultLatency FaultKind = "latency"
	// FaultError refuses with Code and Status, and does nothing.
	FaultError FaultKind = "error"
	// FaultThrottle refuses with Throttling.User.
	FaultThrottle FaultKind = "throttle"
	// FaultLostReply does the work and closes the connection instead of answering.
	FaultLostReply FaultKind = "lost-reply"
	// FaultNotJSON answers like a broken gateway, with HTML and Status (default 502), and does nothing.
	FaultNotJSON FaultKind = "not-json"
	// FaultPartialFill lets the scaling activity of the request create only Count instances, and end with Code (default
	// OperationDenied.NoStock).
	FaultPartialFill FaultKind = "partial-fill"
	// FaultRollBack releases Count of the instances that the scaling activity of the request created, and ends it with
	// Code (default OperationFailed.RolledBack).
	FaultRollBack FaultKind = "roll-back"
	// FaultIgnoreTargeting carries the request out as if it named no type, vSwitch or spot strategy.
	FaultIgnoreTargeting FaultKind = "ignore-targeting"
)

// FaultKinds are all kinds.
var FaultKinds = []FaultKind{
	FaultLatency, FaultError, FaultThrottle, FaultLostReply, FaultNotJSON, FaultPartialFill, FaultRollBack, FaultIgnoreTargeting,
}

// Fault makes requests go wrong.
type Fault struct {
	// Action that is hit, such as "ScaleWithAdjustment"; empty means every action.
	Action string `json:"action,omitempty"`
	// ScalingGroupID restricts the fault to requests that name this group; empty means all.
	ScalingGroupID string    `json:"scalingGroupId,omitempty"`
	Kind           FaultKind `json:"kind"`
	// Code is Alibaba's error code, for FaultError (default InternalError), FaultPartialFill and FaultRollBack.
	Code string `json:"code,omitempty"`
	// Status is the HTTP status, for FaultError (default 500) and FaultNotJSON (default 502).
	Status int `json:"status,omitempty"`
	// Latency is for FaultLatency, and in JSON a number of nanoseconds.
	Latency time.Duration `json:"latency,omitempty"`
	// Count is how many instances come, for FaultPartialFill, or go again, for FaultRollBack.
	Count int `json:"count,omitempty"`
	// Times is how many requests are hit; 0 means all until the faults are cleared.
	Times int `json:"times,omitempty"`
}

// errHangUp means that the connection is to be closed without an answer.
var errHangUp = errors.New("hang up")

// switchboard holds the faults that are on.
type switchboard struct {
	mu sync.Mutex
	on []*Fault
}

// Fault switches a fault on.
func (e *Endpoint) Fault(f Fault) error {
	if !slices.Contains(FaultKinds, f.Kind) {
		return fmt.Errorf("unknown fault kind %q", f.Kind)
	}
	known := f.Action == ""
	for _, s := range e.services {
		_, here := s.Actions[f.Action]
		known = known || here
	}
	if !known {
		return fmt.Errorf("unknown action %q", f.Action)
	}
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	e.faults.on = append(e.faults.on, &f)
	return nil
}

// FaultsOn returns the faults that are on.
func (e *Endpoint) FaultsOn() []Fault {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	list := []Fault{}
	for _, f := range e.faults.on {
		list = append(list, *f)
	}
	return list
}

// ClearFaults switches all faults off.
func (e *Endpoint) ClearFaults() {
	e.faults.mu.Lock()
	defer e.faults.mu.Unlock()
	e.faults.on = nil
}

// Faults are those that hit one request, at most one of a kind.
type Faults map[FaultKind]Fault

// Has says whether there is one of the kind.
func (f Faults) Has(kind FaultKind) bool {
	_, there := f[kind]
	return there
}

// refusal is the answer that the faults force, nil if they do not.
func (f Faults) refusal() error {
	if fault, there := f[FaultError]; there {
		return Refuse(cmp.Or(fault.Status, http.StatusInternalServerError), cmp.Or(fault.Code, "InternalError"),
			"The request has failed because of a simulated fault.")
	}
	if f.Has(FaultThrottle) {
		return throttled()
	}
	return nil
}

func (f Fault) hits(r *Request) bool {
	return (f.Action == "" || f.Action == r.Action) && (f.ScalingGroupID == "" || r.names(f.ScalingGroupID))
}

// names says whether the request names the scaling group.
func (r *Request) names(group string) bool {
	for name, values := range r.Parameters {
		if strings.HasPrefix(name, "ScalingGroupId") && values[0] == group {
			return true
		}
	}
	return false
}

// take returns the faults that hit the request, the first of each kind, and counts them.
func (s *switchboard) take(r *Request) Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := Faults{}
	s.on = slices.DeleteFunc(s.on, func(f *Fault) bool {
		if taken.Has(f.Kind) || !f.hits(r) {
			return false
		}
		taken[f.Kind] = *f
		f.Times--
		return f.Times == 0
	})
	return taken
}
