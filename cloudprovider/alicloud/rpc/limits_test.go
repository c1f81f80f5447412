package rpc

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDefaultLimitsStayBelowTheDocumented(t *testing.T) {
	perMinute := map[string]float64{
		"DescribeScalingInstances": 2000, "DescribeScalingConfigurations": 2000, "RemoveInstances": 2000, "DescribePrice": 500,
		"DescribeInstances": 1000, "DescribeInstanceTypes": 1000, "DescribeSpotPriceHistory": 1000, "DescribeSpotAdvice": 1000,
		"DescribeAvailableResource": 1000,
	}
	for action, limit := range documentedLimits {
		most := float64(limit.Burst) + 60*limit.PerSecond
		assert.LessOrEqual(t, most, .95*perMinute[action], action)
	}
}
