package podlist

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	testingclock "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/cloudprovider/reasons"
)

func TestPodsThatAreSkippedAreToldWhy(t *testing.T) {
	clk := testingclock.NewFakePassiveClock(testutil.Epoch)
	skipped := &reasons.Skipped{}
	deferral := NewDeferral(Config{Inner: &chain{fits: []string{"placed"}}, Arrivals: NewArrivals(clk), Clock: clk, SettleWindow: time.Second, Skipped: skipped})
	gang := testutil.NewPods(3, "g", testutil.InGang("g", 8))
	fresh, placed := testutil.NewPod("fresh"), testutil.NewPod("placed")
	all := append(slices.Clone(gang), fresh, placed)
	ctx, _, _ := testutil.NewContext(all, nil)
	_, err := deferral.Process(ctx, slices.Clone(all))
	require.NoError(t, err)
	assert.Equal(t, "gang 3 of 8: only so many of its pods exist", skipped.Of(gang[0].UID).String())
	assert.Equal(t, reasons.Settling, skipped.Of(fresh.UID).Code)
	assert.Contains(t, skipped.Of(fresh.UID).Message, "settling until ")
	assert.Equal(t, reasons.HasPlace, skipped.Of(placed.UID).Code)

	clk.SetTime(clk.Now().Add(time.Minute))
	_, err = deferral.Process(ctx, slices.Clone(all))
	require.NoError(t, err)
	assert.Nil(t, skipped.Of(fresh.UID), "it is bought for")
}
