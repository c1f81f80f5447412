// Package processors plugs GPU spot capacity into the extension points of Cluster Autoscaler's core.
//
// In the order in which one loop meets them:
//
//   - [Trigger] starts the loop: on a pod nobody could place, on the end of a settle window, on a reclaim notice;
//   - [DyingNodes] takes nodes under reclaim out of everything the loop sees;
//   - [GPUReadiness] takes nodes for ready when they offer the GPUs that were promised;
//   - [Templates] says what a new node of each offering would look like;
//   - [Hold] keeps back pods whose company is still arriving: half-created jobs and incomplete gangs;
//   - [NewPodListProcessor] has GPU pods placed before others;
//   - [ScaleUpEnforcer] removes core's own waits, which Hold made superfluous;
//   - [GangOrchestrator] buys for one gang at a time, all of it or nothing, for GPU pods and for CPU pods;
//   - [GPUReserve] keeps CPU pods from buying GPU nodes;
//   - [CheapestFirst] looks at offerings in the order of what they would cost and stops when no other can be cheaper;
//   - [PoolLimits] keeps a pool at its minimum size and out of scale-down while it cools down.
//
// Core calls all of them from its one loop, so they are not safe for concurrent use unless they say so.
package processors
