package ess

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/pricing"
)

// ProviderName is what Cluster Autoscaler and its logs call this provider.
const ProviderName = "gpu-spot"

// Cloud is what the provider asks of Alibaba Cloud. It is implemented by *client.Client of package alicloud/client.
type Cloud interface {
	ScalingGroups(ctx context.Context, filter alicloud.GroupFilter) ([]alicloud.ScalingGroup, error)
	ScalingInstances(ctx context.Context, filter alicloud.InstanceFilter) ([]alicloud.ScalingInstance, error)
	ScalingConfigurations(ctx context.Context, ids []string) ([]alicloud.ScalingConfiguration, error)
	Activities(ctx context.Context, ids []string) ([]alicloud.Activity, error)
	ActivitiesInProgress(ctx context.Context, groupID string) ([]alicloud.Activity, error)
	GroupActivities(ctx context.Context, groupID string, since time.Time) ([]alicloud.Activity, error)
	InstanceTypes(ctx context.Context, ids []string) ([]alicloud.InstanceType, error)
	VSwitches(ctx context.Context, ids []string) ([]alicloud.VSwitch, error)
	Scale(ctx context.Context, request alicloud.ScaleRequest) (alicloud.Scaling, error)
	PlanScale(ctx context.Context, request alicloud.ScaleRequest) (alicloud.Plan, error)
	Remove(ctx context.Context, request alicloud.RemoveRequest) (activityID string, err error)
}

// Prices are the market prices of offerings, per instance-hour. It is implemented by *pricing.Book.
type Prices interface {
	// SetOfferings says of which offerings prices are wanted from now on.
	SetOfferings([]pricing.Offering)
	// FreshPrice is the price if it was seen recently enough for a cap to be held against it.
	FreshPrice(pricing.Offering) (float64, bool)
	pricing.Prices
}

// EventSink tells the operator, as a Kubernetes Event on the autoscaler's Deployment.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}

// Config is what a Provider is made of. Cloud, Prices, Events and Clock are required.
type Config struct {
	Cloud  Cloud
	Prices Prices
	Events EventSink
	Clock  clock.Clock

	// Problems takes those that stand. Optional: without it they are told as Events all the same.
	Problems *problems.Board
	// Owner tells this installation from others that buy in the same scaling groups; it is written into the note of every
	// purchase. Empty means that others cannot be told.
	Owner string
	// Rival says that another autoscaler is set up for the scaling group, and which; empty where none is. Optional.
	Rival func(poolID string) string
	// RivalFor is for how long a purchase of another autoscaler is told of. Default 10 min.
	RivalFor time.Duration

	// ClusterName is the <cluster-name> of the discovery tag k8s.io/cluster-autoscaler/<cluster-name>.
	// Empty means that nothing is discovered.
	ClusterName string
	Region      string
	// NodeGroupSpecs are explicit pools, each min:max:<scaling-group-id>.
	NodeGroupSpecs  []string
	ResourceLimiter *cloudprovider.ResourceLimiter

	// Doomed names the instances whose reclaim is known, marked Nodes or not. Optional.
	Doomed func() sets.Set[string]
	// Overrides are tags of a pool from elsewhere (the annotations of its ConfigMap); they win. Optional.
	Overrides func(poolID string) map[string]string
	// Occupied says whether pods are on the Node that no DaemonSet owns. Optional: without it every Node counts as occupied,
	// so that what a former process should have given back stays.
	Occupied func(node *apiv1.Node) bool
	// Wake asks for a loop before the scan interval is over, such as after a failed purchase. Optional.
	Wake func()

	// MaxProvisionTime is how long a purchase may stay without an answer before it is given up as failed.
	MaxProvisionTime time.Duration
	// Removed is told which instances the cloud has accepted to remove. It must not block. Optional.
	Removed func(instanceIDs []string)
	// DeleteWindow is how long removals of one pool are gathered before they are sent. Default 250 ms.
	DeleteWindow time.Duration
}

// Provider implements Cluster Autoscaler's CloudProvider over ESS scaling groups. It is safe for concurrent use.
type Provider struct {
	Config
	specs map[string]sizeBounds
	model *pricing.Model
	// ctx ends with Cleanup: the interfaces of Cluster Autoscaler carry no context.
	ctx     context.Context
	cancel  context.CancelFunc
	remover *remover
	reports *reporter
	unrest  *unrest
	// rivals is only used by the refresh.
	rivals *rivals

	// refreshing admits one refresh at a time; it is never held together with a call of core's.
	refreshing sync.Mutex
	facts      *facts
	// listed is how many instances there were in the region at listedAt. Only the refresh uses both.
	listed   int
	listedAt time.Time

	mu sync.RWMutex
	// pools are those in working order, by scaling group; each is immutable.
	pools map[string]*pool
	// groups is what NodeGroups returns; it changes in Refresh only.
	groups []cloudprovider.NodeGroup
	// shapes are the instance types of the pools.
	shapes map[string]alicloud.InstanceType
	// handles are the node groups ever seen: core keeps the pointers across loops.
	handles map[string]*Offering
	// minimums are what Offering.MinSize returns; see SetMinimums.
	minimums  map[string]int
	instances map[string]alicloud.ScalingInstance
	// seen remembers every instance that was ever in a pool of ours, to tell a vanished one from a foreign one.
	seen      sets.Set[string]
	purchases map[string]*purchase
	removals  map[string]*removal
	// unremoved are by instance.
	unremoved map[string]unremoved
	// queues are those of the pools.
	queues map[string]*queue
	// aims are what is known of whether pools can be targeted.
	aims map[string]*aim
	// doomed, outOfService and disputed are frozen from one BeginLoop to the next.
	doomed, outOfService, disputed sets.Set[string]
	// left are instances that are gone after a removal while their Nodes are not.
	left        sets.Set[string]
	providerIDs map[string]string
	// recalled are the pools whose activities of a previous process were taken up, unreadSince those where that was tried
	// in vain, and since when.
	recalled    sets.Set[string]
	unreadSince map[string]time.Time
	tallies     map[string]*tally
	poolTallies map[string]*poolTally
	refreshed   time.Time
}

var _ cloudprovider.CloudProvider = (*Provider)(nil)

// New makes a provider that knows nothing until its first Refresh. The error names the spec that does not parse.
func New(config Config) (*Provider, error) {
	specs, err := parseNodeGroupSpecs(config.NodeGroupSpecs)
	if err != nil {
		return nil, err
	}
	if config.DeleteWindow <= 0 {
		config.DeleteWindow = defaultDeleteWindow
	}
	if config.MaxProvisionTime <= 0 {
		config.MaxProvisionTime = 15 * time.Minute
	}
	if config.Wake == nil {
		config.Wake = func() {}
	}
	if config.Removed == nil {
		config.Removed = func([]string) {}
	}
	if config.ResourceLimiter == nil {
		config.ResourceLimiter = cloudprovider.NewResourceLimiter(nil, nil)
	}
	if config.Problems == nil {
		config.Problems = problems.NewBoard(config.Events, config.Clock)
	}
	if config.RivalFor <= 0 {
		config.RivalFor = 10 * time.Minute
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Provider{
		Config: config, specs: specs, ctx: ctx, cancel: cancel,
		reports:     newReporter(config.Problems),
		unrest:      newUnrest(config.Clock),
		rivals:      newRivals(),
		facts:       newFacts(),
		pools:       map[string]*pool{},
		handles:     map[string]*Offering{},
		instances:   map[string]alicloud.ScalingInstance{},
		seen:        sets.New[string](),
		purchases:   map[string]*purchase{},
		removals:    map[string]*removal{},
		unremoved:   map[string]unremoved{},
		queues:      map[string]*queue{},
		aims:        map[string]*aim{},
		recalled:    sets.New[string](),
		unreadSince: map[string]time.Time{},
		doomed:      sets.New[string](),
		left:        sets.New[string](),
		providerIDs: map[string]string{},
		tallies:     map[string]*tally{},
		poolTallies: map[string]*poolTally{},
	}
	p.remover = newRemover(p)
	p.model = pricing.NewModel(pricing.ModelConfig{Prices: config.Prices, Shape: p.shape, Candidates: p.candidates, InterruptionPenalty: p.unrest.surcharge})
	return p, nil
}

// Name implements CloudProvider.
func (p *Provider) Name() string { return ProviderName }

// NodeGroups returns the offerings found by the last Refresh, by id.
func (p *Provider) NodeGroups() []cloudprovider.NodeGroup {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.groups
}

// NodeGroupForNode returns the offering whose instance, or failed purchase, the node stands for; nil for a node that
// is none of ours, one of another cloud or one without a providerID.
func (p *Provider) NodeGroupForNode(node *apiv1.Node) (cloudprovider.NodeGroup, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if handle := p.handleOf(node); handle != nil {
		return handle, nil
	}
	return nil, nil // a literal nil: core tests the interface
}

// handleOf needs p.mu.
func (p *Provider) handleOf(node *apiv1.Node) *Offering {
	if token, ok := placeholderToken(node.Spec.ProviderID); ok {
		if bought := p.purchases[token]; bought != nil {
			return p.handleFor(bought.poolID, bought.offering)
		}
		return nil
	}
	if instance, ok := p.instances[p.instanceIDOf(node)]; ok {
		return p.handleFor(instance.ScalingGroupID, p.offeringOf(instance))
	}
	return nil
}

// handleFor is nil where the pool is out of order or gone. Needs p.mu.
func (p *Provider) handleFor(poolID string, offering offering) *Offering {
	if p.pools[poolID] == nil {
		return nil
	}
	return p.handles[p.groupIDOf(poolID, offering)]
}

// HasInstance says whether the node's instance still exists. Nodes that were never ours are said to exist: core asks
// about those too, and what it takes for gone it no longer protects.
func (p *Provider) HasInstance(node *apiv1.Node) (bool, error) {
	id := p.instanceIDOf(node)
	if id == "" {
		return true, nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if _, exists := p.instances[id]; exists {
		return true, nil
	}
	return !p.seen.Has(id), nil
}

// Pricing returns the model over the market prices.
func (p *Provider) Pricing() (cloudprovider.PricingModel, errors.AutoscalerError) {
	return p.model, nil
}

// shape tells the pricing model what a type consists of.
func (p *Provider) shape(instanceType string) (pricing.Shape, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	shape, ok := p.shapes[instanceType]
	return pricing.Shape{VCPU: float64(shape.VCPU), MemoryGiB: shape.MemoryGiB, GPUs: float64(shape.GPUs)}, ok
}

// candidates tells the pricing model what the template of a whole pool may turn out to be.
func (p *Provider) candidates(node *apiv1.Node) []pricing.Offering {
	p.mu.RLock()
	defer p.mu.RUnlock()
	pool := p.pools[node.Annotations[api.AnnotationWholePool]]
	if pool == nil {
		return nil
	}
	var candidates []pricing.Offering
	for _, offered := range pool.offerings {
		candidates = append(candidates, offered.priced())
	}
	return candidates
}

// GetAvailableMachineTypes returns the instance types of all pools.
func (p *Provider) GetAvailableMachineTypes() ([]string, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	types := sets.New[string]()
	for _, pool := range p.pools {
		for _, offering := range pool.offerings {
			types.Insert(offering.InstanceType)
		}
	}
	return sets.List(types), nil
}

// NewNodeGroup is not implemented: scaling groups are the operator's.
func (p *Provider) NewNodeGroup(string, map[string]string, map[string]string, []apiv1.Taint,
	map[string]resource.Quantity) (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

// GetResourceLimiter returns the limits given by flags.
func (p *Provider) GetResourceLimiter() (*cloudprovider.ResourceLimiter, error) {
	return p.ResourceLimiter, nil
}

// GPULabel is the label by which ACK tells the model of a node's GPUs.
func (p *Provider) GPULabel() string { return api.LabelGPUModel }

// GetAvailableGPUTypes returns the GPU models that the pools can buy.
func (p *Provider) GetAvailableGPUTypes() map[string]struct{} {
	p.mu.RLock()
	defer p.mu.RUnlock()
	models := map[string]struct{}{}
	for _, pool := range p.pools {
		for _, offering := range pool.offerings {
			if model := GPUModelOf(offering.shape); model != "" {
				models[model] = struct{}{}
			}
		}
	}
	return models
}

// GetNodeGpuConfig returns the GPU resource of the node, also where GPUs are shared; nil where it has none.
func (p *Provider) GetNodeGpuConfig(node *apiv1.Node) *cloudprovider.GpuConfig {
	return GPUConfig(node)
}

// Cleanup ends what the provider runs and waits for removals under way.
func (p *Provider) Cleanup() error {
	p.cancel()
	p.remover.stop()
	return nil
}

// BeginLoop freezes which instances are doomed or out of service until the next call, so that core, which asks about nodes
// before Refresh and about instances after it, sees one truth; has their offerings count as dearer before anything is bought;
// and learns in which form each Node writes its providerID, because core compares that form to the letter.
func (p *Provider) BeginLoop(nodes []*apiv1.Node) {
	doomed := sets.New[string]()
	if p.Doomed != nil {
		doomed = p.Doomed().Clone()
	}
	providerIDs := make(map[string]string, len(nodes))
	for _, node := range nodes {
		id, err := p.instanceOf(node)
		if err != nil {
			p.unrecognized(node, err)
			continue
		}
		providerIDs[id] = node.Spec.ProviderID
		if node.Labels[api.LabelReclaiming] == "true" {
			doomed.Insert(id)
		}
	}
	disputed := p.disputes(nodes)
	p.inspect(nodes)
	p.retryRemovals(nodes, disputed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doomed, p.providerIDs, p.disputed = doomed, providerIDs, disputed
	p.outOfService = p.findOutOfService(nodes)
	p.unrest.observe(p.doomedOfferings())
	p.retally()
}

// doomedOfferings are those of the doomed spot instances of all pools. Needs p.mu.
func (p *Provider) doomedOfferings() map[string]pricing.Offering {
	found := map[string]pricing.Offering{}
	for id := range p.doomed {
		if instance, listed := p.instances[id]; listed {
			if offered := offeringOf(instance); offered.Purchase == PurchaseSpot {
				found[id] = offered.priced()
			}
		}
	}
	return found
}

// unrecognized tells, once per Node, that no instance can be found for it, so that it is left alone.
func (p *Provider) unrecognized(node *apiv1.Node, err error) {
	p.reports.once("node/"+node.Name+"/"+node.Spec.ProviderID, func() {
		unrecognizedNodes.Inc()
		p.Events.Eventf(apiv1.EventTypeWarning, "SpotNodeUnrecognized", "Node %s is left alone: %v", node.Name, err)
	})
}

// IsDoomed says whether the node's instance is being reclaimed, as of the last BeginLoop.
func (p *Provider) IsDoomed(node *apiv1.Node) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.doomed.Has(p.instanceIDOf(node))
}

// PoolStatus is a pool as scale-down has to see it.
type PoolStatus struct {
	ID string
	// Size counts what serves: not what is doomed, being removed, standing by or stopped, nor what is bought and has not
	// come.
	Size int
	// MinSize is the floor that scale-down must leave.
	MinSize int
	// Cooldown is how long after LastScaleUp the pool is not scaled down; nil where the pool has none of its own.
	Cooldown    *time.Duration
	LastScaleUp time.Time
}

// PoolOf returns the pool of the node; false for a node that is none of ours.
func (p *Provider) PoolOf(node *apiv1.Node) (PoolStatus, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	handle := p.handleOf(node)
	if handle == nil {
		return PoolStatus{}, false
	}
	pool := p.pools[handle.poolID]
	if pool == nil {
		return PoolStatus{}, false
	}
	tally := p.poolTally(pool.id)
	return PoolStatus{
		ID: pool.id, Size: tally.live, MinSize: pool.minSize,
		Cooldown: pool.settings.Cooldown, LastScaleUp: tally.lastScaleUp,
	}, true
}

// NodePrice is what one node of the group costs per hour, for comparison with others: the market price, and more where
// instances are being reclaimed. It is false while the price is unknown.
func (p *Provider) NodePrice(groupID string) (float64, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	handle := p.handles[groupID]
	if handle == nil {
		return 0, false
	}
	pool := p.pools[handle.poolID]
	if pool == nil {
		return 0, false
	}
	return p.dearest(pool, handle.offering, p.unrest.surcharge)
}

// TemplateVersion changes whenever the template of the group changes; it is empty for a group that is gone.
func (p *Provider) TemplateVersion(groupID string) string {
	p.mu.RLock()
	defer p.mu.RUnlock()
	handle := p.handles[groupID]
	if handle == nil {
		return ""
	}
	if known := p.knownOffering(handle); known != nil {
		return known.templateVersion
	}
	return ""
}

// knownOffering returns what is known of the handle's offering, nil where it is not to be had any more. Needs p.mu.
func (p *Provider) knownOffering(handle *Offering) *knownOffering {
	pool := p.pools[handle.poolID]
	if pool == nil {
		return nil
	}
	return pool.byGroupID[handle.id]
}

// groupIDOf is the id of the node group that holds the offering of the pool. Needs p.mu.
func (p *Provider) groupIDOf(poolID string, offering offering) string {
	if pool := p.pools[poolID]; pool != nil && pool.targeting == targetWhole {
		return wholeGroupID(poolID, pool.purchase)
	}
	return offering.groupID(poolID)
}

// instanceIDOf is empty for a node of another cloud or region and for one without a providerID.
func (p *Provider) instanceIDOf(node *apiv1.Node) string {
	id, err := p.instanceOf(node)
	if err != nil {
		return ""
	}
	return id
}

// instanceOf is the instance that the node says to be. The error says why it is none of ours.
func (p *Provider) instanceOf(node *apiv1.Node) (string, error) {
	region, id, err := InstanceIDFromProviderID(node.Spec.ProviderID)
	if err == nil && p.Region != "" && region != p.Region {
		err = &ProviderIDError{node.Spec.ProviderID, "is of another region than " + p.Region}
	}
	return id, err
}

// providerIDOf is the providerID in the form that the instance's Node has. Needs p.mu.
func (p *Provider) providerIDOf(instanceID string) string {
	if form, ok := p.providerIDs[instanceID]; ok {
		return form
	}
	return ProviderID(p.Region, instanceID)
}

// errUnknownGroup is what a handle answers to a request for change once its pool is gone or broken.
func errUnknownGroup(groupID string) error {
	return fmt.Errorf("node group %s: its scaling group is not under management any more", groupID)
}
