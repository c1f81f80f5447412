package pricing

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/expander/factory"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

type group struct {
	cloudprovider.NodeGroup
	id string
}

func (g *group) Id() string { return g.id }

// bid is one option of a test.
type bid struct {
	id    string
	price float64 // of one node; 0 is unknown
	nodes int
	pods  int
	gpus  int // each pod asks for
}

// options turns bids into what Cluster Autoscaler hands an expander, with a price list that knows their prices.
func options(bids []bid) ([]expander.Option, map[string]*framework.NodeInfo, *Model) {
	prices := list{}
	infos := map[string]*framework.NodeInfo{}
	var out []expander.Option
	for _, b := range bids {
		if b.price > 0 {
			prices[Offering{InstanceType: b.id, Zone: "a", Spot: true}] = b.price
		}
		infos[b.id] = framework.NewTestNodeInfo(node(typeLabel, b.id, zoneLabel, "a", api.LabelPurchaseOption, "spot"))
		o := expander.Option{NodeGroup: &group{id: b.id}, NodeCount: b.nodes, Debug: "debug"}
		for i := range b.pods {
			p := pod(fmt.Sprint("p", i), "cpu", "2")
			if b.gpus > 0 {
				p = pod(fmt.Sprint("p", i), "cpu", "2", "nvidia.com/gpu", fmt.Sprint(b.gpus))
			}
			o.Pods = append(o.Pods, p)
		}
		out = append(out, o)
	}
	return out, infos, NewModel(ModelConfig{Prices: prices})
}

func leastPrice(model cloudprovider.PricingModel, explain func(Decision)) *LeastPrice {
	return NewLeastPrice(model, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)), explain)
}

func TestLeastPrice(t *testing.T) {
	tests := []struct {
		name     string
		bids     []bid
		best     string
		runnerUp string
	}{
		{"the only one", []bid{{"x", 5, 1, 1, 1}}, "x", ""},
		{"the cheaper of two", []bid{{"x", 5, 1, 1, 1}, {"y", 4, 1, 1, 1}}, "y", "x"},
		{"cheaper per GPU, not per node", []bid{{"x", 5, 1, 1, 1}, {"y", 30, 1, 8, 1}}, "y", "x"},
		{"helping more does not make it dearer", []bid{{"x", 5, 1, 1, 1}, {"y", 5, 1, 2, 1}}, "y", "x"},
		{"big pods", []bid{{"x", 10, 2, 2, 1}, {"y", 30, 1, 1, 8}}, "y", "x"},
		{"equal: fewer nodes", []bid{{"x", 5, 8, 8, 1}, {"y", 40, 1, 8, 1}}, "y", "x"},
		{"equal: more pods", []bid{{"x", 8, 1, 2, 4}, {"y", 8, 1, 8, 1}}, "y", "x"},
		{"equal: by id", []bid{{"y", 5, 1, 1, 1}, {"x", 5, 1, 1, 1}}, "x", "y"},
		{"sums of floats are equal too", []bid{{"x", .1, 3, 3, 1}, {"y", .3, 1, 3, 1}}, "y", "x"},
		{"without GPUs per CPU", []bid{{"x", 4, 1, 1, 0}, {"y", 6, 1, 2, 0}}, "y", "x"},
		{"GPU pods have the right of way", []bid{{"x", .1, 1, 1, 0}, {"y", 6, 1, 1, 1}}, "y", "x"},
		{"an unknown price comes last", []bid{{"x", 0, 1, 1, 1}, {"y", 99, 1, 1, 1}}, "y", "x"},
		{"even for GPUs", []bid{{"x", 0, 1, 1, 1}, {"y", 99, 1, 1, 0}}, "y", "x"},
		{"but is taken where there is no other", []bid{{"x", 0, 2, 2, 1}, {"y", 0, 1, 2, 1}}, "y", "x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			opts, infos, model := options(test.bids)
			for range 10 { // whatever the order
				rand.Shuffle(len(opts), func(i, j int) { opts[i], opts[j] = opts[j], opts[i] })
				var decisions []Decision
				got := leastPrice(model, func(d Decision) { decisions = append(decisions, d) }).BestOptions(opts, infos)
				require.Len(t, got, 1)
				assert.Equal(t, test.best, got[0].NodeGroup.Id())
				assert.Contains(t, got[0].Debug, "debug | least-price: "+test.best)

				require.Len(t, decisions, 1)
				assert.Equal(t, test.best, decisions[0].Chosen.NodeGroup)
				assert.Equal(t, len(test.bids)-1, decisions[0].Alternatives)
				if test.runnerUp == "" {
					assert.Nil(t, decisions[0].RunnerUp)
				} else {
					assert.Equal(t, test.runnerUp, decisions[0].RunnerUp.NodeGroup)
				}
			}
		})
	}
}

func TestDecisionInNumbers(t *testing.T) {
	opts, infos, model := options([]bid{{"x", 5, 2, 4, 1}, {"y", 0, 1, 4, 1}, {"z", 3, 1, 1, 0}})
	var d Decision
	leastPrice(model, func(got Decision) { d = got }).BestOption(opts, infos)
	assert.Equal(t, Candidate{NodeGroup: "x", Nodes: 2, Pods: 4, GPUs: 4, CPUs: 8, Price: 10, Priced: true, Currency: "CNY"}, d.Chosen)
	assert.Equal(t, "x: 2 nodes for 4 pods, 10.000 CNY per hour, 2.500 CNY per GPU-hour", d.Chosen.String())
	assert.Equal(t, "z: 1 nodes for 1 pods, 3.000 CNY per hour, 1.500 CNY per CPU-hour", d.RunnerUp.String())
	assert.Equal(t, 2, d.Alternatives)
	assert.Equal(t, "y: 1 nodes for 4 pods, price unknown", Candidate{NodeGroup: "y", Nodes: 1, Pods: 4}.String())
	assert.Equal(t, "m: 2 nodes, 6.000 per hour", Candidate{NodeGroup: "m", Nodes: 2, Price: 6, Priced: true}.String(), "for the minimum of a pool")
}

func TestNothingToChooseFrom(t *testing.T) {
	l := leastPrice(NewModel(ModelConfig{Prices: list{}}), nil)
	assert.Nil(t, l.BestOption(nil, nil))
	assert.Empty(t, l.BestOptions(nil, nil))
}

func TestATemplateThatIsMissingStopsNothing(t *testing.T) {
	opts, infos, model := options([]bid{{"x", 5, 1, 1, 1}, {"y", 50, 1, 1, 1}})
	delete(infos, "x")
	assert.Equal(t, "y", leastPrice(model, nil).BestOption(opts, infos).NodeGroup.Id())
	assert.Equal(t, "x", leastPrice(model, nil).BestOption(opts, nil).NodeGroup.Id())
}

func TestOptionsAreLeftAlone(t *testing.T) {
	opts, infos, model := options([]bid{{"x", 5, 1, 1, 1}, {"y", 4, 1, 1, 1}})
	opts[1].SimilarNodeGroups = []cloudprovider.NodeGroup{&group{id: "z"}}
	best := leastPrice(model, nil).BestOption(opts, infos)
	assert.Equal(t, "x", opts[0].NodeGroup.Id())
	assert.Equal(t, "debug", opts[1].Debug)
	assert.Len(t, best.SimilarNodeGroups, 1)
}

func TestClusterAutoscalerBuildsIt(t *testing.T) {
	opts, infos, model := options([]bid{{"x", 5, 1, 1, 1}, {"y", 4, 1, 1, 1}})
	f := factory.NewFactory()
	f.RegisterDefaultExpanders(nil, &context.AutoscalingKubeClients{}, nil, "", "", "")
	f.RegisterFilter(LeastPriceName, func() expander.Filter { return leastPrice(model, nil) })
	strategy, err := f.Build([]string{expander.MostPodsExpanderName, LeastPriceName})
	require.NoError(t, err)
	assert.Equal(t, "y", strategy.BestOption(opts, infos).NodeGroup.Id())
}
