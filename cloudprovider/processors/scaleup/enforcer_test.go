package scaleup

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestScaleUpIsForcedForAnyPod(t *testing.T) {
	assert.False(t, Enforcer{}.ShouldForceScaleUp(nil))
	assert.True(t, Enforcer{}.ShouldForceScaleUp(testutil.NewPods(1, "p")))
}
