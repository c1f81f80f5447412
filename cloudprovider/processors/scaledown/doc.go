// Package scaledown decides which nodes core may remove. It implements three extension points of
// k8s.io/autoscaler/cluster-autoscaler (1.33):
//
//   - [Candidates] is the ScaleDownNodeProcessor. (*StaticAutoscaler).RunOnce in core/static_autoscaler.go asks it which nodes to
//     consider, and in which order. Core's own order costs more than half of the time of a loop over thousands of nodes.
//   - [TrainingPods] is one of the drainability rules, which GetPodsToMove in simulator/drain.go evaluates: for
//     (*RemovalSimulator).SimulateNodeRemoval in simulator/cluster.go when nodes are chosen, and for
//     (*Actuator).deleteNodesAsync in core/scaledown/actuation/actuator.go before one is drained. Core would move training pods.
//   - [PoolLimits] is the ScaleDownSetProcessor. (*Planner).NodesToDelete in core/scaledown/planner/planner.go calls it with the
//     nodes that have been unneeded for long enough. Core knows minimum sizes and delays for node groups, not for pools.
package scaledown
