package processors

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/binpacking"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	testingclock "k8s.io/utils/clock/testing"
)

func TestBinpackingEndsWhenItsTimeIsOver(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(epoch)
	limit := NewTimeLimit(binpacking.NewTimeLimiter(time.Hour), time.Minute, clk)
	o, core := newStaged(100)
	o.Initialize(o.autoscaling, &caprocessors.AutoscalingProcessors{NodeGroupListProcessor: o.ranking, BinpackingLimiter: limit}, nil, nil, taints.TaintConfig{})
	for range 2 { // each scale-up has its own time
		_, err := o.ScaleUp(newPods(1, "p"), nil, nil, nil, false)
		require.Nil(t, err)
		limit.InitBinpacking(nil, core.groups)
		clk.SetTime(clk.Now().Add(time.Minute))
		assert.False(t, limit.StopBinpacking(nil, nil))
		limit.InitBinpacking(nil, core.groups) // the next stage has what is left
		clk.SetTime(clk.Now().Add(time.Nanosecond))
		assert.True(t, limit.StopBinpacking(nil, make([]expander.Option, 1)))
	}
}

func TestBinpackingEndsWhenNothingBetterIsLeftHoweverMuchTimeThereIs(t *testing.T) {
	limit := NewTimeLimit(stopsAtOnce{}, time.Minute, testingclock.NewFakePassiveClock(epoch))
	limit.begin()
	assert.True(t, limit.StopBinpacking(nil, nil))
}

type stopsAtOnce struct{ binpacking.BinpackingLimiter }

func (stopsAtOnce) StopBinpacking(*cacontext.AutoscalingContext, []expander.Option) bool { return true }
