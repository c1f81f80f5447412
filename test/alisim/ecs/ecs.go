// Package ecs simulates the Elastic Compute Service: instances, their types, prices and stock, the VPC they are in and the
// metadata that they read. What spot instances may stay is up to the market.
package ecs

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/market"
	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Options say what there is to be had.
type Options struct {
	VPCID     string
	VSwitches []VSwitch
	// Zones are all zones, sorted.
	Zones []string
	// Types are laid over the published catalogue.
	Types    []Type
	Quota    Quota
	Market   *market.Static
	Timeline market.Timeline
	// RequireIMDSv2 refuses metadata requests without a token.
	RequireIMDSv2 bool
	// Booted is called, with the cloud's lock held, when a running instance has booted; nil for nobody.
	Booted func(*Instance)
}

// VSwitch is a subnet in a zone.
type VSwitch struct {
	ID   string `json:"id"`
	Zone string `json:"zone"`
	// AvailableIPs is how many instances fit; 0 means 4096.
	AvailableIPs int `json:"availableIPs,omitempty"`
}

// Watcher hears, with the cloud's lock held, of what happens to instances by itself.
type Watcher interface {
	// Noticed is called when a spot instance gets its notice.
	Noticed(i *Instance)
	// Unhealthy is called when an instance has stopped or was released for reasons of its own.
	Unhealthy(i *Instance)
}

// Compute is every instance, and what may be bought. All methods expect the cloud's lock to be held, but where they say
// otherwise.
type Compute struct {
	Options
	cloud     *cloud.Cloud
	types     map[string]Type
	vswitches map[string]*vswitch
	watcher   Watcher

	machines  cloud.Roster[*Instance]
	recycling cloud.Roster[*Instance]
	byID      map[string]*Instance
	offerings map[offeringKey]*offering
	// retired are the instance types that are neither described nor sold any more.
	retired sets.Set[string]

	// launched counts the instances that RunInstances created, since the temper treats one in so many of them otherwise.
	launched int

	Meter *Meter

	metadataTokens metadataTokens
}

// Supply takes away what was to be had. Its methods expect the cloud's lock to be held.
type Supply struct{ *Compute }

type vswitch struct {
	VSwitch
	used int
}

// New returns a service without instances. The watcher has to be set before there are any.
func New(c *cloud.Cloud, options Options) *Compute {
	e := &Compute{
		Options: options, cloud: c, types: catalogue(options.Types), vswitches: map[string]*vswitch{},
		byID: map[string]*Instance{}, offerings: map[offeringKey]*offering{}, retired: sets.New[string](), metadataTokens: metadataTokens{},
		Meter: &Meter{market: options.Market},
	}
	for _, v := range options.VSwitches {
		e.vswitches[v.ID] = &vswitch{VSwitch: v}
	}
	return e
}

// Watch names the watcher.
func (c *Compute) Watch(w Watcher) { c.watcher = w }

// Service is ECS 2014-05-26.
func (c *Compute) Service() protocol.Service {
	return protocol.Service{Name: "Ecs", Version: "2014-05-26", Actions: map[string]protocol.Action{
		"DescribeAccountAttributes": {Handle: accountActions{c}.describeAccountAttributes},
		"DescribeInstances":         {Handle: instanceActions{c}.describeInstances},
		"RunInstances":              {Handle: launchActions{c}.runInstances, Idempotent: true},
		"DeleteInstances":           {Handle: launchActions{c}.deleteInstances, Idempotent: true},
		"DescribeInstanceTypes":     {Handle: typeActions{c}.describeInstanceTypes},
		"DescribeSpotPriceHistory":  {Handle: priceActions{c}.describeSpotPriceHistory},
		"DescribeSpotAdvice":        {Handle: priceActions{c}.describeSpotAdvice},
		"DescribePrice":             {Handle: priceActions{c}.describePrice},
		"DescribeAvailableResource": {Handle: typeActions{c}.describeAvailableResource},
	}}.Under(c.cloud)
}

// VPC is VPC 2016-04-28.
func (c *Compute) VPC() protocol.Service {
	return protocol.Service{Name: "Vpc", Version: "2016-04-28", Actions: map[string]protocol.Action{
		"DescribeVSwitches": {Handle: vswitchActions{c}.describeVSwitches},
	}}.Under(c.cloud)
}

// catalogue is the published one with the world's own types over it.
func catalogue(own []Type) map[string]Type {
	types := map[string]Type{}
	for id, t := range market.Catalogue() {
		types[id] = Type{ID: id, VCPU: t.VCPU, MemoryGiB: t.MemoryGiB, GPUs: t.GPUs, GPUModel: t.GPUModel, GPUMemGiB: t.GPUMemGiB}
	}
	for _, t := range own {
		types[t.ID] = t
	}
	return types
}

// Sells says whether there is an instance type of that name. It may be called without the lock.
func (c *Compute) Sells(instanceType string) bool {
	_, known := c.types[instanceType]
	return known
}

// HasVSwitch says whether there is a vSwitch of that ID. It may be called without the lock.
func (c *Compute) HasVSwitch(id string) bool {
	_, known := c.vswitches[id]
	return known
}

// zonesNamed returns the named zone, or all zones where the name is empty.
func zonesNamed(name string, all []string) []string {
	if name == "" {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(zone string) bool { return zone != name })
}
