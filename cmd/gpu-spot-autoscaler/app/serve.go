package app

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/autoscaler/cluster-autoscaler/metrics"

	"gpu-spot-autoscaler/cloudprovider/externalgrpc"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/work"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serve"
	"gpu-spot-autoscaler/pricing"
)

// buildServed constructs the parts of a process whose provider is served to the core of another. Nothing of it waits for a loop: core's
// begin when they do. Drains wait for no replacement, since core buys one only for pods that are pending.
func buildServed(ctx context.Context, config *Config) (*parts, error) {
	p, s, err := newParts(ctx, config, func() {}, func() {})
	if err != nil {
		return nil, err
	}
	return p, p.addReclaimer(config, s, nil, nil, nil)
}

// serve serves the provider and the expander until ctx ends.
func (p *parts) serve(ctx context.Context, config *Config, health *metrics.HealthCheck) error {
	p.awaitPrices(ctx)
	model, aErr := p.provider.Pricing()
	if aErr != nil {
		return fmt.Errorf("prices: %w", aErr)
	}
	nodes := p.informers.Core().V1().Nodes().Lister()
	server := externalgrpc.NewServer(externalgrpc.Config{
		Provider: p.provider, Purchases: p.provider.Purchases(), Nodes: nodes, Client: config.Kube,
		Cooldown: config.Autoscaling.ScaleDownDelayAfterAdd, Interval: config.Autoscaling.ScanInterval, Clock: config.Clock,
	})
	defer func() {
		p.endProvider(ctx) // only now removals under way end
		server.Finish()
	}()
	policy := spotfirst.NewPolicy(spotfirst.Config{
		Offerings: p.provider, Restart: config.Terms.Restart, Clock: config.Clock,
		Deadlines: spotfirst.NewDeadlines(p.provider, p.deadlines, config.Clock),
	})
	expander := externalgrpc.NewExpander(p.provider, policy, pricing.NewLeastPrice(model, config.Clock, explainTo(p.events)))
	// Core asks for the node groups of nodes before its first Refresh.
	all, err := nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	p.provider.BeginLoop(all)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { server.Run(ctx); return nil })
	group.Go(func() error {
		work.Every(ctx, config.Clock, config.Autoscaling.ScanInterval, func() {
			health.UpdateLastActivity(config.Clock.Now())
			health.UpdateLastSuccessfulRun(config.Clock.Now())
			returnHeld(p.supervisor)
		})
		return nil
	})
	group.Go(func() error { return serve.Serve(ctx, *config.Serve, server, expander) })
	return group.Wait()
}

// returnHeld has the jobs resumed and grown that are held, as soon as none of their former pods is left: core cannot be asked to look for
// capacity for pods that do not exist. It buys for them once they are pending. No job gets more workers than it asks for, since nobody looks
// whether there is room for them.
func returnHeld(supervision podlist.Supervision) {
	for _, gang := range supervision.Returning() {
		if gang.Extra == podlist.NotExtra {
			supervision.Fits(gang.Ref, podlist.Placement{Ready: gang.Pods})
		}
	}
}
