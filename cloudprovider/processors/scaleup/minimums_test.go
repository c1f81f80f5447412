package scaleup

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	coretest "k8s.io/autoscaler/cluster-autoscaler/core/test"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/processors/callbacks"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupconfig"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups/asyncnodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	processorstest "k8s.io/autoscaler/cluster-autoscaler/processors/test"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/processors/customresources"
	"gpu-spot-autoscaler/cloudprovider/reasons"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// minimumPools are pools with a minimum; the first letter of an offering names its pool.
type minimumPools struct {
	missing map[string]int
	groups  []cloudprovider.NodeGroup
	bought  map[string]int
}

func (p *minimumPools) Shortfalls() (short []ess.Shortfall) {
	for pool, missing := range p.missing {
		lacks := ess.Shortfall{PoolID: pool, Missing: missing}
		for _, group := range p.groups {
			if group.Id()[:1] == pool {
				lacks.Offerings = append(lacks.Offerings, group)
			}
		}
		short = append(short, lacks)
	}
	return short
}

// templateGroup is a node group with the node that it brings.
type templateGroup struct {
	*testprovider.TestNodeGroup
	template *apiv1.Node
}

// cheapestFor chooses the option that is the cheapest in all.
type cheapestFor struct {
	prices prices
	asked  []expander.Option
}

func (c *cheapestFor) BestOption(options []expander.Option, _ map[string]*framework.NodeInfo) (best *expander.Option) {
	cost := func(o expander.Option) float64 { return c.prices[o.NodeGroup.Id()] * float64(o.NodeCount) }
	c.asked = append(c.asked, options...)
	for i, option := range options {
		if best == nil || cost(option) < cost(*best) {
			best = &options[i]
		}
	}
	return best
}

// newMinimums is ours around core's own orchestrator. Of an offering at most 10 nodes can be had.
func newMinimums(t *testing.T, perHour prices, missing map[string]int) (*PoolMinimums, *minimumPools, func() (*status.ScaleUpStatus, errors.AutoscalerError)) {
	t.Helper()
	pools := &minimumPools{missing: missing, bought: map[string]int{}}
	provider := testprovider.NewTestCloudProviderBuilder().WithOnScaleUp(func(id string, delta int) error { pools.bought[id] += delta; return nil }).Build()
	provider.SetResourceLimiter(cloudprovider.NewResourceLimiter(nil, map[string]int64{cloudprovider.ResourceNameCores: 64}))
	infos := map[string]*framework.NodeInfo{}
	for id := range perHour {
		group := &templateGroup{provider.BuildNodeGroup(id, 0, 10, 0, true, false, "", nil), testutil.NewNode(id, "cpu", "8", "memory", "64Gi")}
		provider.InsertNodeGroup(group)
		pools.groups = append(pools.groups, group)
		infos[id] = framework.NewTestNodeInfo(group.template)
	}
	options := config.AutoscalingOptions{MaxCoresTotal: 64, MaxMemoryTotal: 1 << 60}
	listers := kubeutil.NewListerRegistry(testutil.NodeList(nil), testutil.NodeList(nil), testutil.PodList(nil), nil, nil, nil, nil, nil, nil)
	ctx, err := coretest.NewScaleTestAutoscalingContext(options, &fake.Clientset{}, listers, provider, callbacks.NewTestProcessorCallbacks(), nil)
	require.NoError(t, err)
	ctx.ExpanderStrategy = &cheapestFor{prices: perHour}
	o := NewPoolMinimums(orchestrator.New(), pools, clock.RealClock{})
	initializeMinimums(t, o, &ctx, infos)
	return o, pools, func() (*status.ScaleUpStatus, errors.AutoscalerError) {
		return o.ScaleUpToNodeGroupMinSize([]*apiv1.Node{}, infos)
	}
}

func initializeMinimums(t *testing.T, o *PoolMinimums, ctx *cacontext.AutoscalingContext, infos map[string]*framework.NodeInfo) {
	t.Helper()
	all := processorstest.NewTestProcessors(ctx)
	all.CustomResourcesProcessor = customresources.NewReclaimingNodes(nil, all.CustomResourcesProcessor)
	registry := clusterstate.NewClusterStateRegistry(ctx.CloudProvider, clusterstate.ClusterStateRegistryConfig{}, ctx.LogRecorder,
		coretest.NewBackoff(), nodegroupconfig.NewDefaultNodeGroupConfigProcessor(ctx.NodeGroupDefaults), asyncnodegroups.NewDefaultAsyncNodeGroupStateChecker())
	require.NoError(t, registry.UpdateNodes(nil, infos, time.Now()))
	all.ScaleStateNotifier.Register(registry)
	o.Initialize(ctx, all, registry, nil, taints.TaintConfig{})
}

func TestAPoolIsBoughtUpToItsMinimumOfTheOfferingThatTheExpanderChooses(t *testing.T) {
	for name, test := range map[string]struct {
		prices  prices
		missing map[string]int
		bought  map[string]int
	}{
		"nothing is missing":                    {prices{"a1": 1}, nil, map[string]int{}},
		"the cheapest, and of no other":         {prices{"a1": 3, "a2": 1, "a3": 2}, map[string]int{"a": 2}, map[string]int{"a2": 2}},
		"every pool":                            {prices{"a1": 3, "a2": 1, "b1": 5}, map[string]int{"a": 2, "b": 1}, map[string]int{"a2": 2, "b1": 1}},
		"no more than there is room for":        {prices{"a1": 1}, map[string]int{"a": 12}, map[string]int{"a1": 8}},
		"a pool of which nothing can be bought": {prices{"b1": 1}, map[string]int{"a": 2, "b": 1}, map[string]int{"b1": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			o, pools, enforce := newMinimums(t, test.prices, test.missing)
			result, err := enforce()
			require.Nil(t, err)
			assert.Equal(t, test.bought, pools.bought)
			assert.Equal(t, len(test.bought) > 0, result.Result == status.ScaleUpSuccessful)
			for _, group := range o.autoscaling.CloudProvider.NodeGroups() {
				assert.Zero(t, group.MinSize(), "no offering keeps a minimum of its own: it would never be given back")
			}
		})
	}
}

// Cluster Autoscaler says of --gpu-total that it only works on GKE.
func TestNoMoreGPUsAreBoughtThanInAllMayBe(t *testing.T) {
	o, pools, enforce := newMinimums(t, prices{"a1": 1}, map[string]int{"a": 4})
	provider := o.autoscaling.CloudProvider.(*testprovider.TestCloudProvider)
	template := provider.GetNodeGroup("a1").(*templateGroup).template
	template.Labels[provider.GPULabel()] = "NVIDIA-A10"
	template.Status.Capacity[api.ResourceGPU], template.Status.Allocatable[api.ResourceGPU] = resource.MustParse("2"), resource.MustParse("2")
	provider.SetResourceLimiter(cloudprovider.NewResourceLimiter(nil, map[string]int64{"NVIDIA-A10": 5}))
	_, err := enforce()
	require.Nil(t, err)
	assert.Equal(t, map[string]int{"a1": 2}, pools.bought, "a third node would make it six")
}

func TestAMinimumIsNotBoughtOfAnOfferingThatHasJustFailed(t *testing.T) {
	o, pools, enforce := newMinimums(t, prices{"a1": 1, "a2": 2}, map[string]int{"a": 2})
	cheapest := o.autoscaling.CloudProvider.(*testprovider.TestCloudProvider).GetNodeGroup("a1")
	o.registry.RegisterFailedScaleUp(cheapest, "stockout", "no stock", "", "", time.Now())
	_, err := enforce()
	require.Nil(t, err)
	assert.Equal(t, map[string]int{"a2": 2}, pools.bought)
}

// blockedGroup is a node group that says why nothing more can be bought of it, as *ess.NodeGroup does.
type blockedGroup struct{ *testprovider.TestNodeGroup }

func (blockedGroup) Obstacle() *reasons.Reason { return reasons.New(reasons.Other, "", "it is full") }

func TestANodeGroupWithAMinimumStillSaysWhyNothingMoreCanBeBought(t *testing.T) {
	provider := testprovider.NewTestCloudProviderBuilder().Build()
	plain := provider.BuildNodeGroup("a", 0, 10, 0, true, false, "", nil)
	assert.Equal(t, "it is full", withMinimum{blockedGroup{plain}, 2}.Obstacle().Message)
	assert.Nil(t, withMinimum{plain, 2}.Obstacle())
}
