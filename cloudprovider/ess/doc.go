// Package ess turns Alibaba Cloud ESS scaling groups into Cluster Autoscaler node groups.
//
// A scaling group under management is a pool. A pool spreads over instance types and zones, but Cluster Autoscaler assumes
// that all nodes of a node group are alike. So every way to buy in a pool, instance type × zone × purchase option, is an
// offering, and every offering is one node group.
//
// Provider and NodeGroup are what core sees. What they answer is read from the last snapshot, and what they are told to do is
// entered in the ledger. So everything that core asks between two refreshes is answered from memory. Of their own they keep only
// the penalty for offerings of which instances were reclaimed, and what the next Refresh has to finish.
//
// The packages below, each of which imports only those above it in this list:
//
//   - settings, template, providerid: tags in, Node templates out;
//   - problem: what can be wrong with a pool;
//   - pool: what a scaling group, its configuration and its tags make of a pool and its offerings;
//   - snapshot: pools, instances and sizes at one moment, immutable;
//   - ledger: purchases and removals, and the only writer of the snapshot;
//   - batch: collects requests that are made at about the same time;
//   - buyer, attacher, remover: the calls that buy, put into the scaling group, and remove;
//   - observe: the calls of a refresh.
package ess
