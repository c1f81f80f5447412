package scaleup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestBinpackingEndsWhenItsTimeIsOver(t *testing.T) {
	for _, byPrice := range []bool{true, false} {
		clk := testingclock.NewFakePassiveClock(testutil.Epoch)
		search, core := newStaged(100, func(config *SearchConfig) { config.Clock, config.ByPrice = clk, byPrice })
		for range 2 { // each scale-up has its own time
			_, err := search.ScaleUp(testutil.NewPods(1, "p"), nil, nil, nil, false)
			require.Nil(t, err)
			search.InitBinpacking(nil, core.groups)
			clk.SetTime(clk.Now().Add(time.Minute))
			assert.False(t, search.StopBinpacking(nil, nil))
			search.InitBinpacking(nil, core.groups) // the next stage has the rest of the time
			clk.SetTime(clk.Now().Add(time.Nanosecond))
			assert.False(t, search.StopBinpacking(nil, nil), "the next offering may be the only one that fits")
			assert.True(t, search.StopBinpacking(nil, make([]expander.Option, 1)))
		}
	}
}

func TestBinpackingEndsWhenNothingBetterIsLeftHoweverMuchTimeThereIs(t *testing.T) {
	search, _ := newStaged(1)
	_, err := search.ScaleUp(testutil.NewPods(1, "p"), nil, nil, nil, false)
	require.Nil(t, err)
	search.InitBinpacking(nil, nil)
	search.MarkProcessed(nil, "0000")
	assert.True(t, search.StopBinpacking(nil, make([]expander.Option, 1)))
}
