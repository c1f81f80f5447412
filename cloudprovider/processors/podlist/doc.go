// Package podlist decides which pods core buys for in a loop.
//
// It implements core's PodListProcessor. (*StaticAutoscaler).RunOnce in core/static_autoscaler.go of
// k8s.io/autoscaler/cluster-autoscaler (1.33) calls Process with the pods that the scheduler could not place, and buys for those
// that it returns. Whatever Process places in the cluster snapshot counts as used in the scale-down of the same loop.
//
// Core needs it because it buys for each pod as soon as it sees it, which is too early for gangs and for jobs whose pods are
// still being created, and too late for the pods of reclaiming nodes, which are not pending yet.
//
// The processors are chained. [Deferral] is the outermost: it defers pods for which it is too early to buy, and takes the
// held and growing jobs of a [Supervision] into account. [ReclaimingPods] adds the pods of reclaiming nodes. [NewDefault] is core's
// chain, which places pods on existing and upcoming nodes: first those for which the nodes were bought, as [Places] remembers.
// [StatusFilter] is the ScaleUpStatusProcessor that belongs to them:
// RunOnce calls it after each scale-up, and it hides the pods that this package added.
package podlist
