package scaleup

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/clusterstate"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaledown"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup/orchestrator"
	coretest "k8s.io/autoscaler/cluster-autoscaler/core/test"
	"k8s.io/autoscaler/cluster-autoscaler/estimator"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	caprocessors "k8s.io/autoscaler/cluster-autoscaler/processors"
	"k8s.io/autoscaler/cluster-autoscaler/processors/callbacks"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupconfig"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroups/asyncnodegroups"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/processors/status"
	processorstest "k8s.io/autoscaler/cluster-autoscaler/processors/test"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	kubeutil "k8s.io/autoscaler/cluster-autoscaler/utils/kubernetes"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"

	"gpu-spot-autoscaler/cloudprovider/processors/gangplan"
	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
)

// offered is an offering, of which at most max nodes can be had.
type offered struct {
	price float64
	max   int
	node  *apiv1.Node
	// forCPUPods: the operator lets it be bought for pods that ask for no GPU.
	forCPUPods bool
	// loss is how much dearer it is for pods for each unit that their time is worth.
	loss float64
	// onDemandAfter is how long pods wait for an on-demand offering; nil for one of spot instances.
	onDemandAfter *time.Duration
}

// offer is of up to 200 nodes of 16 CPUs and 64 GiB.
func offer(name string, price float64, gpus string) offered {
	node := testutil.NewNode(name, "cpu", "16", "memory", "64Gi", "pods", "64", api.ResourceGPU, gpus)
	return offered{price: price, max: 200, node: node}
}

// missing is how many pods gangs miss, by the value of their label for a gang in ACK's form.
type missing map[string]int

func (m missing) Missing(pod *apiv1.Pod) (string, int) {
	gang := pod.Namespace + "/" + pod.Labels[api.AnnotationPodGroupName]
	if m[gang] == 0 {
		return "", 0
	}
	return gang, m[gang]
}

func (m missing) AnyZone(pod *apiv1.Pod) bool {
	return pod.Annotations[api.AnnotationGangZones] == api.GangZonesAny
}

// catalogue is all offerings.
type catalogue map[string]offered

func (c catalogue) BuysForCPUPods(id string) bool {
	gpus := c[id].node.Status.Allocatable[api.ResourceGPU]
	return c[id].forCPUPods || gpus.IsZero()
}

func (c catalogue) OnDemandAfter(id string) (time.Duration, bool) {
	if c[id].onDemandAfter == nil {
		return 0, false
	}
	return *c[id].onDemandAfter, true
}

func (c catalogue) Undelivered(string) int { return 0 }

func (c catalogue) RoomBeside(id string, planned map[string]int) int { return c[id].max - planned[id] }

func (c catalogue) NodePrice(id string, valueOfTime *float64) (float64, bool) {
	return c[id].price + ptr.Deref(valueOfTime, 0)*c[id].loss, true
}

// leastCost stands for an expander that chooses the option of the least price per pod. It remembers what it could choose of.
type leastCost struct {
	offers catalogue
	of     []string
}

func (c *leastCost) BestOption(options []expander.Option, _ map[string]*framework.NodeInfo) *expander.Option {
	c.of = nil
	var best *expander.Option
	cost := func(o expander.Option) float64 {
		return c.offers[o.NodeGroup.Id()].price * float64(o.NodeCount) / float64(len(o.Pods))
	}
	for i, option := range options {
		c.of = append(c.of, option.NodeGroup.Id())
		if best == nil || cost(option) < cost(*best) {
			best = &options[i]
		}
	}
	return best
}

// idleActuator deletes nothing.
type idleActuator struct{ scaledown.Actuator }

func (idleActuator) CheckStatus() scaledown.ActuationStatus { return testutil.Deletions{} }

// bundles takes back what was bought of a bundle that is dropped. What is gathered is bought at once.
type bundles struct {
	core *realCore
	// committed and dropped count bundles.
	committed, dropped int
}

func (b *bundles) Gather(buy func(send func())) { buy(func() {}) }

func (b *bundles) Bundle(buy func() bool) {
	before := maps.Clone(b.core.bought)
	if buy() {
		b.committed++
		return
	}
	b.dropped++
	for id := range b.core.bought {
		b.core.ctx.CloudProvider.(*testprovider.TestCloudProvider).GetNodeGroup(id).(*testprovider.TestNodeGroup).SetTargetSize(before[id])
	}
	b.core.bought = before
}

// realCore is core's own chain of processors and its own orchestrator with ours before and behind, over offerings.
type realCore struct {
	t            *testing.T
	ctx          *cacontext.AutoscalingContext
	chain        pods.PodListProcessor
	orchestrator *Gangs
	templates    map[string]*framework.NodeInfo
	expander     *leastCost
	// reopen returns the pods of which no more arrive during the evaluation. It may be nil.
	reopen func(pods []*apiv1.Pod) []*apiv1.Pod
	// bought counts nodes by offering, running are pods on them.
	bought  map[string]int
	running []*apiv1.Pod
	bundles *bundles
}

// newRealCore evaluates offerings by price, as with --expander=least-price, if byPrice says so.
func newRealCore(t *testing.T, of catalogue, members Members, byPrice bool) *realCore {
	t.Helper()
	places := podlist.NewPlaces()
	floors := spotfirst.NewFloors(func(pod *apiv1.Pod) string { return pod.Labels[api.AnnotationPodGroupName] }, podlist.IsStandIn)
	policy := spotfirst.NewPolicy(spotfirst.Config{Offerings: of, Clock: clock.RealClock{}, Floors: floors})
	c := &realCore{t: t, chain: floors.After(podlist.NewDefault(places, policy, floors)), templates: map[string]*framework.NodeInfo{}, bought: map[string]int{}}
	provider := testprovider.NewTestCloudProviderBuilder().WithOnScaleUp(func(id string, delta int) error { c.bought[id] += delta; return nil }).Build()
	provider.SetResourceLimiter(cloudprovider.NewResourceLimiter(nil, nil))
	for id, offered := range of {
		provider.AddNodeGroup(id, 0, offered.max, 0)
		node := offered.node.DeepCopy()
		node.Labels[api.LabelSpotStrategy] = "SpotAsPriceGo"
		if offered.onDemandAfter != nil {
			node.Labels[api.LabelSpotStrategy] = "NoSpot"
		}
		c.templates[id] = framework.NewTestNodeInfo(node)
	}
	options := config.AutoscalingOptions{
		EstimatorName: estimator.BinpackingEstimatorName, MaxCoresTotal: 1e6, MaxMemoryTotal: 1 << 60, MaxNodesPerScaleUp: 1000,
		NodeGroupDefaults: config.NodeGroupAutoscalingOptions{MaxNodeProvisionTime: 15 * time.Minute},
	}
	listers := kubeutil.NewListerRegistry(testutil.NodeList(nil), testutil.NodeList(nil), testutil.PodList(nil), nil, nil, nil, nil, nil, nil)
	ctx, err := coretest.NewScaleTestAutoscalingContext(options, &fake.Clientset{}, listers, provider, callbacks.NewTestProcessorCallbacks(), nil)
	require.NoError(t, err)
	c.ctx, c.expander = &ctx, &leastCost{offers: of}
	ctx.ScaleDownActuator = idleActuator{}

	all := processorstest.NewTestProcessors(c.ctx)
	search := NewSearch(orchestrator.New(), SearchConfig{
		Offerings: of, ByPrice: byPrice, MaxBinpackingTime: time.Minute, Clock: clock.RealClock{},
		Allows: policy.Allows,
		Reopen: func(pods []*apiv1.Pod) []*apiv1.Pod {
			if c.reopen == nil {
				return pods
			}
			return c.reopen(pods)
		},
	})
	ctx.ExpanderStrategy = search.Expander(c.expander)
	all.NodeGroupListProcessor, all.BinpackingLimiter = search, search
	c.bundles = &bundles{core: c}
	c.orchestrator = NewGangs(spotfirst.NewOrchestrator(search, policy), GangsConfig{
		Members: members, Places: places, Clock: clock.RealClock{}, Planner: gangplan.New(of, policy.Allows, clock.RealClock{}), Purchases: c.bundles,
		Apart: policy.Apart, AllowSpot: policy.AllowSpot, Only: search.Only,
	})
	c.initialize(all)
	return c
}

func (c *realCore) initialize(all *caprocessors.AutoscalingProcessors) {
	defaults := c.ctx.NodeGroupDefaults
	registry := clusterstate.NewClusterStateRegistry(c.ctx.CloudProvider, clusterstate.ClusterStateRegistryConfig{}, c.ctx.LogRecorder,
		coretest.NewBackoff(), nodegroupconfig.NewDefaultNodeGroupConfigProcessor(defaults), asyncnodegroups.NewDefaultAsyncNodeGroupStateChecker())
	require.NoError(c.t, registry.UpdateNodes(nil, c.templates, time.Now()))
	all.ScaleStateNotifier.Register(registry)
	builder, err := estimator.NewEstimatorBuilder(estimator.BinpackingEstimatorName,
		estimator.NewThresholdBasedEstimationLimiter([]estimator.Threshold{
			estimator.NewStaticThreshold(1000, 10*time.Second), estimator.NewSngCapacityThreshold(), estimator.NewClusterCapacityThreshold(),
		}), estimator.NewDecreasingPodOrderer(), nil)
	require.NoError(c.t, err)
	c.orchestrator.Initialize(c.ctx, all, registry, builder, taints.TaintConfig{})
}

// limitCores sets --cores-total.
func (c *realCore) limitCores(most int64) {
	c.ctx.CloudProvider.(*testprovider.TestCloudProvider).SetResourceLimiter(
		cloudprovider.NewResourceLimiter(nil, map[string]int64{cloudprovider.ResourceNameCores: most}))
}

// upcoming returns the name of the i-th node that was bought of the offering, as core names it while it is on its way.
func upcoming(id string, i int) string {
	return fmt.Sprintf("template-node-for-%s-1-upcoming-%d", id, i)
}

// loop is what core does with pending pods: it finds places for them on the nodes that were bought, and buys for the others.
func (c *realCore) loop(pending []*apiv1.Pod) (left []*apiv1.Pod, result *status.ScaleUpStatus) {
	c.t.Helper()
	var nodes []*apiv1.Node
	for id, count := range c.bought {
		for i := range count {
			node := c.templates[id].Node().DeepCopy()
			node.Name = upcoming(id, i)
			metav1.SetMetaDataAnnotation(&node.ObjectMeta, core.NodeUpcomingAnnotation, "true")
			nodes = append(nodes, node)
		}
	}
	require.NoError(c.t, c.ctx.ClusterSnapshot.SetClusterState(nodes, c.running, nil))
	left, err := c.chain.Process(c.ctx, pending)
	require.NoError(c.t, err)
	if len(left) == 0 {
		return nil, &status.ScaleUpStatus{Result: status.ScaleUpNotNeeded}
	}
	result, aErr := c.orchestrator.ScaleUp(left, nodes, nil, c.templates, false)
	require.Nil(c.t, aErr)
	return left, result
}

// settle loops until nothing more is bought, and returns the pods that are left without a place.
func (c *realCore) settle(pending []*apiv1.Pod) (left []*apiv1.Pod, result *status.ScaleUpStatus) {
	c.t.Helper()
	for range 100 {
		if left, result = c.loop(pending); result.Result != status.ScaleUpSuccessful {
			return left, result
		}
	}
	require.Fail(c.t, "buys without end", "%v", c.bought)
	return nil, nil
}

// events are what core tells of the pods.
func (c *realCore) events(result *status.ScaleUpStatus) (told []string) {
	recorder := record.NewFakeRecorder(1000)
	c.ctx.Recorder = recorder
	(&status.EventingScaleUpStatusProcessor{}).Process(c.ctx, result)
	close(recorder.Events)
	for event := range recorder.Events {
		told = append(told, event)
	}
	return told
}
