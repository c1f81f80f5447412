package settings

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		tags map[string]string
		want Settings
	}{
		"no tags": {},
		"foreign tags are ignored": {
			tags: map[string]string{
				"team": "vision", "k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/prod": "owned",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/zeroormaxnodescaling": "true",
				"k8s.io/cluster-autoscaler/node-template/something-new/x":                          "?",
			},
		},
		"every setting of ours": {
			tags: map[string]string{
				"gpu-spot.autoscaling/min-size":                             "1",
				"gpu-spot.autoscaling/max-size":                             " 16 ",
				"gpu-spot.autoscaling/price-cap":                            "12.5",
				"gpu-spot.autoscaling/price-cap-per-gpu":                    "4",
				"gpu-spot.autoscaling/price-cap/ecs.gn7i-c8g1.2xlarge":      "3.9",
				"gpu-spot.autoscaling/cooldown":                             "10m",
				"gpu-spot.autoscaling/targeting":                            "whole",
				"gpu-spot.autoscaling/shared-gpu":                           "true",
				"gpu-spot.autoscaling/buy-for-cpu-pods":                     "true",
				"gpu-spot.autoscaling/value-of-time":                        "0",
				"gpu-spot.autoscaling/scale-down-unneeded-time":             "5m",
				"gpu-spot.autoscaling/scale-down-unready-time":              "15m",
				"gpu-spot.autoscaling/max-node-provision-time":              "8m",
				"gpu-spot.autoscaling/scale-down-utilization-threshold":     "0.4",
				"gpu-spot.autoscaling/scale-down-gpu-utilization-threshold": "0",
				"gpu-spot.autoscaling/ignore-daemonsets-utilization":        "true",
				"gpu-spot.autoscaling/label/tier":                           "batch",
				"gpu-spot.autoscaling/taint/dedicated":                      "gpu:NoSchedule",
				"gpu-spot.autoscaling/resources/pods":                       "64",
			},
			want: Settings{
				MinSize: ptr.To(1), MaxSize: ptr.To(16),
				PriceCap: 12.5, PriceCapPerGPU: 4,
				PriceCapByType:                   map[string]float64{"ecs.gn7i-c8g1.2xlarge": 3.9},
				Cooldown:                         ptr.To(10 * time.Minute),
				Targeting:                        TargetingWhole,
				SharedGPU:                        true,
				BuyForCPUPods:                    true,
				ValueOfTime:                      ptr.To(0.0),
				ScaleDownUnneededTime:            ptr.To(5 * time.Minute),
				ScaleDownUnreadyTime:             ptr.To(15 * time.Minute),
				MaxNodeProvisionTime:             ptr.To(8 * time.Minute),
				ScaleDownUtilizationThreshold:    ptr.To(0.4),
				ScaleDownGPUUtilizationThreshold: ptr.To(0.0),
				IgnoreDaemonSetsUtilization:      ptr.To(true),
				Labels:                           map[string]string{"tier": "batch"},
				Taints:                           []apiv1.Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}},
				Resources:                        apiv1.ResourceList{"pods": resource.MustParse("64")},
			},
		},
		"upstream's keys": {
			tags: map[string]string{
				"k8s.io/cluster-autoscaler/node-template/label/example.com/tier":                               "batch",
				"k8s.io/cluster-autoscaler/node-template/taint/example.com/b":                                  ":NoExecute",
				"k8s.io/cluster-autoscaler/node-template/taint/example.com/a":                                  "x:PreferNoSchedule",
				"k8s.io/cluster-autoscaler/node-template/resources/aliyun/member-eni":                          "13",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime":            "1m30s",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunreadytime":             "1h",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/maxnodeprovisiontime":             "20m",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownutilizationthreshold":    "0.3",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaleDownGpuUtilizationThreshold": "1",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/ignoredaemonsetsutilization":      "false",
			},
			want: Settings{
				Labels: map[string]string{"example.com/tier": "batch"},
				Taints: []apiv1.Taint{
					{Key: "example.com/a", Value: "x", Effect: "PreferNoSchedule"},
					{Key: "example.com/b", Effect: "NoExecute"},
				},
				Resources:                        apiv1.ResourceList{"aliyun/member-eni": resource.MustParse("13")},
				ScaleDownUnneededTime:            ptr.To(90 * time.Second),
				ScaleDownUnreadyTime:             ptr.To(time.Hour),
				MaxNodeProvisionTime:             ptr.To(20 * time.Minute),
				ScaleDownUtilizationThreshold:    ptr.To(0.3),
				ScaleDownGPUUtilizationThreshold: ptr.To(1.0),
				IgnoreDaemonSetsUtilization:      ptr.To(false),
			},
		},
		"upstream's keys without slashes": {
			tags: map[string]string{
				"k8s.io_cluster-autoscaler_node-template_label_example.com_my~2tier":                "batch",
				"k8s.io_cluster-autoscaler_node-template_taint_dedicated":                           "gpu:NoSchedule",
				"k8s.io_cluster-autoscaler_node-template_resources_nvidia.com~2gpu":                 "4",
				"k8s.io_cluster-autoscaler_node-template_autoscaling-options_scaledownunneededtime": "2m",
			},
			want: Settings{
				Labels:                map[string]string{"example.com/my_tier": "batch"},
				Taints:                []apiv1.Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}},
				Resources:             apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse("4")},
				ScaleDownUnneededTime: ptr.To(2 * time.Minute),
			},
		},
		"our own key wins over upstream's": {
			tags: map[string]string{
				"k8s.io_cluster-autoscaler_node-template_label_tier":                                "1",
				"k8s.io/cluster-autoscaler/node-template/label/tier":                                "2",
				"gpu-spot.autoscaling/label/tier":                                                   "3",
				"k8s.io/cluster-autoscaler/node-template/taint/dedicated":                           "a:NoSchedule",
				"gpu-spot.autoscaling/taint/dedicated":                                              "b:NoExecute",
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": "1m",
				"gpu-spot.autoscaling/scale-down-unneeded-time":                                     "9m",
			},
			want: Settings{
				Labels:                map[string]string{"tier": "3"},
				Taints:                []apiv1.Taint{{Key: "dedicated", Value: "b", Effect: "NoExecute"}},
				ScaleDownUnneededTime: ptr.To(9 * time.Minute),
			},
		},
		"ACK's own tags become the labels that ACK makes of them": {
			tags: map[string]string{"ack.alibabacloud.com/nodepool-id": "np1234", "ack.aliyun.com": "c1234"},
			want: Settings{Labels: map[string]string{
				"alibabacloud.com/nodepool-id": "np1234", "node.alibabacloud.com/nodepool-id": "np1234", "ack.aliyun.com": "c1234",
			}},
		},
		"ACK's own tags never break a pool": {
			tags: map[string]string{"ack.alibabacloud.com/nodepool-id": "not a label"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse(test.tags)
			if err != nil {
				t.Fatal(err)
			}
			if test.want.Purchase == "" {
				test.want.Purchase = PurchaseByScaling
			}
			if test.want.Targeting == "" {
				test.want.Targeting = TargetingAuto
			}
			if !sameResources(got.Resources, test.want.Resources) {
				t.Errorf("resources %v, want %v", got.Resources, test.want.Resources)
			}
			got.Resources, test.want.Resources = nil, nil
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got  %+v\nwant %+v", got, test.want)
			}
		})
	}
}

// sameResources compares by amount: quantities remember how they were spelt.
func sameResources(a, b apiv1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, quantity := range a {
		if other, ok := b[name]; !ok || quantity.Cmp(other) != 0 {
			return false
		}
	}
	return true
}

func TestParseSettingsNamesTheTagThatDoesNotParse(t *testing.T) {
	const (
		own      = "gpu-spot.autoscaling/"
		upstream = "k8s.io/cluster-autoscaler/node-template/"
		options  = upstream + "autoscaling-options/"
	)
	for name, test := range map[string]struct{ key, value string }{
		"a misspelt setting":                 {own + "max-sise", "3"},
		"a setting with a tail":              {own + "max-size/x", "3"},
		"the bare prefix":                    {own, "3"},
		"a node's label taken for a setting": {own + "reclaiming", "true"},
		"a size that is no number":           {own + "max-size", "many"},
		"a size left empty":                  {own + "max-size", ""},
		"a negative size":                    {own + "min-size", "-1"},
		"an absurd size":                     {own + "max-size", "200000"},
		"half an instance":                   {own + "max-size", "1.5"},
		"a negative price":                   {own + "price-cap", "-0.1"},
		"a price with its currency":          {own + "price-cap", "12 CNY"},
		"a price that is not a number":       {own + "price-cap", "NaN"},
		"an endless price":                   {own + "price-cap-per-gpu", "Inf"},
		"an absurd price":                    {own + "price-cap", "1e300"},
		"a negative value of time":           {own + "value-of-time", "-1"},
		"a value of time that is no number":  {own + "value-of-time", "NaN"},
		"an absurd value of time":            {own + "value-of-time", "1000001"},
		"the cap of no type":                 {own + "price-cap/", "3"},
		"the cap of a thing":                 {own + "price-cap/a10", "3"},
		"a bad cap of a type":                {own + "price-cap/ecs.gn7i-c8g1.2xlarge", "cheap"},
		"a duration without unit":            {own + "cooldown", "10"},
		"a negative duration":                {own + "cooldown", "-1m"},
		"an absurd duration":                 {own + "cooldown", "9000h"},
		"an unknown targeting":               {own + "targeting", "single"},
		"a shared GPU of a kind":             {own + "shared-gpu", "cgpu"},
		"a threshold in per cent":            {own + "scale-down-utilization-threshold", "50"},
		"a provision time of nothing":        {own + "max-node-provision-time", "0s"},
		"a bad upstream duration":            {options + "scaledownunneededtime", "soon"},
		"a bad upstream threshold":           {options + "scaledowngpuutilizationthreshold", "-1"},
		"a bad upstream switch":              {options + "ignoredaemonsetsutilization", "sometimes"},
		"a taint without effect":             {upstream + "taint/dedicated", "gpu"},
		"a taint with an unknown effect":     {upstream + "taint/dedicated", "gpu:Never"},
		"a taint with a bad value":           {upstream + "taint/dedicated", "g p u:NoSchedule"},
		"a taint without key":                {upstream + "taint/", "gpu:NoSchedule"},
		"a label without key":                {upstream + "label/", "x"},
		"a label with a bad key":             {upstream + "label/a b", "x"},
		"a label with a bad value":           {upstream + "label/tier", "a/b"},
		"a resource that is no quantity":     {upstream + "resources/cpu", "a lot"},
		"a negative resource":                {upstream + "resources/nvidia.com/gpu", "-1"},
		"an absurd resource":                 {upstream + "resources/memory", "4Ei"},
		"a fraction of a GPU":                {own + "resources/nvidia.com/gpu", "500m"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(Merge(map[string]string{own + "min-size": "0"}, map[string]string{test.key: test.value}))
			var tagError *TagError
			if !errors.As(err, &tagError) {
				t.Fatalf("got %v, want a TagError", err)
			}
			if tagError.Key != test.key || tagError.Value != test.value || tagError.Reason == "" {
				t.Errorf("the error is about %+v", *tagError)
			}
			if message := err.Error(); !strings.Contains(message, test.key) || !strings.Contains(message, test.value) {
				t.Errorf("the message does not name key and value: %s", message)
			}
		})
	}
}

func TestParseSettingsReportsEveryBrokenTagByKey(t *testing.T) {
	settings, err := Parse(map[string]string{
		"gpu-spot.autoscaling/targeting": "x", "gpu-spot.autoscaling/cooldown": "x", "gpu-spot.autoscaling/price-cap": "1",
		"gpu-spot.autoscaling/min-size": "5", "gpu-spot.autoscaling/max-size": "3",
	})
	var keys []string
	for _, one := range err.(interface{ Unwrap() []error }).Unwrap() {
		keys = append(keys, strings.TrimPrefix(one.(*TagError).Key, "gpu-spot.autoscaling/"))
	}
	if want := []string{"cooldown", "min-size", "targeting"}; !reflect.DeepEqual(keys, want) {
		t.Errorf("errors about %v, want %v", keys, want)
	}
	if settings.PriceCap != 1 {
		t.Error("what did parse is missing")
	}
}

func TestMergeTagsLetsLaterLayersWin(t *testing.T) {
	configuration := map[string]string{"a": "1", "b": "1"}
	got := Merge(configuration, nil, map[string]string{"b": "2", "c": "2"})
	if want := map[string]string{"a": "1", "b": "2", "c": "2"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if configuration["b"] != "1" {
		t.Error("a layer was changed")
	}
}

func TestOptions(t *testing.T) {
	defaults := config.NodeGroupAutoscalingOptions{
		ScaleDownUtilizationThreshold: 0.5, ScaleDownGpuUtilizationThreshold: 0.6,
		ScaleDownUnneededTime: 10 * time.Minute, ScaleDownUnreadyTime: 20 * time.Minute,
		MaxNodeProvisionTime: 15 * time.Minute, IgnoreDaemonSetsUtilization: true,
	}
	t.Run("without tags they are the defaults", func(t *testing.T) {
		if got := (Settings{}).Options(defaults); *got != defaults {
			t.Errorf("got %+v", *got)
		}
	})
	t.Run("tags replace them, also by zero", func(t *testing.T) {
		settings := Settings{
			ScaleDownUnneededTime: ptr.To(time.Minute), ScaleDownGPUUtilizationThreshold: ptr.To(0.0),
			IgnoreDaemonSetsUtilization: ptr.To(false),
		}
		want := defaults
		want.ScaleDownUnneededTime, want.ScaleDownGpuUtilizationThreshold = time.Minute, 0
		want.IgnoreDaemonSetsUtilization = false
		if got := settings.Options(defaults); *got != want {
			t.Errorf("got %+v, want %+v", *got, want)
		}
	})
	t.Run("a pool is never bought all or nothing", func(t *testing.T) {
		zeroOrMax := defaults
		zeroOrMax.ZeroOrMaxNodeScaling = true
		if (Settings{}).Options(zeroOrMax).ZeroOrMaxNodeScaling {
			t.Error("it is")
		}
	})
}

func TestCapFor(t *testing.T) {
	a10x4 := alicloud.InstanceType{ID: "ecs.gn7i-4x.8xlarge", GPUs: 4}
	for name, test := range map[string]struct {
		settings Settings
		want     float64
		capped   bool
	}{
		"none":                        {},
		"the pool's":                  {Settings{PriceCap: 10}, 10, true},
		"per GPU":                     {Settings{PriceCapPerGPU: 2}, 8, true},
		"the type's":                  {Settings{PriceCapByType: map[string]float64{a10x4.ID: 7}}, 7, true},
		"another type's":              {Settings{PriceCapByType: map[string]float64{"ecs.gn6v-c8g1.2xlarge": 7}}, 0, false},
		"the tightest is the pool's":  {Settings{PriceCap: 5, PriceCapPerGPU: 2, PriceCapByType: map[string]float64{a10x4.ID: 7}}, 5, true},
		"the tightest is per GPU":     {Settings{PriceCap: 5, PriceCapPerGPU: 1, PriceCapByType: map[string]float64{a10x4.ID: 7}}, 4, true},
		"the tightest is the type's":  {Settings{PriceCap: 5, PriceCapPerGPU: 2, PriceCapByType: map[string]float64{a10x4.ID: 3}}, 3, true},
		"a type's cap of 0 is no cap": {Settings{PriceCap: 5, PriceCapByType: map[string]float64{a10x4.ID: 0}}, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got, capped := test.settings.CapFor(a10x4); got != test.want || capped != test.capped {
				t.Errorf("got %v, %v, want %v, %v", got, capped, test.want, test.capped)
			}
		})
	}
	t.Run("per GPU does not cap a type without GPUs", func(t *testing.T) {
		if _, capped := (Settings{PriceCapPerGPU: 2}).CapFor(alicloud.InstanceType{ID: "ecs.g7.large"}); capped {
			t.Error("it does")
		}
	})
}

func TestPriceCapOfATypeFitsIntoAnAnnotation(t *testing.T) {
	settings, err := Parse(map[string]string{"gpu-spot.autoscaling/price-cap_ecs.gn7i-c8g1.2xlarge": "3.9"})
	if err != nil || settings.PriceCapByType["ecs.gn7i-c8g1.2xlarge"] != 3.9 {
		t.Errorf("got %v, %v", settings.PriceCapByType, err)
	}
}
