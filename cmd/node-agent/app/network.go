package app

import (
	"context"
	"net/netip"
	"time"
)

// The Node is read again after these pauses while it has no pod network, each twice as long as the one before up to the longest. This goes on for
// some 65 minutes: where pods have addresses of the VPC, as with Terway, the Node never has one.
const (
	networkPause, longestNetworkPause = 5 * time.Second, 5 * time.Minute
	networkReads                      = 18
)

// awaitNetwork reads the Node again until it has a pod network, or ctx ends, or it is to be assumed that it will have none. A controller of the
// control plane sets spec.podCIDRs some time after the kubelet has registered the Node, and the agent may have read it before.
func (a *agent) awaitNetwork(ctx context.Context) {
	pause := networkPause
	for range networkReads {
		if !a.sleep(ctx, pause) || a.hasNetwork() {
			return
		}
		if !a.retry(ctx, func() error { _, err := a.readSelf(ctx); return err }) {
			return
		}
		pause = min(2*pause, longestNetworkPause)
	}
}

// hasNetwork returns whether the Node was read with a pod network.
func (a *agent) hasNetwork() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.self.hasNetwork()
}

// readSelf reads the own Node and keeps it, unless it was read with a pod network before: that does not change.
func (a *agent) readSelf(ctx context.Context) (*node, error) {
	self, err := a.node.get(ctx, wholeNode)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.self.hasNetwork() {
		a.self = self
	}
	return self, nil
}

// hasNetwork returns whether the Node, which may be nil, has a pod network.
func (n *node) hasNetwork() bool { return n != nil && len(n.Spec.PodCIDRs) > 0 }

// podOfThisNode returns whether the caller is in the pod network of the Node. It returns true for every caller while that
// network is unknown: until the Node was read with one, and if pods have addresses of the VPC, as with Terway.
func (a *agent) podOfThisNode(caller netip.Addr) bool {
	a.mu.Lock()
	self := a.self
	a.mu.Unlock()
	if self == nil {
		return true
	}
	known := false
	for _, cidr := range self.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(cidr); err == nil {
			if known = true; prefix.Contains(caller) {
				return true
			}
		}
	}
	return !known
}
