package alisim_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

func TestAnInstanceAsTheSDKReadsIt(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		w.Pools[0].SpotStrategy, w.Pools[0].SpotPriceLimits = alisim.SpotWithPriceLimit, map[string]float64{small: 5}
		w.Pools[0].Instances, w.Pools[1].Instances = 1, 1
	})
	list := s.machines(nil)
	require.Len(t, list, 2)
	spot, plain := list[0], list[1]
	assert.Equal(t, []string{"Running", region, zoneA, small, "PostPaid"}, []string{spot.Status, spot.RegionId, spot.ZoneId, spot.InstanceType, spot.InstanceChargeType})
	assert.Equal(t, []int{8, 32 * 1024, 1, 1}, []int{spot.Cpu, spot.Memory, spot.GPUAmount, spot.SpotDuration})
	assert.Equal(t, "NVIDIA T4", spot.GPUSpec)
	assert.Equal(t, 5.0, spot.SpotPriceLimit)
	assert.Equal(t, alisim.SpotWithPriceLimit, spot.SpotStrategy)
	assert.Equal(t, vswA, spot.VpcAttributes.VSwitchId)
	assert.Empty(t, spot.OperationLocks.LockReason)
	assert.Equal(t, alisim.NoSpot, plain.SpotStrategy)
	assert.Zero(t, plain.SpotDuration)
}

func TestInstancesArePagedByTokenAndByNumber(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].Instances, w.Pools[0].MaxSize = 45, 100 })
	seen := map[string]bool{}
	next, pages := "", 0
	for {
		r := ecs.CreateDescribeInstancesRequest()
		r.MaxResults, r.NextToken = requests.NewInteger(20), next
		resp, err := s.ecs.DescribeInstances(r)
		require.NoError(t, err)
		assert.Equal(t, 45, resp.TotalCount)
		for _, i := range resp.Instances.Instance {
			seen[i.InstanceId] = true
		}
		pages++
		if next = resp.NextToken; next == "" {
			break
		}
	}
	assert.Equal(t, 3, pages)
	assert.Len(t, seen, 45)
	for n := 1; n <= 5; n++ {
		r := ecs.CreateDescribeInstancesRequest()
		r.PageNumber = requests.NewInteger(n)
		resp, err := s.ecs.DescribeInstances(r)
		require.NoError(t, err)
		for _, i := range resp.Instances.Instance {
			delete(seen, i.InstanceId)
		}
	}
	assert.Empty(t, seen)
}

func TestInstancesAreFoundByIDStatusAndPlace(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.Pools[0].Instances, w.Pools[1].Instances = 3, 1 })
	id := ids(s.members(spotGroup))[0]
	named, err := json.Marshal([]string{id, "i-x"})
	require.NoError(t, err)
	for _, test := range []struct {
		name   string
		change func(*ecs.DescribeInstancesRequest)
		want   int
	}{
		{"id", func(r *ecs.DescribeInstancesRequest) { r.InstanceIds = string(named) }, 1},
		{"id and lock", func(r *ecs.DescribeInstancesRequest) { r.InstanceIds, r.LockReason = string(named), "Recycling" }, 0},
		{"other lock", func(r *ecs.DescribeInstancesRequest) { r.LockReason = "financial" }, 0},
		{"type", func(r *ecs.DescribeInstancesRequest) { r.InstanceType = large }, 1},
		{"zone", func(r *ecs.DescribeInstancesRequest) { r.ZoneId = zoneB }, 0},
		{"vSwitch", func(r *ecs.DescribeInstancesRequest) { r.VSwitchId = vswA }, 4},
		{"status", func(r *ecs.DescribeInstancesRequest) { r.Status = "Running" }, 4},
		{"other status", func(r *ecs.DescribeInstancesRequest) { r.Status = "Stopped" }, 0},
	} {
		t.Run(test.name, func(t *testing.T) { assert.Len(t, s.machines(test.change), test.want) })
	}
}

func TestInstanceTypes(t *testing.T) {
	s := start(t)
	r := ecs.CreateDescribeInstanceTypesRequest()
	r.InstanceTypes = &[]string{large, "ecs.unheard-of", "ecs.gn7i-c8g1.2xlarge"}
	resp, err := s.ecs.DescribeInstanceTypes(r)
	require.NoError(t, err)
	list := resp.InstanceTypes.InstanceType
	require.Len(t, list, 2, "unknown types are left out")
	assert.Equal(t, []any{large, 64, 512.0, 8, "NVIDIA V100", 32.0, "X86"},
		[]any{list[0].InstanceTypeId, list[0].CpuCoreCount, list[0].MemorySize, list[0].GPUAmount, list[0].GPUSpec, list[0].GPUMemorySize, list[0].CpuArchitecture})
	assert.Equal(t, []any{8, 1, "NVIDIA A10"}, []any{list[1].CpuCoreCount, list[1].GPUAmount, list[1].GPUSpec}, "the published catalogue is known")

	all, err := s.ecs.DescribeInstanceTypes(ecs.CreateDescribeInstanceTypesRequest())
	require.NoError(t, err)
	assert.Greater(t, len(all.InstanceTypes.InstanceType), 20)
	seen, next := 0, ""
	for {
		r := ecs.CreateDescribeInstanceTypesRequest()
		r.MaxResults, r.NextToken = requests.NewInteger(7), next
		resp, err := s.ecs.DescribeInstanceTypes(r)
		require.NoError(t, err)
		seen += len(resp.InstanceTypes.InstanceType)
		if next = resp.NextToken; next == "" {
			break
		}
	}
	assert.Equal(t, len(all.InstanceTypes.InstanceType), seen)
}

func TestSpotPrices(t *testing.T) {
	s := start(t, func(w *alisim.World) {
		w.Market.Offset = metav1.Duration{Duration: 10 * time.Hour}
		w.Market.Script = []alisim.Change{{At: metav1.Duration{Duration: 8 * time.Hour}, InstanceType: small, Zone: zoneB, Spot: ptr.To(2.5)}}
	})
	ask := func(change func(*ecs.DescribeSpotPriceHistoryRequest)) map[string][]float64 {
		r := ecs.CreateDescribeSpotPriceHistoryRequest()
		r.InstanceType, r.NetworkType = small, "vpc"
		change(r)
		resp, err := s.ecs.DescribeSpotPriceHistory(r)
		require.NoError(t, err)
		assert.Equal(t, "CNY", resp.Currency)
		byZone := map[string][]float64{}
		for _, p := range resp.SpotPrices.SpotPriceType {
			assert.Equal(t, 12.0, p.OriginPrice)
			_, err := time.Parse(time.RFC3339, p.Timestamp)
			assert.NoError(t, err)
			byZone[p.ZoneId] = append(byZone[p.ZoneId], p.SpotPrice)
		}
		return byZone
	}
	all := ask(func(*ecs.DescribeSpotPriceHistoryRequest) {})
	require.Len(t, all, 3)
	assert.Equal(t, 2.5, all[zoneB][len(all[zoneB])-1])
	assert.Equal(t, 4.0, all[zoneA][len(all[zoneA])-1])
	one := ask(func(r *ecs.DescribeSpotPriceHistoryRequest) {
		r.ZoneId, r.StartTime = zoneB, s.clock.Now().Add(-24*time.Hour).UTC().Format("2006-01-02T15:04:05Z")
	})
	require.Len(t, one, 1)
	assert.GreaterOrEqual(t, len(one[zoneB]), 24)

	unprotected := ask(func(r *ecs.DescribeSpotPriceHistoryRequest) { r.SpotDuration = requests.NewInteger(0) })
	assert.Less(t, unprotected[zoneB][len(unprotected[zoneB])-1], 2.5)

	r := ecs.CreateDescribeSpotPriceHistoryRequest()
	r.InstanceType, r.NetworkType, r.StartTime = small, "vpc", s.clock.Now().AddDate(0, 0, -31).UTC().Format("2006-01-02T15:04:05Z")
	_, err := s.ecs.DescribeSpotPriceHistory(r)
	assert.Equal(t, "InvalidStartTime.ExceedDays", codeOf(t, err))
	r = ecs.CreateDescribeSpotPriceHistoryRequest()
	r.InstanceType, r.NetworkType = "ecs.unheard-of", "vpc"
	_, err = s.ecs.DescribeSpotPriceHistory(r)
	assert.Equal(t, "InvalidInstanceType.NotFound", codeOf(t, err))
}

func TestSpotPricesArePaged(t *testing.T) {
	s := start(t)
	seen, offset := 0, 0
	for {
		r := ecs.CreateDescribeSpotPriceHistoryRequest()
		r.InstanceType, r.NetworkType, r.Offset = small, "vpc", requests.NewInteger(offset)
		r.StartTime = s.clock.Now().AddDate(0, 0, -30).UTC().Format("2006-01-02T15:04:05Z")
		resp, err := s.ecs.DescribeSpotPriceHistory(r)
		require.NoError(t, err)
		seen += len(resp.SpotPrices.SpotPriceType)
		if offset = resp.NextOffset; offset == 0 {
			break
		}
	}
	assert.GreaterOrEqual(t, seen, 3*720)
}

func TestPrices(t *testing.T) {
	s := start(t)
	ask := func(change func(*ecs.DescribePriceRequest)) (ecs.Price, string) {
		r := ecs.CreateDescribePriceRequest()
		r.InstanceType, r.ZoneId, r.PriceUnit = small, zoneA, "Hour"
		change(r)
		resp, err := s.ecs.DescribePrice(r)
		if err != nil {
			return ecs.Price{}, codeOf(t, err)
		}
		return resp.PriceInfo.Price, ""
	}
	plain, _ := ask(func(*ecs.DescribePriceRequest) {})
	assert.Equal(t, []any{12.0, 12.0, "CNY"}, []any{plain.TradePrice, plain.OriginalPrice, plain.Currency})
	spot, _ := ask(func(r *ecs.DescribePriceRequest) { r.SpotStrategy = alisim.SpotAsPriceGo })
	assert.Equal(t, []any{4.0, 12.0}, []any{spot.TradePrice, spot.OriginalPrice})
	anywhere, _ := ask(func(r *ecs.DescribePriceRequest) { r.ZoneId = "" })
	assert.Equal(t, 12.0, anywhere.TradePrice)
	_, code := ask(func(r *ecs.DescribePriceRequest) { r.InstanceType = "ecs.unheard-of" })
	assert.Equal(t, "InvalidInstanceType.ValueNotSupported", code)
	_, code = ask(func(r *ecs.DescribePriceRequest) { r.PriceUnit = "Month" })
	assert.Equal(t, "InvalidParameter", code)
}

func TestSpotAdvice(t *testing.T) {
	s := start(t)
	r := ecs.CreateDescribeSpotAdviceRequest()
	r.InstanceTypes, r.ZoneId = &[]string{small, "ecs.unheard-of"}, zoneA
	resp, err := s.ecs.DescribeSpotAdvice(r)
	require.NoError(t, err)
	require.Len(t, resp.AvailableSpotZones.AvailableSpotZone, 1)
	list := resp.AvailableSpotZones.AvailableSpotZone[0].AvailableSpotResources.AvailableSpotResource
	require.Len(t, list, 1)
	assert.Equal(t, []any{small, 33, "0-3"}, []any{list[0].InstanceType, list[0].AverageSpotDiscount, list[0].InterruptRateDesc})
}

func TestStock(t *testing.T) {
	s := start(t)
	s.SetStock(small, zoneA, 0)
	s.SetStock(small, zoneB, 1)
	s.SetOnDemandStock(small, zoneC, 0)
	ask := func(instanceType, strategy string) map[string]string {
		r := ecs.CreateDescribeAvailableResourceRequest()
		r.DestinationResource, r.InstanceType, r.SpotStrategy = "InstanceType", instanceType, strategy
		resp, err := s.ecs.DescribeAvailableResource(r)
		require.NoError(t, err)
		out := map[string]string{}
		for _, z := range resp.AvailableZones.AvailableZone {
			require.Len(t, z.AvailableResources.AvailableResource, 1)
			for _, one := range z.AvailableResources.AvailableResource[0].SupportedResources.SupportedResource {
				assert.Equal(t, instanceType, one.Value)
				out[z.ZoneId] = one.StatusCategory
			}
		}
		return out
	}
	assert.Equal(t, map[string]string{zoneA: "WithoutStock", zoneB: "WithStock", zoneC: "WithStock"}, ask(small, alisim.SpotAsPriceGo))
	assert.Equal(t, map[string]string{zoneA: "WithStock", zoneB: "WithStock", zoneC: "WithoutStock"}, ask(small, alisim.NoSpot))
	assert.Empty(t, ask("ecs.unheard-of", alisim.NoSpot))
	s.buy(spotGroup, 1, target(small, vswB, alisim.SpotAsPriceGo))
	assert.Equal(t, "WithoutStock", ask(small, alisim.SpotAsPriceGo)[zoneB], "the last one was bought")
}

func TestStockIsWrongAsOftenAsTheTemperSays(t *testing.T) {
	s := startUnder(t, func(r *temper.Rules) { r.WrongStockPercent = 100 })
	r := ecs.CreateDescribeAvailableResourceRequest()
	r.DestinationResource, r.InstanceType, r.SpotStrategy, r.InstanceChargeType = "InstanceType", small, alisim.SpotAsPriceGo, "PostPaid"
	resp, err := s.ecs.DescribeAvailableResource(r)
	require.NoError(t, err)
	for _, z := range resp.AvailableZones.AvailableZone {
		assert.Equal(t, "WithoutStock", z.StatusCategory, z.ZoneId)
	}
	s.buy(spotGroup, 1, target(small, vswA, alisim.SpotAsPriceGo))

	r.InstanceChargeType = "PrePaid"
	_, err = s.ecs.DescribeAvailableResource(r)
	assert.ErrorContains(t, err, "SpotStrategy")
}

func TestVSwitches(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.VSwitches[0].AvailableIPs, w.Pools[0].Instances = 10, 3 })
	ask := func(change func(*vpc.DescribeVSwitchesRequest)) []vpc.VSwitch {
		r := vpc.CreateDescribeVSwitchesRequest()
		change(r)
		resp, err := s.vpc.DescribeVSwitches(r)
		require.NoError(t, err)
		return resp.VSwitches.VSwitch
	}
	assert.Len(t, ask(func(*vpc.DescribeVSwitchesRequest) {}), 3)
	one := ask(func(r *vpc.DescribeVSwitchesRequest) { r.VSwitchId = vswA })
	require.Len(t, one, 1)
	assert.Equal(t, []any{vswA, zoneA, int64(7), "Available"}, []any{one[0].VSwitchId, one[0].ZoneId, one[0].AvailableIpAddressCount, one[0].Status})
	assert.Len(t, ask(func(r *vpc.DescribeVSwitchesRequest) { r.ZoneId = zoneB }), 1)
	assert.Empty(t, ask(func(r *vpc.DescribeVSwitchesRequest) { r.VSwitchId = "vsw-x" }))
	assert.Empty(t, ask(func(r *vpc.DescribeVSwitchesRequest) { r.VpcId = "vpc-other" }))
}
