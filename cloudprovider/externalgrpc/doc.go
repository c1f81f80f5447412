// Package externalgrpc serves the provider and the expander to a Cluster Autoscaler of another version, over the gRPC protocols that its
// cloud provider "externalgrpc" and its expander "grpc" speak. The core is that of the other process then, with its own processors.
//
//   - [Server] is the cloud provider: what core asks, answered by the provider. It begins the provider's loops, because nobody else does.
//   - [Expander] chooses among the options that core has found: the one of the least price, without those that the pods may not have.
//   - wire.go has what differs between the versions of the protocols.
//
// docs/serve.md says what the protocols cannot carry, and what happens instead.
//
// Sources are those of k8s.io/autoscaler: cluster-autoscaler/cloudprovider/externalgrpc and expander/grpcplugin, at the tags
// cluster-autoscaler-1.33.0 to cluster-autoscaler-1.36.1.
package externalgrpc
