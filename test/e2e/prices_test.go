package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

func TestNothingIsBoughtUnderACapWhileItsPriceIsStale(t *testing.T) {
	capped := spotPool("asg-1", 10)
	capped.Tags["gpu-spot.autoscaling/price-cap"] = "9" // above every price there is
	s := newSuite(t, newWorld(capped))
	s.RunAutoscaler(t, "--price-refresh-interval=2s", "--price-max-age=8s")
	first := gpuPods("first", 1)
	s.Submit(t, first...)
	s.awaitRunning(first...)

	s.injectFault(alisim.Fault{Action: "DescribeSpotPriceHistory", Kind: alisim.FaultError, Code: "Forbidden.RAM", Status: 403})
	s.awaitEvent("SpotPoolProblem", "stale_price", a10+" in "+zoneB, "--price-max-age")
	second := gpuPods("second", 1)
	s.Submit(t, second...)
	rig.Always(t, 10*time.Second, "nothing is bought", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 1, nil })

	s.Cloud.ClearFaults()
	s.awaitRunning(second...)
}

func TestAnOnDemandPoolIsBoughtOfAtItsOwnPrice(t *testing.T) {
	onDemand := singleOfferingPool("asg-1", 10)
	onDemand.SpotStrategy = alisim.NoSpot
	s := newSuite(t, newWorld(onDemand))
	s.RunAutoscaler(t)
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitRunning(pod)
	s.awaitEvent("SpotPurchaseRequested", "on-demand")
	assert.NotEmpty(t, s.requests("DescribePrice"))
	assert.Equal(t, alisim.NoSpot, s.instances("asg-1")[0].SpotStrategy)
}

func TestAnOfferingThatIsSaidToHaveNoStockIsNotTriedBeforeOneThatIsHardlyDearer(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.Cloud.SetPrice(a10, zoneC, 4.05, 10) // 4 in zone b
	s.Cloud.SetStock(a10, zoneB, 0)
	autoscaler := s.RunAutoscaler(t)
	s.eventually("the stock is observed", func(ctx context.Context) (bool, error) {
		metrics, err := autoscaler.Metrics(ctx)
		return len(metrics["gpu_spot_market_stock_age_seconds"].GetMetric()) > 0, err
	})
	pod := rig.GPUPod("train", 1)
	s.Submit(t, pod)
	s.awaitRunning(pod)
	assert.Equal(t, map[string]int{zoneC: 1}, s.zonesOf("asg-1"))
	assert.Len(t, s.requests("ScaleWithAdjustment"), 1, "nothing was tried where there is no stock")
}
