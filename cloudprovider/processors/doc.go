// Package processors plugs GPU spot capacity into the extension points of Cluster Autoscaler's core. It holds what its
// sub-packages share: which resources are GPUs, which part of a node they take, and which pods belong to
// ProvisioningRequests.
//
// Each of these sub-packages serves extension points, and its package comment says where core calls it. In the order in which one
// iteration of core's loop meets them:
//
//   - trigger starts the loop: on an unschedulable pod, at the end of a settle window, on a reclaim notice;
//   - customresources removes reclaiming nodes from the node lists, and decides whether a GPU node is ready;
//   - simulation holds the nodes and pods on which core simulates the scheduler, for all that follows;
//   - templates builds the node template of each offering;
//   - podlist decides which pods to buy for now: it defers incomplete gangs, and adds the pods of reclaiming nodes and of
//     jobs that are held or may grow;
//   - scaleup decides what to buy for those pods, gang by gang, and which offerings to evaluate;
//   - explain tells users why nothing was bought for a pod;
//   - scaledown decides which nodes may be removed.
//
// Two are no hook of core: gangplan plans for gangs that take several offerings, and spotfirst decides how long a pod waits for
// spot instances.
//
// Core calls all of them from the goroutine of its loop, except for scaledown.TrainingPods: each batch of nodes to remove is
// checked against it again by a goroutine of its own, (*Actuator).deleteNodesAsync. That is safe because it has no state. The
// others are not safe for concurrent use unless they say so.
package processors
