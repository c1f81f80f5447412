package externalgrpc

import (
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	catest "k8s.io/autoscaler/cluster-autoscaler/utils/test"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"gpu-spot-autoscaler/cloudprovider/ess"
)

// provider is Cluster Autoscaler's own provider for tests, with what ours has besides.
type provider struct {
	*testprovider.TestCloudProvider

	mu         sync.Mutex
	loops      [][]string
	refreshes  int
	refreshing func() error
	reclaiming sets.Set[string]
	stopped    sets.Set[string]
	pools      map[string]ess.PoolStatus
	sent       chan struct{}
	gathering  chan struct{} // closed once purchases are gathered
}

func (p *provider) BeginLoop(nodes []*apiv1.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var names []string
	for _, node := range nodes {
		names = append(names, node.Name)
	}
	p.loops = append(p.loops, names)
}

func (p *provider) Refresh() error {
	p.mu.Lock()
	p.refreshes++
	refreshing := p.refreshing
	p.mu.Unlock()
	if refreshing != nil {
		return refreshing()
	}
	return nil
}

func (p *provider) refreshCount() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refreshes
}

func (p *provider) IsReclaiming(node *apiv1.Node) bool { return p.reclaiming.Has(node.Spec.ProviderID) }
func (p *provider) OutOfService(node *apiv1.Node) bool { return p.stopped.Has(node.Spec.ProviderID) }
func (p *provider) Serves(node *apiv1.Node) bool {
	return !p.stopped.Has(node.Spec.ProviderID)
}
func (p *provider) PoolOfGroup(id string) (ess.PoolStatus, bool) {
	status, known := p.pools[id]
	return status, known
}

func (p *provider) Gather(buy func(send func())) {
	close(p.gathering)
	buy(func() { p.sent <- struct{}{} })
}

// fixture is a server with the client that Cluster Autoscaler links.
type fixture struct {
	*testing.T
	provider *provider
	server   *Server
	clock    *clocktesting.FakeClock
	client   cloudprovider.CloudProvider
	kube     *fake.Clientset
	// raw is a client without Cluster Autoscaler's.
	raw    protos.CloudProviderClient
	bought map[string]int
	given  []string
	// removing is what becomes of removals; nil for those that are accepted.
	removing func() error
}

const timeout = 2 * time.Second

// newFixture serves two offerings of three nodes each, which are in the cluster.
func newFixture(t *testing.T) *fixture {
	f := &fixture{T: t, clock: clocktesting.NewFakeClock(time.Now()), bought: map[string]int{}, kube: fake.NewClientset()}
	f.provider = &provider{
		reclaiming: sets.New[string](), stopped: sets.New[string](), pools: map[string]ess.PoolStatus{}, sent: make(chan struct{}, 10), gathering: make(chan struct{}),
		TestCloudProvider: testprovider.NewTestCloudProviderBuilder().
			WithOnScaleUp(func(id string, delta int) error { f.bought[id] += delta; return nil }).
			WithOnScaleDown(f.remove).
			WithMachineTypes([]string{"a", "b"}).
			WithMachineTemplates(map[string]*framework.NodeInfo{"a": framework.NewTestNodeInfo(templateNode("a")), "b": framework.NewTestNodeInfo(templateNode("b"))}).
			Build(),
	}
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, group := range []string{"a", "b"} {
		f.provider.AddAutoprovisionedNodeGroup(group, 0, 10, 3, group)
		for _, name := range []string{group + "1", group + "2", group + "3"} {
			node := catest.BuildTestNode(name, 1000, 1000)
			f.provider.AddNode(group, node)
			require.NoError(t, nodes.Add(node))
			require.NoError(t, f.kube.Tracker().Add(node))
		}
	}
	f.server = NewServer(Config{
		Provider: f.provider, Purchases: f.provider, Nodes: corelisters.NewNodeLister(nodes), Client: f.kube, Interval: time.Second, Clock: f.clock,
	})
	f.serve()
	return f
}

func (f *fixture) remove(_, node string) error {
	if f.removing != nil {
		if err := f.removing(); err != nil {
			return err
		}
	}
	f.given = append(f.given, node)
	return nil
}

func templateNode(name string) *apiv1.Node {
	node := catest.BuildTestNode("template-"+name, 8000, 1<<30)
	node.Labels["type"] = name
	node.Spec.Taints = []apiv1.Taint{{Key: "gpu", Effect: apiv1.TaintEffectNoSchedule}}
	return node
}

func (f *fixture) serve() {
	f.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	served := grpc.NewServer()
	protos.RegisterCloudProviderServer(served, f.server)
	go func() { _ = served.Serve(listener) }()
	f.Cleanup(served.Stop)
	file := filepath.Join(f.TempDir(), "cloud-config")
	require.NoError(f, os.WriteFile(file, []byte("address: "+listener.Addr().String()+"\ngrpc_timeout: "+timeout.String()+"\n"), 0o600))
	f.client = externalgrpc.BuildExternalGrpc(config.AutoscalingOptions{CloudConfig: file}, cloudprovider.NodeGroupDiscoveryOptions{}, nil)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(f, err)
	f.Cleanup(func() { _ = conn.Close() })
	f.raw = protos.NewCloudProviderClient(conn)
}

// group returns the node group as the client has it.
func (f *fixture) group(id string) cloudprovider.NodeGroup {
	f.Helper()
	for _, group := range f.client.NodeGroups() {
		if group.Id() == id {
			return group
		}
	}
	f.Fatalf("there is no node group %s", id)
	return nil
}

func nodeNamed(name string) *apiv1.Node {
	return &apiv1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apiv1.NodeSpec{ProviderID: name}}
}
