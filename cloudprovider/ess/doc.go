// Package ess turns Alibaba Cloud ESS scaling groups into Cluster Autoscaler node groups.
//
// A scaling group under management is a pool. A pool spreads over instance types and zones, but Cluster Autoscaler
// takes all nodes of a node group to be alike; so every way to buy in a pool, instance type × zone × purchase option,
// is an offering, and every offering is one node group.
//
// The story of the package, file by file:
//
//   - provider.go: the CloudProvider;
//   - refresh.go: one consistent snapshot per loop, few calls, no error of one pool ever an error of all;
//   - pool.go: what a scaling group, its configuration and its tags make of a pool and its offerings;
//   - offering.go: the NodeGroup;
//   - purchase.go: buying once and only once; queue.go, congestion.go: how purchases get to the cloud;
//   - delivery.go: what became of a purchase; note.go, recall.go: how a new process knows of it; doubt.go: how one is found
//     whose answer was lost;
//   - removal.go: giving back, coalesced;
//   - tally.go: how much there is of each offering, derived from the above;
//   - settings.go, template.go, gpu.go: tags in, Node templates out.
//
// Everything that core asks between two refreshes is answered from memory.
package ess
