// Package customresources decides which nodes a loop sees, and which of them are ready.
//
// It implements core's CustomResourcesProcessor. (*StaticAutoscaler).obtainNodeLists in core/static_autoscaler.go of
// k8s.io/autoscaler/cluster-autoscaler (1.33) calls FilterOutNodesWithUnreadyResources at the start of each loop, before core
// lists the pods. (*Manager).DeltaForNode in core/scaleup/resource/manager.go and (*LimitsFinder).DeltaForNode in
// core/scaledown/resource/limits.go, among others, call GetNodeResourceTargets to count GPUs against cluster-wide limits.
//
// Core needs both processors of this package: it takes a cordoned node for capacity, and it knows no GPUs but whole ones.
//
// The processors are chained: [ReclaimingNodes], then [GPUReadiness], then core's own.
package customresources
