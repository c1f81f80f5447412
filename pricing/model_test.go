package pricing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// list is a Prices with fixed prices.
type list map[Offering]float64

func (l list) Price(o Offering) (float64, bool) {
	price, ok := l[o]
	return price, ok
}
func (l list) Known() map[Offering]float64 { return l }
func (l list) Currency() string            { return "CNY" }

var priceList = list{
	{InstanceType: v100, Zone: "a", Spot: true}: 4,
	{InstanceType: v100, Zone: "b", Spot: true}: 6,
	{InstanceType: v100, Zone: "a"}:             20,
	{InstanceType: a10, Zone: "a", Spot: true}:  12, // four GPUs
}

func shapes(instanceType string) (Shape, bool) {
	shape, ok := map[string]Shape{
		v100: {VCPU: 8, MemoryGiB: 32, GPUs: 1},
		a10:  {VCPU: 32, MemoryGiB: 64, GPUs: 4},
	}[instanceType]
	return shape, ok
}

func node(labels ...string) *apiv1.Node {
	n := &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	return n
}

const (
	typeLabel = apiv1.LabelInstanceTypeStable
	zoneLabel = apiv1.LabelTopologyZone
)

func TestNodePrice(t *testing.T) {
	candidates := func(n *apiv1.Node) []Offering {
		if n.Labels["pool"] == "" {
			return nil
		}
		return []Offering{{InstanceType: v100, Zone: "a", Spot: true}, {InstanceType: v100, Zone: "a"}, {InstanceType: "unheard-of"}}
	}
	tests := []struct {
		name  string
		node  *apiv1.Node
		price float64 // 0 is unknown
	}{
		{"spot by our label", node(typeLabel, v100, zoneLabel, "b", api.LabelPurchaseOption, "spot"), 6},
		{"spot by ACK's label", node(typeLabel, v100, zoneLabel, "b", api.LabelSpotStrategy, "SpotAsPriceGo"), 6},
		{"a bid is spot", node(typeLabel, v100, zoneLabel, "b", api.LabelSpotStrategy, "SpotWithPriceLimit"), 6},
		{"our label wins", node(typeLabel, v100, zoneLabel, "a", api.LabelSpotStrategy, "NoSpot", api.LabelPurchaseOption, "spot"), 4},
		{"NoSpot is on-demand", node(typeLabel, v100, zoneLabel, "a", api.LabelSpotStrategy, "NoSpot"), 20},
		{"no word is on-demand", node(typeLabel, v100, zoneLabel, "a"), 20},
		{"any zone costs the dearest", node(typeLabel, v100, api.LabelPurchaseOption, "spot"), 6},
		{"any type costs the dearest", node(typeLabel, "any", zoneLabel, "any", api.LabelPurchaseOption, "spot"), 12},
		{"any on-demand", node(api.LabelPurchaseOption, "on-demand"), 20},
		{"candidates decide", node("pool", "p", typeLabel, "any", api.LabelPurchaseOption, "spot"), 20},
		{"a type without a price", node(typeLabel, "ecs.unknown", zoneLabel, "a"), 0},
		{"a type without a price in any zone", node(typeLabel, "ecs.unknown"), 0},
	}
	start := time.Unix(1e9, 0)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			m := NewModel(ModelConfig{Prices: priceList, Candidates: candidates})
			price, err := m.NodePrice(test.node, start, start.Add(90*time.Minute))
			if test.price == 0 {
				assert.ErrorIs(t, err, ErrNoPrice)
				return
			}
			assert.NoError(t, err)
			assert.InDelta(t, 1.5*test.price, price, 1e-9)
		})
	}
}

func pod(name string, requests ...string) *apiv1.Pod {
	list := apiv1.ResourceList{}
	for i := 0; i < len(requests); i += 2 {
		list[apiv1.ResourceName(requests[i])] = resource.MustParse(requests[i+1])
	}
	return &apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: apiv1.PodSpec{Containers: []apiv1.Container{{Resources: apiv1.ResourceRequirements{Requests: list}}}}}
}

func TestPodPrice(t *testing.T) {
	tests := []struct {
		name  string
		pod   *apiv1.Pod
		price float64 // 0 with unknown
	}{
		{"a GPU on the cheapest per GPU", pod("p", "nvidia.com/gpu", "1", "cpu", "7"), 3},
		{"several GPUs", pod("p", "nvidia.com/gpu", "8"), 24},
		{"GPUs that ACK's scheduler assigns by their interconnect", pod("p", "aliyun.com/gpu", "2", "cpu", "7"), 6},
		{"half a GPU by memory", pod("p", "aliyun.com/gpu-mem", "8"), 1.5},
		{"CPU alone", pod("p", "cpu", "8"), 3},
		{"memory is what counts", pod("p", "cpu", "1", "memory", "32Gi"), 4},
	}
	start := time.Unix(1e9, 0)
	m := NewModel(ModelConfig{Prices: priceList, Shape: shapes})
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			price, err := m.PodPrice(test.pod, start, start.Add(time.Hour))
			assert.NoError(t, err)
			assert.InDelta(t, test.price, price, 1e-9)
		})
	}
	for name, m := range map[string]*Model{
		"no prices":      NewModel(ModelConfig{Prices: list{}, Shape: shapes}),
		"no shapes":      NewModel(ModelConfig{Prices: priceList}),
		"unknown shapes": NewModel(ModelConfig{Prices: list{{InstanceType: "ecs.unknown"}: 1}, Shape: shapes}),
	} {
		_, err := m.PodPrice(pod("p", "nvidia.com/gpu", "1"), start, start.Add(time.Hour))
		assert.ErrorIs(t, err, ErrNoPrice, name)
	}
}

func TestTimeThatRunsBackwardsCostsNothing(t *testing.T) {
	now := time.Unix(1e9, 0)
	price, err := NewModel(ModelConfig{Prices: priceList}).NodePrice(node(typeLabel, v100, zoneLabel, "a"), now, now.Add(-time.Hour))
	assert.NoError(t, err)
	assert.Zero(t, price)
}

func TestADearOfferingCountsForMore(t *testing.T) {
	model := NewModel(ModelConfig{Prices: priceList, Shape: shapes, Dearness: func(o Offering) float64 {
		if o.Zone == "a" && o.Spot {
			return 2
		}
		return 1
	}})
	for name, test := range map[string]struct {
		node             *apiv1.Node
		expected, market float64
	}{
		"with":                         {node(typeLabel, v100, zoneLabel, "a", api.LabelPurchaseOption, "spot"), 8, 4},
		"without":                      {node(typeLabel, v100, zoneLabel, "b", api.LabelPurchaseOption, "spot"), 6, 6},
		"the dearest with, of several": {node(typeLabel, v100, api.LabelPurchaseOption, "spot"), 8, 6},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1e9, 0)
			expected, err := model.NodePrice(test.node, now, now.Add(time.Hour))
			assert.NoError(t, err)
			assert.Equal(t, test.expected, expected)
			market, known := model.MarketPrice(test.node)
			assert.True(t, known)
			assert.Equal(t, test.market, market)
		})
	}
}
