package main

import (
	"context"
	"time"

	"gpu-spot-autoscaler/test/rig"
)

// stockoutTimeout is a minute more than --max-node-provision-time, by default, takes to tell Cluster Autoscaler that a node does not come.
const stockoutTimeout = 16 * time.Minute

// measureStockout creates pods for which the group that is preferred is out of stock.
func measureStockout(ctx context.Context, s *session, p peer) ([]found, error) {
	const pods = 4
	t, err := newTrial(ctx, s, "stockout", rig.Options{World: newWorld(group{"asg-small", small, 0, 20}, group{"asg-big", big, 0, 20})})
	if err != nil {
		return nil, err
	}
	defer t.stop()
	t.Cloud.SetStock(small, zone, 0)
	if err := t.start(ctx, p); err != nil {
		return nil, err
	}
	began, err := t.submit(ctx, pods)
	if err != nil {
		return nil, err
	}
	other, err := t.until(ctx, began, stockoutTimeout, t.requested(pods, "asg-big"))
	return []found{{"4 pending pods, the preferred group out of stock: accepted requests to the other, s", other}}, err
}
