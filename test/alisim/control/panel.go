// Package control lets tests control and inspect a simulated cloud: from Go as a Panel, over HTTP below /_sim/.
package control

import (
	"errors"
	"fmt"
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// Panel controls one simulated cloud, for tests. Its methods are safe for concurrent use.
type Panel struct {
	requestPanel
	instancePanel
	groupPanel
	marketPanel
	services
}

// services are the parts of a cloud.
type services struct {
	cloud    *cloud.Cloud
	compute  *ecs.Compute
	scaling  *scaling.Engine
	endpoint *protocol.Endpoint
}

// New returns a panel over the services of a cloud.
func New(c *cloud.Cloud, compute *ecs.Compute, scaling *scaling.Engine, endpoint *protocol.Endpoint) *Panel {
	s := services{cloud: c, compute: compute, scaling: scaling, endpoint: endpoint}
	return &Panel{requestPanel{s}, instancePanel{s}, groupPanel{s}, marketPanel{s}, s}
}

// errUnknown says that there is no such thing.
var errUnknown = errors.New("there is no such thing")

func unknown(kind, id string) error { return fmt.Errorf("%s %q: %w", kind, id, errUnknown) }

// Temper returns the rules of the world.
func (p *Panel) Temper() temper.Rules { return p.cloud.Temper }

// State is everything there is.
type State struct {
	Time      time.Time              `json:"time"`
	Region    string                 `json:"region"`
	Groups    []scaling.GroupView    `json:"groups"`
	Instances []scaling.InstanceView `json:"instances"`
	// Temper is the base of the world's temper.
	Temper string `json:"temper"`
	// Requests counts them by action.
	Requests map[string]int `json:"requests"`
}

// State returns everything there is.
func (p *Panel) State() State {
	state := State{Time: p.cloud.Clock.Now(), Region: p.cloud.Region, Temper: p.cloud.Temper.Base, Requests: p.endpoint.RequestCounts()}
	p.locked(func() { state.Groups, state.Instances = p.scaling.Groups(), p.scaling.Instances() })
	return state
}

func (s services) locked(do func()) {
	s.cloud.Lock()
	defer s.cloud.Unlock()
	do()
}
