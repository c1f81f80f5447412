package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	caconfig "k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

func TestOnlyLeastPriceEvaluatesOfferingsByPrice(t *testing.T) {
	for expanders, byPrice := range map[string]bool{
		"least-price":          true,
		"least-price,random":   true,
		"priority,least-price": false,
		"random":               false,
		"price":                false,
		"most-pods":            false,
	} {
		t.Run(expanders, func(t *testing.T) {
			config := &Config{Options: &options.Options{Autoscaling: caconfig.AutoscalingOptions{
				ExpanderNames: expanders, MaxBinpackingTime: time.Minute,
			}}, Clock: clock.RealClock{}}
			provider, err := ess.New(ess.Config{Clock: config.Clock})
			require.NoError(t, err)
			search := searchConfig(config, provider, spotfirst.NewPolicy(spotfirst.Config{Offerings: provider, Clock: config.Clock}).Allows, nil)
			assert.Equal(t, byPrice, search.ByPrice)
			assert.Equal(t, time.Minute, search.MaxBinpackingTime)
			assert.Same(t, provider, search.Offerings, "GPU nodes are reserved with any expander")
			flow := newPodFlow(config, nil, provider, nil, podlist.NewArrivals(config.Clock), podJobs{})
			all := newProcessors(config, provider, flow, nil)
			assert.Same(t, flow.search, all.NodeGroupListProcessor)
			assert.Same(t, flow.search, all.BinpackingLimiter)
		})
	}
}
