// Package upstream_test runs the alicloud provider that ships with Cluster Autoscaler, as it is, against the
// simulator. That provider was written for the real service by others and brings its own copy of an older SDK: where
// it feels at home, the simulator's idea of the protocol is not just our own.
package upstream_test

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/alicloud/alibaba-cloud-sdk-go/sdk/endpoints"
	"k8s.io/autoscaler/cluster-autoscaler/config"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

const (
	region = "ap-southeast-1"
	pool   = "asg-a10"
	// anyHost stands for the cloud's endpoints; no name server is ever asked for it.
	anyHost = "alibaba.invalid"
	// soon is how long the simulator may take for an activity that has no delay.
	soon, tick = 20 * time.Second, 20 * time.Millisecond
)

// newWorld has a pool to buy in and one that is not the provider's, in the kindest cloud: what both do there is compared.
func newWorld() alisim.World {
	compensate := false
	none := metav1.Duration{Duration: -1}
	w := alisim.NewWorld(region, region+"a")
	w.Temper = temper.Lenient()
	w.ActivityDelay, w.BootDelay, w.DriverDelay = none, none, none
	w.Pools = []alisim.Pool{{
		ID: pool, MaxSize: 15, InstanceTypes: []string{"ecs.gn7i-c8g1.2xlarge"}, VSwitches: w.VSwitchIDs(),
		SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: &compensate,
		ConfigurationTags: map[string]string{"workload": "training"},
	}, {
		ID: "asg-other", MaxSize: 5, Instances: 1, InstanceTypes: []string{"ecs.gn7i-c8g1.2xlarge"}, VSwitches: w.VSwitchIDs(),
	}}
	return w
}

// connect leads the provider's SDK to the simulator. That SDK cannot be told a port, but a host name, and it speaks
// plain HTTP: so the simulator is the proxy on the way to a host that does not exist.
func connect(t *testing.T, server *alisim.Server) {
	for _, product := range []string{"Ess", "Ecs"} {
		require.NoError(t, endpoints.AddEndpointMapping(region, product, anyHost))
	}
	// What HTTP_PROXY does, which Go reads only once in the life of a process.
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.Proxy
	transport.Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: server.Endpoint()})
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		transport.Proxy = before
	})
	t.Setenv("ACCESS_KEY_ID", server.AccessKey().ID)
	t.Setenv("ACCESS_KEY_SECRET", server.AccessKey().Secret)
	t.Setenv("REGION_ID", region)
}

func nodeOf(providerID string) *apiv1.Node {
	return &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: providerID}, Spec: apiv1.NodeSpec{ProviderID: providerID}}
}

func TestInTreeProviderListsScalesUpAndScalesDownAPool(t *testing.T) {
	server, err := alisim.Start(t.Context(), newWorld(), alisim.Options{})
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	connect(t, server)

	provider := alicloud.BuildAlicloud(config.AutoscalingOptions{},
		cloudprovider.NodeGroupDiscoveryOptions{NodeGroupSpecs: []string{"0:14:" + pool}}, nil)
	require.NoError(t, provider.Refresh())
	require.Len(t, provider.NodeGroups(), 1)
	group := provider.NodeGroups()[0]

	ids := func() sets.Set[string] {
		instances, err := group.Nodes()
		require.NoError(t, err)
		set := sets.New[string]()
		for _, i := range instances {
			set.Insert(i.Id)
		}
		return set
	}
	settlesAt := func(size int) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			target, err := group.TargetSize()
			assert.NoError(c, err)
			assert.Equal(c, size, target)
			view, _ := server.Group(pool)
			assert.Equal(c, size, view.States["InService"])
			assert.Equal(c, size, ids().Len())
		}, soon, tick)
	}

	assert.Equal(t, pool, group.Id())
	assert.Equal(t, 14, group.MaxSize())
	settlesAt(0)

	template, err := group.TemplateNodeInfo()
	require.NoError(t, err)
	labels, capacity := template.Node().Labels, template.Node().Status.Capacity
	assert.Equal(t, "ecs.gn7i-c8g1.2xlarge", labels[apiv1.LabelInstanceTypeStable])
	assert.Equal(t, region, labels[apiv1.LabelTopologyRegion])
	assert.Equal(t, "training", labels["workload"])
	assert.Equal(t, int64(8), capacity.Cpu().Value())
	assert.Equal(t, int64(30<<30), capacity.Memory().Value())
	assert.Equal(t, int64(1), capacity.Name(alicloud.ResourceGPU, "").Value())

	require.NoError(t, group.IncreaseSize(1))
	settlesAt(1)
	require.NoError(t, group.IncreaseSize(11)) // more than a page of ten
	settlesAt(12)
	assert.Error(t, group.IncreaseSize(3), "more than the group's maximum")
	assert.Error(t, group.DecreaseTargetSize(-1), "nothing is on its way that could be called off")

	all := ids()
	for _, instance := range server.Instances() {
		id := region + "." + instance.ID
		owner, err := provider.NodeGroupForNode(nodeOf(id))
		require.NoError(t, err)
		if instance.ScalingGroupID == pool {
			assert.Contains(t, all, id)
			assert.Same(t, group, owner)
		} else {
			assert.NotContains(t, all, id)
			assert.Nil(t, owner)
		}
	}

	removed := sets.New(all.UnsortedList()[:2]...)
	var nodes []*apiv1.Node
	for id := range removed {
		nodes = append(nodes, nodeOf(id))
	}
	require.NoError(t, group.DeleteNodes(nodes))
	settlesAt(10)
	assert.Equal(t, all.Difference(removed), ids(), "these and no others are gone")
	for _, instance := range server.Instances() {
		assert.NotContains(t, removed, region+"."+instance.ID)
	}

	for _, request := range server.Requests() {
		assert.Empty(t, request.Code, "%s was refused", request.Action)
	}
}
