package alisim

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
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
	// FaultIgnoreTargeting carries the request out as if it named no type, vSwitch or spot strategy.
	FaultIgnoreTargeting FaultKind = "ignore-targeting"
)

// FaultKinds are all kinds.
var FaultKinds = []FaultKind{
	FaultLatency, FaultError, FaultThrottle, FaultLostReply, FaultNotJSON, FaultPartialFill, FaultIgnoreTargeting,
}

// Fault makes requests go wrong.
type Fault struct {
	// Action that is hit, such as "ScaleWithAdjustment"; empty means every action.
	Action string `json:"action,omitempty"`
	// ScalingGroupID restricts the fault to requests that name this group; empty means all.
	ScalingGroupID string    `json:"scalingGroupId,omitempty"`
	Kind           FaultKind `json:"kind"`
	// Code is Alibaba's error code, for FaultError (default InternalError) and FaultPartialFill.
	Code string `json:"code,omitempty"`
	// Status is the HTTP status, for FaultError (default 500) and FaultNotJSON (default 502).
	Status int `json:"status,omitempty"`
	// Latency is for FaultLatency, and in JSON a number of nanoseconds.
	Latency time.Duration `json:"latency,omitempty"`
	// Count is how many instances come, for FaultPartialFill.
	Count int `json:"count,omitempty"`
	// Times is how many requests are hit; 0 means all until the faults are cleared.
	Times int `json:"times,omitempty"`
}

// errHangUp means that the connection is to be closed without an answer.
var errHangUp = errors.New("hang up")

func (f Fault) validate() error {
	if !slices.Contains(FaultKinds, f.Kind) {
		return fmt.Errorf("unknown fault kind %q", f.Kind)
	}
	known := f.Action == ""
	for _, s := range services {
		_, here := s.actions[f.Action]
		known = known || here
	}
	if !known {
		return fmt.Errorf("unknown action %q", f.Action)
	}
	return nil
}

// faults are those that hit one request, at most one of a kind.
type faults map[FaultKind]Fault

func (f faults) has(kind FaultKind) bool {
	_, there := f[kind]
	return there
}

// refusal is the answer that the faults force, nil if they do not.
func (f faults) refusal() error {
	if fault, there := f[FaultError]; there {
		return refuse(orElse(fault.Status, http.StatusInternalServerError), orElse(fault.Code, "InternalError"),
			"The request has failed because of a simulated fault.")
	}
	if f.has(FaultThrottle) {
		return badRequest(codeThrottled, "Request was denied due to user flow control.")
	}
	return nil
}

func (f Fault) hits(r *request) bool {
	return (f.Action == "" || f.Action == r.action) && (f.ScalingGroupID == "" || r.names(f.ScalingGroupID))
}

// names says whether the request names the scaling group.
func (r *request) names(group string) bool {
	for name, values := range r.parameters {
		if strings.HasPrefix(name, "ScalingGroupId") && values[0] == group {
			return true
		}
	}
	return false
}

// takeFaults returns the faults that hit the request, the first of each kind, and counts them.
func (c *cloud) takeFaults(r *request) faults {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := faults{}
	c.faults = slices.DeleteFunc(c.faults, func(f *Fault) bool {
		if taken.has(f.Kind) || !f.hits(r) {
			return false
		}
		taken[f.Kind] = *f
		f.Times--
		return f.Times == 0
	})
	return taken
}
