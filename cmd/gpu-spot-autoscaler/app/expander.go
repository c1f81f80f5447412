package app

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/expander/factory"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/processors/templates"
	"gpu-spot-autoscaler/pricing"
)

// newExpander returns the chain of expanders that --expander names, of Cluster Autoscaler's expanders and ours.
func newExpander(config *Config, provider cloudprovider.CloudProvider, kube *cacontext.AutoscalingKubeClients,
	events templates.EventSink) (expander.Strategy, error) {
	model, aErr := provider.Pricing()
	if aErr != nil {
		return nil, fmt.Errorf("prices: %w", aErr)
	}
	known := factory.NewFactory()
	known.RegisterDefaultExpanders(provider, kube, config.Kube, config.Autoscaling.ConfigNamespace,
		config.Autoscaling.GRPCExpanderCert, config.Autoscaling.GRPCExpanderURL)
	known.RegisterFilter(pricing.LeastPriceName, func() expander.Filter {
		return pricing.NewLeastPrice(model, config.Clock, explainTo(events))
	})
	strategy, err := known.Build(strings.Split(config.Autoscaling.ExpanderNames, ","))
	if err != nil {
		return nil, fmt.Errorf("--expander=%s: %w", config.Autoscaling.ExpanderNames, err)
	}
	return strategy, nil
}

// explainTo returns a function that records an Event and a log line with the reason why an offering was chosen.
func explainTo(events templates.EventSink) func(pricing.Decision) {
	return func(decision pricing.Decision) {
		reason := "no other can do it for less"
		if decision.RunnerUp != nil {
			reason = fmt.Sprintf("best of %d; next %s", decision.Alternatives+1, decision.RunnerUp)
		}
		klog.InfoS("Chose an offering", "offering", decision.Chosen, "reason", reason)
		events.Eventf(corev1.EventTypeNormal, "SpotOfferingChosen", "%s (%s)", decision.Chosen, reason)
	}
}
