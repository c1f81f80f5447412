package ess

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/attacher"
	"gpu-spot-autoscaler/cloudprovider/ess/buyer"
	"gpu-spot-autoscaler/cloudprovider/ess/ledger"
	"gpu-spot-autoscaler/cloudprovider/ess/observe"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/ess/problem"
	"gpu-spot-autoscaler/cloudprovider/ess/remover"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/ess/template"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/pricing"
)

// ProviderName is the name of this provider in Cluster Autoscaler and its logs.
const ProviderName = "gpu-spot"

// Cloud is what the provider asks of Alibaba Cloud. *client.Client of package alicloud/client implements it.
type Cloud interface {
	observe.Cloud
	pool.CatalogReader
	buyer.Cloud
	attacher.Cloud
	remover.Cloud
}

// Prices are the market prices of offerings, per instance-hour. *pricing.Book implements it.
type Prices interface {
	// SetOfferings sets the offerings whose prices are wanted from now on, and the instance types of which spot instances are bought without
	// a protected hour only.
	SetOfferings(offerings []pricing.Offering, unprotected sets.Set[string])
	pool.Prices
}

// Market remembers how reliable offerings are. *market.Memory implements it.
type Market interface {
	ledger.Market
	Of(pricing.Offering) pricing.Reliability
}

// noMarket remembers nothing.
type noMarket struct{}

func (noMarket) Asked(pricing.Offering, int)                 {}
func (noMarket) Refused(pricing.Offering, int)               {}
func (noMarket) Of(pricing.Offering) (r pricing.Reliability) { return r }

// Config is what a Provider is made of. Cloud, Prices, Events and Clock are required.
type Config struct {
	Cloud  Cloud
	Prices Prices
	// Events records Events about the autoscaler's Deployment.
	Events problems.EventSink
	Clock  clock.Clock

	// Problems takes the problems that stand. Optional: without it they are recorded as Events all the same.
	Problems *problems.Board
	// Owner distinguishes this installation from others that buy in the same scaling groups. It is written into the note of
	// every purchase. Empty means that purchases of others cannot be recognized.
	Owner string
	// OtherAutoscaler says which other autoscaler is set up for the scaling group; empty for none. Optional.
	OtherAutoscaler func(poolID string) string
	// ReportOthersFor is how long a purchase of another autoscaler is reported. Default 10 min.
	ReportOthersFor time.Duration

	// ClusterName is the <cluster-name> of the discovery tag k8s.io/cluster-autoscaler/<cluster-name>. Empty means that no
	// scaling group is discovered.
	ClusterName string
	Region      string
	// NodeGroupSpecs are the values of --nodes, each <min>:<max>:<scaling-group-id>.
	NodeGroupSpecs  []string
	ResourceLimiter *cloudprovider.ResourceLimiter

	// Reclaiming returns the instances that have a reclaim notice, whether or not their Nodes are marked. Optional.
	Reclaiming func() sets.Set[string]
	// Lost returns those of them that the market takes away, which makes their offerings dearer. It defaults to Reclaiming.
	Lost func() sets.Set[string]
	// Overrides are tags of a pool from elsewhere (the annotations of its ConfigMap). They win. Optional.
	Overrides func(poolID string) map[string]string
	// Occupied returns whether pods are on the Node that no DaemonSet owns. Optional: without it every Node counts as occupied, so
	// that nothing that a former process bought is given back.
	Occupied func(node *apiv1.Node) bool
	// Market remembers how reliable offerings are. Optional: without it all are taken to be equally so.
	Market Market
	// Terms are what time is worth, for the comparison of offerings.
	Terms pricing.Terms
	// Shortages are those that another process has found, such as the leader whose decision is to be foretold. Optional.
	Shortages map[pricing.Offering]snapshot.Shortage
	// Wake asks for a loop before the scan interval is over, such as after a failed purchase. Optional.
	Wake func()

	// MaxProvisionTime is how long a purchase may take after it was accepted before it counts as failed. Default 15 min.
	MaxProvisionTime time.Duration
	// Removed is told which instances the cloud has accepted to remove. It must not block. Optional.
	Removed func(instanceIDs []string)
	// DeleteWindow is how long removals of one pool are collected before they are sent. Default 250 ms.
	DeleteWindow time.Duration
}

// setDefaults fills in what is optional.
func (c *Config) setDefaults() {
	if c.DeleteWindow <= 0 {
		c.DeleteWindow = 250 * time.Millisecond
	}
	if c.MaxProvisionTime <= 0 {
		c.MaxProvisionTime = 15 * time.Minute
	}
	if c.Occupied == nil {
		c.Occupied = func(*apiv1.Node) bool { return true }
	}
	if c.Wake == nil {
		c.Wake = func() {}
	}
	if c.Removed == nil {
		c.Removed = func([]string) {}
	}
	if c.ResourceLimiter == nil {
		c.ResourceLimiter = cloudprovider.NewResourceLimiter(nil, nil)
	}
	if c.Market == nil {
		c.Market = noMarket{}
	}
	if c.Problems == nil {
		c.Problems = problems.NewBoard(c.Events, c.Clock)
	}
	if c.ReportOthersFor <= 0 {
		c.ReportOthersFor = 10 * time.Minute
	}
}

// Provider implements Cluster Autoscaler's CloudProvider over ESS scaling groups. It is safe for concurrent use.
type Provider struct {
	*View
	config   Config
	manager  *manager
	cancel   context.CancelFunc
	model    *pricing.Model
	reporter *problem.Reporter
	groups   *nodeGroups

	// refreshing admits one refresh at a time. It guards the refresher.
	refreshing sync.Mutex
	refresher  *refresher
	nodes      *loopNodes
	// unfinished: the next refresh has to look after what was not finished before. It does so once for each loop.
	unfinished atomic.Bool
}

var _ cloudprovider.CloudProvider = (*Provider)(nil)

// New returns a provider that has no node groups until its first Refresh. The error names the spec that does not parse.
func New(config Config) (*Provider, error) {
	bounds, err := pool.ParseBounds(config.NodeGroupSpecs)
	if err != nil {
		return nil, err
	}
	config.setDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	store, reporter := &snapshot.Store{}, problem.NewReporter(config.Problems)
	view := &View{store: store, prices: config.Prices, penalty: newInterruptionPenalty(config.Clock), market: config.Market, terms: config.Terms}
	nodes := &loopNodes{store: store, isOccupied: config.Occupied}
	accounts := ledger.New(ledger.Config{
		Region: config.Region, Clock: config.Clock, Events: config.Events, Reporter: reporter, Prices: config.Prices, Store: store,
		Owner: config.Owner, MaxProvisionTime: config.MaxProvisionTime, Wake: config.Wake, Market: config.Market,
		Shortages: config.Shortages,
	})
	shared := &manager{
		ctx: ctx, firstRead: make(chan struct{}), store: store, prices: config.Prices, ledger: accounts, buyer: buyer.New(config.Cloud, accounts.Purchases),
		remover: remover.New(ctx, remover.Config{
			Cloud: config.Cloud, Clock: config.Clock, Store: store, Removals: accounts.Removals, Window: config.DeleteWindow,
			Occupied: nodes.occupied, Removed: config.Removed,
		}),
	}
	groups := &nodeGroups{manager: shared, byID: groupsByID{}}
	return &Provider{
		View: view, config: config, manager: shared, cancel: cancel, reporter: reporter, groups: groups, nodes: nodes,
		refresher: newRefresher(config, shared, groups, reporter, bounds),
		model: pricing.NewModel(pricing.ModelConfig{
			Prices: config.Prices, Shape: view.shape, Candidates: view.candidates, GroupPrice: view.NodePrice,
			Dearness: func(offering pricing.Offering) float64 { return view.dearness(offering, config.Terms) },
		}),
	}, nil
}

// Name returns ProviderName.
func (p *Provider) Name() string { return ProviderName }

// NodeGroups returns the offerings found by the last Refresh, by id.
func (p *Provider) NodeGroups() []cloudprovider.NodeGroup { return p.groups.listed() }

// NodeGroupForNode returns the offering of the node's instance, or of the failed purchase that the node stands for. It returns
// nil for a node of another cloud, of no pool, or without a providerID.
func (p *Provider) NodeGroupForNode(node *apiv1.Node) (cloudprovider.NodeGroup, error) {
	if id, ours := p.store.Last().GroupOf(node); ours {
		return p.groups.get(id), nil
	}
	return nil, nil // a literal nil: core compares the interface with nil
}

// HasInstance returns whether the node's instance still exists. It is true for nodes that were never in a pool: core asks about
// those too, and does not protect nodes whose instance does not exist.
func (p *Provider) HasInstance(node *apiv1.Node) (bool, error) {
	last := p.store.Last()
	id := last.InstanceID(node)
	if _, exists := last.Instances[id]; exists || id == "" {
		return true, nil
	}
	return !last.Seen.Has(id), nil
}

// Pricing returns the model over the market prices.
func (p *Provider) Pricing() (cloudprovider.PricingModel, errors.AutoscalerError) {
	return p.model, nil
}

// GetAvailableMachineTypes returns the instance types of all pools.
func (p *Provider) GetAvailableMachineTypes() ([]string, error) {
	types := sets.New[string]()
	for _, pool := range p.store.Last().Pools {
		for _, offering := range pool.Offerings {
			types.Insert(offering.InstanceType)
		}
	}
	return sets.List(types), nil
}

// NewNodeGroup is not implemented: the operator makes scaling groups.
func (p *Provider) NewNodeGroup(string, map[string]string, map[string]string, []apiv1.Taint,
	map[string]resource.Quantity) (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

// GetResourceLimiter returns the limits given by flags.
func (p *Provider) GetResourceLimiter() (*cloudprovider.ResourceLimiter, error) {
	return p.config.ResourceLimiter, nil
}

// GPULabel returns the label with which ACK names the model of a node's GPUs.
func (p *Provider) GPULabel() string { return api.LabelGPUModel }

// GetAvailableGPUTypes returns the GPU models that the pools can buy.
func (p *Provider) GetAvailableGPUTypes() map[string]struct{} {
	models := map[string]struct{}{}
	for _, pool := range p.store.Last().Pools {
		for _, offering := range pool.Offerings {
			if model := template.GPUModel(offering.Type); model != "" {
				models[model] = struct{}{}
			}
		}
	}
	return models
}

// GetNodeGpuConfig returns the GPU resource of the node, also where GPUs are shared; nil where it has none.
func (p *Provider) GetNodeGpuConfig(node *apiv1.Node) *cloudprovider.GpuConfig {
	return template.GPUConfig(node)
}

// Purchases returns what has purchases made together.
func (p *Provider) Purchases() *Purchases { return &Purchases{p.manager} }

// Cleanup ends what the provider runs and waits for removals under way.
func (p *Provider) Cleanup() error {
	p.cancel()
	p.manager.remover.Stop()
	return nil
}
