// Package simulation holds the nodes and pods on which core simulates the scheduler.
//
// It takes the place of DeltaSnapshotStore in simulator/clustersnapshot/store/delta.go of k8s.io/autoscaler/cluster-autoscaler (1.33),
// which core gets in its options. In each loop that store computes anew what the pods of every node request, and in each fork
// (core makes one for every node that it may remove) it looks up every node by name to list them. With 5,000 nodes of 30 pods
// each this took most of the CPU time of an idle loop.
package simulation
