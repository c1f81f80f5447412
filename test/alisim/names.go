package alisim

import (
	"gpu-spot-autoscaler/test/alisim/control"
	"gpu-spot-autoscaler/test/alisim/ecs"
	"gpu-spot-autoscaler/test/alisim/nodes"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// What a world is made of.
type (
	// Pool is a scaling group together with its active scaling configuration.
	Pool = scaling.Pool
	// VSwitch is a subnet in a zone.
	VSwitch = ecs.VSwitch
	// Type is the shape and, optionally, the price of an instance type.
	Type = ecs.Type
	// Quota bounds the account.
	Quota = ecs.Quota
	// Node describes the Nodes of a pool.
	Node = nodes.Template
)

// What a Server shows.
type (
	// State is everything there is.
	State = control.State
	// GroupView is a scaling group.
	GroupView = scaling.GroupView
	// ActivityView is a scaling activity.
	ActivityView = scaling.ActivityView
	// InstanceView is an instance that exists, or that its scaling group believes to exist.
	InstanceView = scaling.InstanceView
	// RequestView is a request that came in.
	RequestView = protocol.RequestView
)

// Spot strategies, as Alibaba spells them.
const (
	NoSpot             = ecs.NoSpot
	SpotAsPriceGo      = ecs.SpotAsPriceGo
	SpotWithPriceLimit = ecs.SpotWithPriceLimit
)

type (
	// Fault makes requests go wrong.
	Fault = protocol.Fault
	// FaultKind is a way in which they do.
	FaultKind = protocol.FaultKind
)

// Ways in which a request goes wrong.
const (
	FaultLatency         = protocol.FaultLatency
	FaultError           = protocol.FaultError
	FaultThrottle        = protocol.FaultThrottle
	FaultLostReply       = protocol.FaultLostReply
	FaultNotJSON         = protocol.FaultNotJSON
	FaultPartialFill     = protocol.FaultPartialFill
	FaultRollBack        = protocol.FaultRollBack
	FaultIgnoreTargeting = protocol.FaultIgnoreTargeting
)
