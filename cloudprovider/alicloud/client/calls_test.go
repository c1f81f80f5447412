package client

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// raw is a literal reply, for those whose odd types are the point.
func raw(body string) answer { return answer{status: 200, body: body} }

func TestScalingConfigurations(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"TotalCount":2,"ScalingConfigurations":{"ScalingConfiguration":[
		{"ScalingConfigurationId":"asc-1","ScalingGroupId":"asg-1","InstanceType":"ecs.a","InstanceTypes":{"InstanceType":["ecs.a","ecs.b"]},
		 "SpotStrategy":"SpotWithPriceLimit","SpotDuration":1,"SystemDiskSize":120,"ImageId":"m-1",
		 "SpotPriceLimit":{"SpotPriceModel":[{"InstanceType":"ecs.a","PriceLimit":"1.5"},{"InstanceType":"ecs.b","PriceLimit":2}]},
		 "Tags":{"Tag":[{"Key":"k8s.aliyun.com","Value":"true"}]}},
		{"ScalingConfigurationId":"asc-2","InstanceType":"ecs.c"}]}}`)
	})
	got, err := w.client().ScalingConfigurations(t.Context(), []string{"asc-1", "asc-2"})
	require.NoError(t, err)
	assert.Equal(t, []alicloud.ScalingConfiguration{
		{ID: "asc-1", ScalingGroupID: "asg-1", InstanceTypes: []string{"ecs.a", "ecs.b"}, SpotStrategy: alicloud.SpotWithPriceLimit, SpotDuration: time.Hour,
			SystemDiskGiB: 120, SpotPriceLimits: map[string]float64{"ecs.a": 1.5, "ecs.b": 2}, Tags: map[string]string{"k8s.aliyun.com": "true"},
			Launch: alicloud.LaunchSettings{Parameters: map[string]string{"ImageId": "m-1", "SystemDisk.Size": "120"}}},
		{ID: "asc-2", InstanceTypes: []string{"ecs.c"}, SpotStrategy: alicloud.NoSpot, Tags: map[string]string{},
			Launch: alicloud.LaunchSettings{Parameters: map[string]string{}, Unsupported: []string{"no image"}}},
	}, got)
}

func TestScale(t *testing.T) {
	target := map[string]string{"ScalingGroupId": "asg-1", "AdjustmentType": "QuantityChangeInCapacity", "AdjustmentValue": "7",
		"ClientToken": "tok", "ActivityMetadata": "meta", "ParallelTask": "true", "SyncActivity": "", "InstanceType.1": "ecs.a",
		"VSwitchId.1": "vsw-a", "VSwitchId.2": "vsw-b", "SpotStrategy": "SpotAsPriceGo", "Version": "2014-08-28"}
	for name, test := range map[string]struct {
		change func(*alicloud.ScaleRequest)
		reply  object
		sent   map[string]string
		want   alicloud.Scaling
	}{
		"beside other activities": {reply: object{"ScalingActivityId": "asa-1"}, want: alicloud.Scaling{ActivityID: "asa-1"}},
		"one after the other": {
			change: func(r *alicloud.ScaleRequest) { r.Serial = true },
			reply:  object{"ScalingActivityId": "asa-1"}, sent: map[string]string{"ParallelTask": ""}, want: alicloud.Scaling{ActivityID: "asa-1"},
		},
		"in a group with a desired capacity": {
			change: func(r *alicloud.ScaleRequest) { r.Sync = true },
			reply:  object{"ScalingActivityId": "asa-1"}, sent: map[string]string{"SyncActivity": "true"}, want: alicloud.Scaling{ActivityID: "asa-1"},
		},
		"if only the desired capacity was changed": {
			change: func(r *alicloud.ScaleRequest) { r.Sync = true },
			reply:  object{"ScalingActivityId": "", "ActivityType": "CapacityChange"}, want: alicloud.Scaling{CapacityChange: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, func(url.Values) answer { return ok(test.reply) })
			request := alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 7, ClientToken: "tok", Metadata: "meta",
				InstanceType: "ecs.a", VSwitchIDs: []string{"vsw-a", "vsw-b"}, SpotStrategy: alicloud.SpotAsPriceGo}
			if test.change != nil {
				test.change(&request)
			}
			got, err := w.client().Scale(t.Context(), request)
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
			want := maps.Clone(target)
			delete(want, "SyncActivity")
			maps.Copy(want, test.sent)
			assertParameters(t, want, w.seen("ScaleWithAdjustment")[0])
		})
	}
}

func TestScaleUntargeted(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{"ScalingActivityId": "asa-1"}) })
	_, err := w.client().Scale(t.Context(), buy("t"))
	require.NoError(t, err)
	q := w.seen("ScaleWithAdjustment")[0]
	for _, name := range []string{"InstanceType.1", "VSwitchId.1", "SpotStrategy"} {
		assert.False(t, q.Has(name), name)
	}
}

func TestRemove(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{"ScalingActivityId": "asa-1"}) })
	id, err := w.client().Remove(t.Context(), alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{"i-1", "i-2"}, ClientToken: "tok",
		StopTimeout: 90 * time.Second})
	require.NoError(t, err)
	assert.Equal(t, "asa-1", id)
	assertParameters(t, map[string]string{"ScalingGroupId": "asg-1", "InstanceId.1": "i-1", "InstanceId.2": "i-2", "ClientToken": "tok",
		"DecreaseDesiredCapacity": "true", "IgnoreInvalidInstance": "true", "RemovePolicy": "release", "StopInstanceTimeout": "90"}, w.seen("RemoveInstances")[0])
}

func assertParameters(t *testing.T, want map[string]string, q url.Values) {
	t.Helper()
	for name, value := range want {
		assert.Equal(t, value, q.Get(name), name)
	}
}

func TestRequestsThatAreRefusedHere(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	c := w.client()
	scale := func(s alicloud.ScaleRequest) error { _, err := c.Scale(t.Context(), s); return err }
	remove := func(r alicloud.RemoveRequest) error { _, err := c.Remove(t.Context(), r); return err }
	for name, err := range map[string]error{
		"no group":                 scale(alicloud.ScaleRequest{Delta: 1, ClientToken: "t"}),
		"no token":                 scale(alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 1}),
		"a token that is too long": scale(alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 1, ClientToken: strings.Repeat("t", 65)}),
		"a token beyond ASCII":     scale(alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 1, ClientToken: "tökén"}),
		"nothing to add":           scale(alicloud.ScaleRequest{ScalingGroupID: "asg-1", ClientToken: "t"}),
		"less than nothing":        scale(alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: -1, ClientToken: "t"}),
		"too many at once":         scale(alicloud.ScaleRequest{ScalingGroupID: "asg-1", Delta: 1001, ClientToken: "t"}),
		"nothing to remove":        remove(alicloud.RemoveRequest{ScalingGroupID: "asg-1"}),
		"too many to remove":       remove(alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: make([]string, 21)}),
		"removing from nowhere":    remove(alicloud.RemoveRequest{InstanceIDs: []string{"i-1"}}),
		"too short a stop":         remove(alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{"i-1"}, StopTimeout: 29 * time.Second}),
		"too long a stop":          remove(alicloud.RemoveRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{"i-1"}, StopTimeout: 241 * time.Second}),
	} {
		assert.Equal(t, alicloud.Invalid, alicloud.ClassOf(err), "%s: %v", name, err)
	}
	assert.Empty(t, w.requests)
}

func TestInstanceTypes(t *testing.T) {
	w := newWire(t, func(q url.Values) answer {
		asked := list(q, "InstanceTypes")
		if slices.Contains(asked, "nonsense") {
			return refuse(400, "InvalidInstanceType.ValueNotSupported")
		}
		if slices.Contains(asked, "ecs.arm") {
			return raw(`{"InstanceTypes":{"InstanceType":[
			{"InstanceTypeId":"ecs.gn6v-c8g1.2xlarge","CpuCoreCount":8,"MemorySize":"32.00","GPUAmount":1,"GPUSpec":"NVIDIA V100","GPUMemorySize":16,"CpuArchitecture":"X86"},
			{"InstanceTypeId":"ecs.arm","CpuCoreCount":4,"MemorySize":16,"GPUAmount":0,"GPUSpec":"","CpuArchitecture":"ARM"}]}}`)
		}
		return raw(`{"InstanceTypes":{"InstanceType":[]}}`)
	})
	c := w.client()
	want := []alicloud.InstanceType{
		{ID: "ecs.gn6v-c8g1.2xlarge", VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "NVIDIA V100", GPUMemoryGiB: 16, Arch: "amd64"},
		{ID: "ecs.arm", VCPU: 4, MemoryGiB: 16, Arch: "arm64"},
	}
	got, err := c.InstanceTypes(t.Context(), []string{"ecs.gn6v-c8g1.2xlarge", "ecs.arm"})
	require.NoError(t, err)
	assert.Equal(t, want, got)

	got, err = c.InstanceTypes(t.Context(), []string{"ecs.arm", "nonsense"})
	require.NoError(t, err, "one malformed id does not hide the others")
	assert.Equal(t, want, got)
}

func TestInstances(t *testing.T) {
	w := newWire(t, func(q url.Values) answer {
		var ids []string
		_ = json.Unmarshal([]byte(q.Get("InstanceIds")), &ids)
		assert.LessOrEqual(t, len(ids), 100)
		var found []object
		for _, id := range ids {
			found = append(found, object{"InstanceId": id, "Status": "Running", "InstanceType": "ecs.a", "ZoneId": "z",
				"SpotStrategy": "SpotAsPriceGo", "CreationTime": "2025-01-02T03:04Z"})
		}
		return ok(object{"TotalCount": len(found), "Instances": object{"Instance": found}})
	})
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprintf("i-%03d", i))
	}
	got, err := w.client().Instances(t.Context(), ids)
	require.NoError(t, err)
	require.Len(t, got, 250)
	assert.Len(t, w.seen("DescribeInstances"), 3)
	assert.Equal(t, alicloud.Instance{ID: "i-249", Status: "Running", InstanceType: "ecs.a", ZoneID: "z", SpotStrategy: alicloud.SpotAsPriceGo,
		Created: time.Date(2025, 1, 2, 3, 4, 0, 0, time.UTC)}, got[249])
}

func TestVSwitches(t *testing.T) {
	var all []object
	for i := range 130 {
		all = append(all, object{"VSwitchId": fmt.Sprintf("vsw-%03d", i), "ZoneId": "cn-test-1a", "AvailableIpAddressCount": i})
	}
	w := newWire(t, func(q url.Values) answer {
		found := all
		if id := q.Get("VSwitchId"); id != "" {
			found = slices.DeleteFunc(slices.Clone(all), func(v object) bool { return v["VSwitchId"] != id })
		}
		return pageOf(q, "VSwitches", "VSwitch", found)
	})
	c := w.client()
	got, err := c.VSwitches(t.Context(), []string{"vsw-007", "vsw-nowhere", "vsw-129"})
	require.NoError(t, err)
	assert.Equal(t, []alicloud.VSwitch{{ID: "vsw-007", ZoneID: "cn-test-1a", FreeAddresses: 7}, {ID: "vsw-129", ZoneID: "cn-test-1a", FreeAddresses: 129}}, got)
	assert.Len(t, w.seen("DescribeVSwitches"), 3)

	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("vsw-%03d", 6*i))
	}
	got, err = c.VSwitches(t.Context(), many)
	require.NoError(t, err)
	assert.Len(t, got, 20)
	assert.Len(t, w.seen("DescribeVSwitches"), 3+3, "many are picked from three pages of the region")
}

func TestSpotPriceHistory(t *testing.T) {
	w := newWire(t, func(q url.Values) answer {
		if q.Get("Offset") == "" {
			return raw(`{"Currency":"CNY","NextOffset":2,"SpotPrices":{"SpotPriceType":[
			{"ZoneId":"z-b","InstanceType":"ecs.a","SpotPrice":"1.25","OriginPrice":12.5,"Timestamp":"2025-01-02T05:00:00Z"},
			{"ZoneId":"z-a","InstanceType":"ecs.a","SpotPrice":2,"OriginPrice":12.5,"Timestamp":"2025-01-02T04:00:00Z"}]}}`)
		}
		return raw(`{"NextOffset":0,"SpotPrices":{"SpotPriceType":[{"ZoneId":"z-a","SpotPrice":3,"OriginPrice":12.5,"Timestamp":"2025-01-02T06:00:00Z"}]}}`)
	})
	c := w.client()
	since := time.Now().Add(-2 * time.Hour)
	got, err := c.SpotPriceHistory(t.Context(), "ecs.a", "", true, since)
	require.NoError(t, err)
	at := func(hour int) time.Time { return time.Date(2025, 1, 2, hour, 0, 0, 0, time.UTC) }
	assert.Equal(t, []alicloud.SpotPrice{
		{ZoneID: "z-a", Spot: 2, OnDemand: 12.5, Time: at(4)},
		{ZoneID: "z-b", Spot: 1.25, OnDemand: 12.5, Time: at(5)},
		{ZoneID: "z-a", Spot: 3, OnDemand: 12.5, Time: at(6)},
	}, got)
	q := w.seen("DescribeSpotPriceHistory")[0]
	assertParameters(t, map[string]string{"InstanceType": "ecs.a", "NetworkType": "vpc", "StartTime": since.UTC().Format(time.RFC3339), "ZoneId": "", "SpotDuration": ""}, q)

	_, err = c.SpotPriceHistory(t.Context(), "ecs.a", "z-a", false, time.Time{})
	require.NoError(t, err)
	q = w.seen("DescribeSpotPriceHistory")[2]
	start, err := time.Parse(time.RFC3339, q.Get("StartTime"))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(-historyReach), start, 2*time.Minute, "no further back than the API goes")
	assertParameters(t, map[string]string{"ZoneId": "z-a", "SpotDuration": "0"}, q)
}

func TestSpotStock(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"AvailableZones":{"AvailableZone":[
			{"ZoneId":"z-a","Status":"Available","StatusCategory":"WithStock","AvailableResources":{"AvailableResource":[{"Type":"InstanceType","SupportedResources":{"SupportedResource":[
				{"Value":"ecs.a","Status":"Available","StatusCategory":"WithStock"}, {"Value":"ecs.b","Status":"Available","StatusCategory":"WithStock"}]}}]}},
			{"ZoneId":"z-b","AvailableResources":{"AvailableResource":[{"Type":"InstanceType","SupportedResources":{"SupportedResource":[
				{"Value":"ecs.a","Status":"SoldOut","StatusCategory":"WithoutStock"}]}}]}},
			{"ZoneId":"z-c","AvailableResources":{"AvailableResource":[{"Type":"InstanceType","SupportedResources":{"SupportedResource":[
				{"Value":"ecs.a","Status":"Available","StatusCategory":"PerhapsTomorrow"}]}}]}}]}}`)
	})
	got, err := w.client().SpotStock(t.Context(), "ecs.a")
	require.NoError(t, err)
	assert.Equal(t, []alicloud.Stock{{ZoneID: "z-a", Category: alicloud.WithStock}, {ZoneID: "z-b", Category: alicloud.WithoutStock}}, got,
		"another type does not count, nor does a word that is not known")
	assertParameters(t, map[string]string{"DestinationResource": "InstanceType", "InstanceType": "ecs.a", "SpotStrategy": "SpotAsPriceGo",
		"InstanceChargeType": "PostPaid", "IoOptimized": "optimized", "NetworkCategory": "vpc", "ZoneId": ""}, w.seen("DescribeAvailableResource")[0])
}

func TestSpotStrengths(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"ElasticStrength":"Strong","ResourcePools":[
			{"InstanceType":"ecs.a","ZoneId":"z-a","Status":"Available","ElasticStrength":"Strong","InventoryHealth":{"HealthScore":-3}},
			{"InstanceType":"ecs.a","ZoneId":"z-b","Status":"Unavailable","ElasticStrength":"Weak","Code":"OperationDenied.NoStock"},
			{"InstanceType":"ecs.b","ZoneId":"z-a","Status":"Available","ElasticStrength":"PerhapsTomorrow","InventoryHealth":{"HealthScore":6}},
			{"InstanceType":"ecs.b","ZoneId":"z-b","Status":"Unavailable","ElasticStrength":"Weak","Code":"IMG_NOT_SUPPORTED"},
			{"InstanceType":"ecs.b","ZoneId":"z-c","Status":"Unavailable","ElasticStrength":"Weak"},
			{"InstanceType":"ecs.c","ZoneId":"z-a","Status":"Available","InventoryHealth":{"HealthScore":5}},
			{"InstanceType":"ecs.c","ZoneId":"z-b","Status":"Available","InventoryHealth":{"HealthScore":4}},
			{"InstanceType":"ecs.c","ZoneId":"z-c","Status":"Available","InventoryHealth":{"HealthScore":"0"}},
			{"InstanceType":"ecs.c","ZoneId":"z-d","Status":"Available","Strength":0.6}]}`)
	})
	got, err := w.client().SpotStrengths(t.Context(), "asg-1")
	require.NoError(t, err)
	assert.Equal(t, []alicloud.OfferingStrength{
		{InstanceType: "ecs.a", ZoneID: "z-a", Strength: alicloud.Strong}, {InstanceType: "ecs.a", ZoneID: "z-b", Strength: alicloud.Weak},
		{InstanceType: "ecs.c", ZoneID: "z-a", Strength: alicloud.Strong}, {InstanceType: "ecs.c", ZoneID: "z-b", Strength: alicloud.Medium}, {InstanceType: "ecs.c", ZoneID: "z-c", Strength: alicloud.Weak},
	}, got, "words that are not known do not count, nor does what the image or the disks forbid; without a word the score of the inventory does")
	assertParameters(t, map[string]string{"ScalingGroupId": "asg-1", "SpotStrategy": "SpotAsPriceGo", "PriorityStrategy": ""},
		w.seen("DescribeElasticStrength")[0])
}

func TestOnDemandPrice(t *testing.T) {
	tests := []struct {
		name  string
		reply func(q url.Values) answer
		price float64
		class alicloud.Class
	}{
		{"the instance alone", func(url.Values) answer {
			return raw(`{"PriceInfo":{"Price":{"TradePrice":12.8,"OriginalPrice":13,"DetailInfos":{"DetailInfo":[{"Resource":"systemDisk","TradePrice":0.3},{"Resource":"instanceType","TradePrice":12.5}]}}}}`)
		}, 12.5, ""},
		{"no details", func(url.Values) answer {
			return raw(`{"PriceInfo":{"Price":{"TradePrice":"12.8","OriginalPrice":13}}}`)
		}, 12.8, ""},
		{"the list price only", func(url.Values) answer { return raw(`{"PriceInfo":{"Price":{"OriginalPrice":13}}}`) }, 13, ""},
		{"an old type without ESSD", func(q url.Values) answer {
			if q.Get("SystemDisk.Category") != "" {
				return refuse(400, "InvalidSystemDiskCategory.ValueNotSupported")
			}
			return raw(`{"PriceInfo":{"Price":{"TradePrice":7}}}`)
		}, 7, ""},
		{"an unknown type", func(url.Values) answer { return refuse(404, "InvalidInstanceType.NotFound") }, 0, alicloud.NotFound},
		{"no price in the reply", func(url.Values) answer { return raw(`{}`) }, 0, alicloud.NotFound},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(t, test.reply)
			price, err := w.client().OnDemandPrice(t.Context(), "ecs.a", "z-a")
			assert.Equal(t, test.class, alicloud.ClassOf(err))
			assert.InDelta(t, test.price, price, 1e-9)
			assertParameters(t, map[string]string{"ResourceType": "instance", "InstanceType": "ecs.a", "ZoneId": "z-a", "PriceUnit": "Hour"},
				w.seen("DescribePrice")[0])
		})
	}
}
