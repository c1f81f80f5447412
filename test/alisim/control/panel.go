// Package control steers a simulated cloud and looks into it: from Go as a Panel, over HTTP below /_sim/.
package control

import (
	"errors"
	"fmt"
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/ess"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/sts"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// Panel steers one cloud. Its methods are safe for concurrent use.
type Panel struct {
	cloud    *cloud.Cloud
	compute  *ecs.Compute
	scaling  *ess.Scaling
	endpoint *protocol.Endpoint
}

// New returns a panel over the services of a cloud.
func New(c *cloud.Cloud, compute *ecs.Compute, scaling *ess.Scaling, endpoint *protocol.Endpoint) *Panel {
	return &Panel{cloud: c, compute: compute, scaling: scaling, endpoint: endpoint}
}

// errUnknown says that there is no such thing.
var errUnknown = errors.New("there is no such thing")

func unknown(kind, id string) error { return fmt.Errorf("%s %q: %w", kind, id, errUnknown) }

// Fault switches a fault on.
func (p *Panel) Fault(f protocol.Fault) error { return p.endpoint.Fault(f) }

// Faults returns those that are on.
func (p *Panel) Faults() []protocol.Fault { return p.endpoint.FaultsOn() }

// ClearFaults switches all faults off.
func (p *Panel) ClearFaults() { p.endpoint.ClearFaults() }

// Skew has the clocks of all clients go wrong: they are behind the cloud's by so much, or ahead where it is negative.
func (p *Panel) Skew(behind time.Duration) { p.endpoint.Skew(behind) }

// AddKey lets a temporary key sign until it expires.
func (p *Panel) AddKey(id, secret, token string, expires time.Time) {
	p.endpoint.Keys.Add(id, protocol.Key{Secret: secret, Token: token, Expires: expires, Caller: sts.Owner(p.cloud.AccountID)})
}

// Requests returns the latest requests, oldest first: all, or those of the named actions.
func (p *Panel) Requests(actions ...string) []protocol.RequestView {
	return p.endpoint.Requests(actions...)
}

// RequestCounts returns how many requests of each action came since the world began.
func (p *Panel) RequestCounts() map[string]int { return p.endpoint.RequestCounts() }

// PermissionsUsed returns those of the world's RAM policy that requests have made use of, such as "ess:RemoveInstances",
// sorted.
func (p *Panel) PermissionsUsed() []string { return p.endpoint.PermissionsUsed() }

// Reclaim gives a spot instance its notice now, protected or not.
func (p *Panel) Reclaim(instanceID string) error {
	return p.withInstance(instanceID, func(i *ecs.Instance) { p.compute.Reclaim(i, p.cloud.Clock.Now()) })
}

// Withdraw takes the notice of an instance back: it lives on as if there had been none.
func (p *Panel) Withdraw(instanceID string) error {
	recycling := false
	err := p.withInstance(instanceID, func(i *ecs.Instance) {
		if recycling = i.Recycling(); recycling {
			p.compute.Withdraw(i)
		}
	})
	if err == nil && !recycling {
		return unknown("instance with a notice", instanceID)
	}
	return err
}

// StopInstance makes an instance unhealthy, as if it had been stopped from inside.
func (p *Panel) StopInstance(instanceID string) error {
	return p.withInstance(instanceID, p.compute.Stop)
}

// SetLifecycle moves an instance between InService, Protected, Standby and Stopped, as a user does who protects it, takes
// it out of service or sends it into the economical mode.
func (p *Panel) SetLifecycle(instanceID, state string) (err error) {
	p.locked(func() { err = p.scaling.SetLifecycle(instanceID, state) })
	return err
}

// Hang keeps an instance from stopping by itself when it is removed; what becomes of it the temper decides.
func (p *Panel) Hang(instanceID string) error { return p.obstruct(instanceID, p.scaling.Hang) }

// Stay makes the next try to release an instance fail.
func (p *Panel) Stay(instanceID string) error { return p.obstruct(instanceID, p.scaling.Stay) }

// SetStock says how many spot instances of a type a zone carries at once, running ones included; market.Unlimited
// lifts the bound. Running instances beyond it are reclaimed once their protected time is over.
func (p *Panel) SetStock(instanceType, zone string, stock int) {
	p.locked(func() { p.compute.SetStock(instanceType, zone, stock) })
}

// SetOnDemandStock says how many pay-as-you-go instances of a type a zone carries at once; running ones stay.
func (p *Panel) SetOnDemandStock(instanceType, zone string, stock int) {
	p.locked(func() { p.compute.SetOnDemandStock(instanceType, zone, stock) })
}

// SetPrice says what an instance-hour costs, in CNY. Running instances whose price limit is passed are reclaimed once
// their protected time is over.
func (p *Panel) SetPrice(instanceType, zone string, spot, onDemand float64) {
	p.locked(func() { p.compute.SetPrice(instanceType, zone, spot, onDemand) })
}

// Quote returns what the market says of a type in a zone now. Its capacity includes the instances that run.
func (p *Panel) Quote(instanceType, zone string) market.Quote {
	return p.compute.Market.Quote(instanceType, zone, p.cloud.Clock.Now())
}

// MarketHour is how long an hour of market time takes, and the protected first hour of a spot instance.
func (p *Panel) MarketHour() time.Duration { return p.compute.Timeline.Hour() }

// Temper returns the rules of the world.
func (p *Panel) Temper() temper.Rules { return p.cloud.Temper }

// PutGroup adds a pool, or changes one without touching its instances.
func (p *Panel) PutGroup(pool ess.Pool) error {
	if err := pool.Validate(p.compute.Sells, p.compute.HasVSwitch); err != nil {
		return err
	}
	p.locked(func() { p.scaling.PutGroup(pool) })
	return nil
}

// DeleteGroup releases all instances of a pool at once and forgets it.
func (p *Panel) DeleteGroup(id string) error {
	return p.withGroup(id, func() bool { return p.scaling.DeleteGroup(id) })
}

// SetGroupTags replaces the tags of a scaling group.
func (p *Panel) SetGroupTags(id string, tags map[string]string) error {
	return p.withGroup(id, func() bool { return p.scaling.SetGroupTags(id, tags) })
}

// SetConfigurationTags replaces the tags of a scaling configuration.
func (p *Panel) SetConfigurationTags(id string, tags map[string]string) error {
	return p.withGroup(id, func() bool { return p.scaling.SetConfigurationTags(id, tags) })
}

// Group returns a scaling group; false where there is none of that ID.
func (p *Panel) Group(id string) (v ess.GroupView, known bool) {
	p.locked(func() { v, known = p.scaling.Group(id) })
	return v, known
}

// Instances returns all instances, oldest first, those included that are released but still members of their group.
func (p *Panel) Instances() (list []ess.InstanceView) {
	p.locked(func() { list = p.scaling.Instances() })
	return list
}

// Instance returns an instance; false where there is none of that ID.
func (p *Panel) Instance(id string) (v ess.InstanceView, known bool) {
	p.locked(func() { v, known = p.scaling.Instance(id) })
	return v, known
}

// State is everything there is.
type State struct {
	Time      time.Time          `json:"time"`
	Region    string             `json:"region"`
	Groups    []ess.GroupView    `json:"groups"`
	Instances []ess.InstanceView `json:"instances"`
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

func (p *Panel) locked(do func()) {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	do()
}

func (p *Panel) obstruct(instanceID string, do func(id string) bool) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	if !do(instanceID) {
		return unknown("instance of a scaling group", instanceID)
	}
	return nil
}

func (p *Panel) withInstance(id string, do func(*ecs.Instance)) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	i, known := p.compute.Instance(id)
	if !known {
		return unknown("instance", id)
	}
	do(i)
	return nil
}

func (p *Panel) withGroup(id string, do func() (known bool)) error {
	p.cloud.Lock()
	defer p.cloud.Unlock()
	if !do() {
		return unknown("scaling group", id)
	}
	return nil
}
