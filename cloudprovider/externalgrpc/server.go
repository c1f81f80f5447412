package externalgrpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
)

const (
	// absence is after how long without a Refresh the client counts as gone, and the provider is refreshed here. It is longer than a loop
	// of core: what is reclaiming must not change within one, because the client keeps some answers until its next Refresh.
	absence = time.Minute
	// patience is how long a client should give an answer: a refresh reads all pools, and a removal waits for Alibaba Cloud.
	patience = 15 * time.Second
)

// Provider is what is served. It is implemented by *ess.Provider, where it is explained.
type Provider interface {
	cloudprovider.CloudProvider
	BeginLoop(nodes []*apiv1.Node)
	IsReclaiming(node *apiv1.Node) bool
	OutOfService(node *apiv1.Node) bool
	Serves(node *apiv1.Node) bool
	PoolOfGroup(groupID string) (ess.PoolStatus, bool)
}

// Purchases has purchases sent beside the call that makes them. It is implemented by *ess.Purchases.
type Purchases interface {
	Gather(buy func(send func()))
}

// Config is what a Server is made of. All is required.
type Config struct {
	Provider  Provider
	Purchases Purchases
	// Nodes are those of the cluster, which is written to by the Client.
	Nodes  corelisters.NodeLister
	Client kubernetes.Interface
	// Cooldown is that of pools that have none of their own: for how long after a purchase they are not scaled down.
	Cooldown time.Duration
	// Interval is how often the provider is refreshed while no client does it.
	Interval time.Duration
	Clock    clock.WithTicker
}

// Server implements the service CloudProvider. It is safe for concurrent use.
type Server struct {
	protos.UnimplementedCloudProviderServer
	config Config
	// purchased has an item if purchases have been entered that are not sent yet.
	purchased chan struct{}
	// buying has purchases entered one by one.
	buying     sync.Mutex
	refreshes  singleflight.Group
	impatience sync.Once
	late       *lateRemovals

	mu        sync.Mutex
	refreshed time.Time // by the client
}

// NewServer returns a Server. Until Run runs, the calls that make purchases send them themselves.
func NewServer(config Config) *Server {
	return &Server{config: config, purchased: make(chan struct{}, 1), late: newLateRemovals(config.Provider, config.Client)}
}

// Run sends purchases, and refreshes the provider while no client does, until ctx ends.
func (s *Server) Run(ctx context.Context) {
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { s.sendPurchases(ctx) })
	ticker := s.config.Clock.NewTicker(s.config.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if s.isAlone() {
				if err := s.refreshOnce(ctx); err != nil {
					klog.FromContext(ctx).Error(err, "Cannot refresh the pools")
				}
			}
		}
	}
}

// Finish waits until the nodes are open again that are not given back although the client was told so. It is to be called when the process
// ends, after the provider has ended its removals: the next process does not know of them.
func (s *Server) Finish() { s.late.finish() }

// sendPurchases gathers purchases until ctx ends, and sends them. What is purchased meanwhile is sent together afterwards.
func (s *Server) sendPurchases(ctx context.Context) {
	s.config.Purchases.Gather(func(send func()) {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.purchased:
				send()
			}
		}
	})
}

// isAlone returns whether no client refreshes.
func (s *Server) isAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.Clock.Since(s.refreshed) >= absence
}

// NodeGroups returns the offerings.
func (s *Server) NodeGroups(context.Context, *protos.NodeGroupsRequest) (*protos.NodeGroupsResponse, error) {
	response := &protos.NodeGroupsResponse{}
	for _, group := range s.config.Provider.NodeGroups() {
		response.NodeGroups = append(response.NodeGroups, s.describe(group))
	}
	return response, nil
}

// describe returns the node group with its limits. Its minimum is what is left of it if all goes that the pool can do without: the
// minimum is that of the pool, and core knows those of node groups only.
func (s *Server) describe(group cloudprovider.NodeGroup) *protos.NodeGroup {
	least := group.MinSize()
	if pool, known := s.config.Provider.PoolOfGroup(group.Id()); known && pool.MinSize > 0 {
		if size, err := group.TargetSize(); err == nil {
			least = max(least, size-max(0, pool.Size-pool.MinSize))
		}
	}
	return &protos.NodeGroup{Id: group.Id(), MinSize: int32(least), MaxSize: int32(group.MaxSize()), Debug: group.Debug()}
}

// NodeGroupForNode returns the offering of the node. It returns none for a node that is being reclaimed, given back, on standby or stopped: it is
// no capacity, and does not count in the target of its offering.
func (s *Server) NodeGroupForNode(_ context.Context, request *protos.NodeGroupForNodeRequest) (*protos.NodeGroupForNodeResponse, error) {
	node := nodeOf(request.GetNode())
	if s.config.Provider.IsReclaiming(node) || s.config.Provider.OutOfService(node) {
		return &protos.NodeGroupForNodeResponse{NodeGroup: &protos.NodeGroup{}}, nil
	}
	group, err := s.config.Provider.NodeGroupForNode(node)
	if err != nil {
		return nil, answer(err)
	}
	if group == nil || reflect.ValueOf(group).IsNil() {
		return &protos.NodeGroupForNodeResponse{NodeGroup: &protos.NodeGroup{}}, nil
	}
	return &protos.NodeGroupForNodeResponse{NodeGroup: s.describe(group)}, nil
}

// nodeOf returns the node as far as the protocol carries it.
func nodeOf(from *protos.ExternalGrpcNode) *apiv1.Node {
	return &apiv1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: from.GetName(), Labels: from.GetLabels(), Annotations: from.GetAnnotations()},
		Spec:       apiv1.NodeSpec{ProviderID: from.GetProviderID()},
	}
}

// answer returns the error as the client understands it: only Unimplemented means anything to it.
func answer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, cloudprovider.ErrNotImplemented):
		return status.Error(codes.Unimplemented, err.Error())
	}
	if known, ok := status.FromError(err); ok && known.Code() != codes.Unimplemented {
		return err
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// PricingNodePrice returns what the node costs in the time.
func (s *Server) PricingNodePrice(_ context.Context, request *protos.PricingNodePriceRequest) (*protos.PricingNodePriceResponse, error) {
	model, unpriced := s.config.Provider.Pricing()
	if unpriced != nil {
		return nil, answer(unpriced)
	}
	over, err := nodePricePeriod(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	price, err := model.NodePrice(nodeOf(request.GetNode()), over.start, over.end)
	if err != nil {
		return nil, answer(err)
	}
	return &protos.PricingNodePriceResponse{Price: price}, nil
}

// PricingPodPrice returns what the pod would cost in the time on a machine that fits it.
func (s *Server) PricingPodPrice(_ context.Context, request *protos.PricingPodPriceRequest) (*protos.PricingPodPriceResponse, error) {
	model, unpriced := s.config.Provider.Pricing()
	if unpriced != nil {
		return nil, answer(unpriced)
	}
	pod, over, err := podPriceRequest(request)
	if err != nil || pod == nil {
		return nil, status.Errorf(codes.InvalidArgument, "read the pod: %v", err)
	}
	price, err := model.PodPrice(pod, over.start, over.end)
	if err != nil {
		return nil, answer(err)
	}
	return &protos.PricingPodPriceResponse{Price: price}, nil
}

// GPULabel returns the label with the model of the GPUs.
func (s *Server) GPULabel(context.Context, *protos.GPULabelRequest) (*protos.GPULabelResponse, error) {
	return &protos.GPULabelResponse{Label: s.config.Provider.GPULabel()}, nil
}

// GetAvailableGPUTypes returns the GPU models that the pools can buy.
func (s *Server) GetAvailableGPUTypes(context.Context, *protos.GetAvailableGPUTypesRequest) (*protos.GetAvailableGPUTypesResponse, error) {
	response := &protos.GetAvailableGPUTypesResponse{GpuTypes: map[string]*anypb.Any{}}
	for model := range s.config.Provider.GetAvailableGPUTypes() {
		response.GpuTypes[model] = &anypb.Any{}
	}
	return response, nil
}

// Cleanup does nothing: the client ends, and the provider goes on.
func (s *Server) Cleanup(context.Context, *protos.CleanupRequest) (*protos.CleanupResponse, error) {
	return &protos.CleanupResponse{}, nil
}

// Refresh begins a loop, and reads the pools. If that takes longer than the client waits, it goes on, and the next call waits for the same.
func (s *Server) Refresh(ctx context.Context, _ *protos.RefreshRequest) (*protos.RefreshResponse, error) {
	s.mu.Lock()
	s.refreshed = s.config.Clock.Now()
	s.mu.Unlock()
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) < patience {
		s.impatience.Do(func() {
			klog.FromContext(ctx).Info("The client waits for less than it should; set grpc_timeout in its cloud-config", "shouldWait", patience)
		})
	}
	if err := s.refreshOnce(ctx); err != nil {
		return nil, answer(err)
	}
	return &protos.RefreshResponse{}, nil
}

// refreshOnce refreshes, or waits for a refresh that is under way, no longer than ctx.
func (s *Server) refreshOnce(ctx context.Context) error {
	select {
	case done := <-s.refreshes.DoChan("", func() (any, error) { return nil, s.refresh() }):
		return done.Err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (s *Server) refresh() error {
	nodes, err := s.config.Nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.config.Provider.BeginLoop(nodes)
	return s.config.Provider.Refresh()
}
