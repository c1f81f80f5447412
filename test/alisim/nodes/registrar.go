// Package nodes makes the instances of a simulated cloud appear in a cluster, and disappear from it, as ACK nodes do.
package nodes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Machine is a booted instance.
type Machine struct {
	InstanceID, Region, Zone, InstanceType string
	// SpotStrategy is NoSpot, SpotAsPriceGo or SpotWithPriceLimit.
	SpotStrategy string
	// PoolID is the scaling group.
	PoolID string
	// Labels and Taints are added to those every ACK node has; these labels win.
	Labels map[string]string
	Taints []corev1.Taint
	// Resources are further extended resources by name, as quantities.
	Resources map[string]string
	VCPU      int
	MemoryGiB float64
	GPUs      int
	// GPUModel is the bare name ("A10") or Alibaba's GPUSpec ("NVIDIA A10").
	GPUModel string
	// GPUMemGiB is per GPU.
	GPUMemGiB float64
	// DriverDelay is how long after the Node appears its GPUs become allocatable.
	DriverDelay time.Duration
}

// Registrar keeps the Node objects of machines. Safe for concurrent use.
type Registrar struct{}

// NewRegistrar returns a registrar that works through client. Client-go's default limit of five calls per second is
// far too small for it: build the client from a config with QPS of some hundreds (see Tune).
func NewRegistrar(client kubernetes.Interface, clk clock.Clock) *Registrar { panic("not yet") }

// Up creates the Node of a machine and returns; its GPUs follow after DriverDelay, until ctx ends. Repeating it is
// harmless.
func (r *Registrar) Up(ctx context.Context, m Machine) error { panic("not yet") }

// Down makes the Node NotReady and returns; the Node object goes after a short delay, until ctx ends. Repeating it,
// and an instance without Node, are harmless.
func (r *Registrar) Down(ctx context.Context, instanceID string) error { panic("not yet") }
