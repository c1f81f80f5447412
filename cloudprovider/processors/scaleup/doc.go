// Package scaleup decides what to buy for the pods of a loop. It implements four extension points of
// k8s.io/autoscaler/cluster-autoscaler (1.33):
//
//   - [Enforcer] is the ScaleUpEnforcer. (*StaticAutoscaler).RunOnce in core/static_autoscaler.go asks it whether to skip core's
//     own waits before a scale-up, which the settle windows replace.
//   - [Gangs] is the ScaleUpOrchestrator, which RunOnce calls to scale up. Core's own buys for all pods of a loop together, and
//     knows all or nothing for ProvisioningRequests only.
//   - [PoolMinimums] is an orchestrator around it, for --enforce-node-group-min-size: RunOnce calls ScaleUpToNodeGroupMinSize. Core
//     knows minimum sizes of node groups, not of pools.
//   - [Search] is an orchestrator around core's own, which Gangs calls through that of package spotfirst. At the same time it is the NodeGroupListProcessor and
//     the BinpackingLimiter that core's orchestrator calls, in (*ScaleUpOrchestrator).ScaleUp in
//     core/scaleup/orchestrator/orchestrator.go. Core would evaluate every node group for every pod, of which there may be a
//     thousand each.
package scaleup
