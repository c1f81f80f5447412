package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	caconfig "k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

func TestOnlyLeastPriceIsSparedDearerOfferings(t *testing.T) {
	for expanders, spared := range map[string]bool{
		"least-price":          true,
		"least-price,random":   true,
		"priority,least-price": false,
		"random":               false,
		"price":                false,
		"most-pods":            false,
	} {
		t.Run(expanders, func(t *testing.T) {
			config := &Config{Options: &options.Options{Autoscaling: caconfig.AutoscalingOptions{ExpanderNames: expanders}}, Clock: clock.RealClock{}}
			provider, err := ess.New(ess.Config{Clock: config.Clock})
			require.NoError(t, err)
			all := newProcessors(config, provider, newPodFlow(config, nil, provider.IsDoomed), nil)
			require.IsType(t, &processors.TimeLimit{}, all.BinpackingLimiter)
			_, limited := all.BinpackingLimiter.(*processors.TimeLimit).BinpackingLimiter.(*processors.CheapestFirst)
			assert.Equal(t, spared, limited)
			assert.IsType(t, &processors.GPUReserve{}, all.NodeGroupListProcessor, "GPU nodes are reserved with any expander")
		})
	}
}
