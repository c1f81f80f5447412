package alisim

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/ess"
	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
	"gpu-spot-autoscaler/test/alisim/sts"
)

// services are what a world is run by.
type services struct {
	cloud    *cloud.Cloud
	compute  *ecs.Compute
	scaling  *scaling.Engine
	endpoint *protocol.Endpoint
	keeper   *nodes.Keeper // nil without a cluster
}

// furnish makes the services of a world and puts into them what the world begins with.
func furnish(w World, clk clock.Clock, keeper *nodes.Keeper) (services, error) {
	if err := w.Validate(); err != nil {
		return services{}, err
	}
	w = w.withDefaults()
	prices, timeline, err := w.buildMarket(clk.Now())
	if err != nil {
		return services{}, fmt.Errorf("market: %w", err)
	}
	s := services{cloud: cloud.New(w.Region, w.AccountID, clk, w.Seed), keeper: keeper}
	s.cloud.Takes, s.cloud.Temper = w.durations(), w.Temper
	options := ecs.Options{
		VPCID: w.VPCID, VSwitches: w.VSwitches, Zones: w.zones(), Types: w.Types, Quota: w.Quota,
		Market: prices, Timeline: timeline, RequireIMDSv2: w.RequireIMDSv2,
	}
	if keeper != nil {
		options.Booted = func(i *ecs.Instance) {
			if m := s.machine(i); m.PoolID != "" { // else nothing has it join the cluster
				keeper.Boot(m, i.Gone)
			}
		}
	}
	s.compute = ecs.New(s.cloud, options)
	s.scaling = scaling.New(s.cloud, s.compute, scaling.Options{IgnoreTargeting: w.IgnoreTargeting, Speed: w.Speed})
	keys := protocol.NewKeys()
	for _, k := range w.Credentials {
		user := sts.Owner(w.AccountID)
		user.Policy = k.RAMPolicy
		keys.Add(k.ID, protocol.Key{Secret: k.Secret, Caller: user})
	}
	for _, k := range w.Administrators {
		administrator := sts.Owner(w.AccountID)
		administrator.Administrates = true
		keys.Add(k.ID, protocol.Key{Secret: k.Secret, Caller: administrator})
	}
	wire := protocol.Options{
		Region: w.Region, Clock: clk, Keys: keys, RateLimits: w.RateLimits,
		Policy: w.RAMPolicy, TagsOf: s.tagsOf, SlotBeforeToken: w.Temper.SlotBeforeToken,
	}
	if w.Temper.ForgetTokens {
		wire.TokenLife = s.cloud.Takes.TokenLife
	}
	s.endpoint = protocol.NewEndpoint(wire,
		ess.Service(s.scaling), s.compute.Service(), s.compute.VPC(), sts.New(s.cloud, keys, w.Roles).Service(), location())

	s.cloud.Lock()
	defer s.cloud.Unlock()
	for _, p := range w.Pools {
		s.scaling.PutGroup(p)
	}
	s.compute.WatchMarket()
	return s, nil
}

// tagsOf returns the tags of the scaling group that a request names, or of the first instance.
func (s *services) tagsOf(r *protocol.Request) map[string]string {
	s.cloud.Lock()
	defer s.cloud.Unlock()
	if g, known := s.scaling.FindGroup(r.Get("ScalingGroupId")); known {
		return maps.Clone(g.Tags)
	}
	if i, known := s.compute.Instance(r.Get("InstanceId.1")); known {
		return maps.Clone(i.Tags)
	}
	return nil
}

// registrar makes Nodes of the world's instances.
func (w World) registrar(client kubernetes.Interface, clk clock.Clock) *nodes.Registrar {
	w = w.withDefaults()
	registrar, takes := nodes.NewRegistrar(client, clk), w.durations()
	if w.Temper.NodeController {
		registrar.Controller = &nodes.Controller{Period: max(takes.NodeController, time.Millisecond), Grace: takes.NodeGrace}
	}
	return registrar
}

// machine is what the cluster is told about an instance.
func (s *services) machine(i *ecs.Instance) nodes.Machine {
	pool, is := s.scaling.PoolOf(i.ID)
	if !is {
		pool, _ = s.scaling.PoolJoined(i)
	}
	m := nodes.Machine{
		InstanceID: i.ID, Region: s.cloud.Region, Zone: i.VSwitch.Zone, InstanceType: i.Type.ID, SpotStrategy: i.SpotStrategy,
		PoolID: pool.ID,
		VCPU:   i.Type.VCPU, MemoryGiB: i.Type.MemoryGiB, GPUs: i.Type.GPUs, GPUModel: i.Type.GPUModel, GPUMemGiB: i.Type.GPUMemGiB,
		SystemDiskGiB: pool.SystemDiskGiB, DriverDelay: s.cloud.Takes.Driver,
	}
	if i.Aged {
		m.DriverDelay = 0
	}
	m.Labels, m.Taints, m.Resources = pool.Node.Extras(pool.NodeTags())
	return m
}
