package externalgrpc

import (
	"context"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin/protos"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"

	"gpu-spot-autoscaler/cloudprovider/processors"
)

// Offerings are what is chosen from. It is implemented by *ess.Provider, where it is explained.
type Offerings interface {
	NodeGroups() []cloudprovider.NodeGroup
	BuysForCPUPods(groupID string) bool
}

// Policy says which offerings pods may have. It is implemented by *spotfirst.Policy, where it is explained.
type Policy interface {
	Allows(groupID string, pods []*apiv1.Pod) bool
	AllowSpot(pods []*apiv1.Pod, choose func())
	SpotOnly(pod *apiv1.Pod) bool
	OnDemandOnly(pod *apiv1.Pod) bool
}

// Expander implements the service Expander. It is safe for concurrent use.
type Expander struct {
	protos.UnimplementedExpanderServer
	offerings Offerings
	best      expander.Filter

	mu     sync.Mutex // of the policy
	policy Policy
}

// NewExpander returns an Expander that chooses by best among what the policy allows.
func NewExpander(offerings Offerings, policy Policy, best expander.Filter) *Expander {
	return &Expander{offerings: offerings, best: best, policy: policy}
}

// BestOptions returns the best of the options that their pods may have, or none: then the client buys nothing, and asks again in its next
// loop. An option whose node group is gone is left out.
// Source: BestOptions in expander/grpcplugin/grpc_client.go, which takes an empty answer for a choice of none, and goes on with all
// options after an error; BestOption in expander/factory/chain.go, and ScaleUp in core/scaleup/orchestrator.
func (e *Expander) BestOptions(_ context.Context, request *protos.BestOptionsRequest) (*protos.BestOptionsResponse, error) {
	options, err := e.optionsOf(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	nodes, err := nodesOf(request)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	infos := map[string]*framework.NodeInfo{}
	for id, node := range nodes {
		infos[id] = framework.NewNodeInfo(node, nil)
	}
	response := &protos.BestOptionsResponse{}
	for _, best := range e.best.BestOptions(e.allowed(options), infos) {
		response.Options = append(response.Options, &protos.Option{NodeGroupId: best.NodeGroup.Id(), NodeCount: int32(best.NodeCount), Debug: best.Debug})
	}
	return response, nil
}

func (e *Expander) optionsOf(request *protos.BestOptionsRequest) (options []expander.Option, err error) {
	groups := map[string]cloudprovider.NodeGroup{}
	for _, group := range e.offerings.NodeGroups() {
		groups[group.Id()] = group
	}
	for _, sent := range request.GetOptions() {
		group := groups[sent.GetNodeGroupId()]
		if group == nil {
			continue
		}
		pods, err := podsOf(sent)
		if err != nil {
			return nil, err
		}
		options = append(options, expander.Option{NodeGroup: group, NodeCount: int(sent.GetNodeCount()), Debug: sent.GetDebug(), Pods: pods})
	}
	return options, nil
}

// allowed returns the options that their pods may have. The client takes an option for all of its pods or not at all, and the pods of one tenant
// must not keep those of all others from what they may have. So those that are to be on demand only count where nothing may be bought for others. If
// nothing is left, those that never may be on demand do not count. If nothing is left then, pods whose deadline is close have spot instances, and at
// last one pod is enough that may have the option.
func (e *Expander) allowed(options []expander.Option) []expander.Option {
	e.mu.Lock()
	defer e.mu.Unlock()
	var pods []*apiv1.Pod
	for _, option := range options {
		pods = append(pods, option.Pods...)
	}
	found := e.firstOf(options, e.allowsForSpotTakers, e.policy.Allows, e.allowsOthers)
	if len(found) == 0 {
		e.policy.AllowSpot(pods, func() { found = e.firstOf(options, e.policy.Allows, e.allowsOne) })
	}
	if len(found) == 0 {
		found = e.filter(options, e.allowsOne)
	}
	return found
}

// allows returns whether the node group may be bought for the pods.
type allows func(groupID string, pods []*apiv1.Pod) bool

// firstOf returns the options that may be bought by the first rule by which some may.
func (e *Expander) firstOf(options []expander.Option, rules ...allows) (found []expander.Option) {
	for _, rule := range rules {
		if found = e.filter(options, rule); len(found) > 0 {
			break
		}
	}
	return found
}

// allowsForSpotTakers returns whether the node group may be bought for those of the pods that may be on spot.
func (e *Expander) allowsForSpotTakers(groupID string, pods []*apiv1.Pod) bool {
	takers := slices.DeleteFunc(slices.Clone(pods), e.policy.OnDemandOnly)
	return len(takers) > 0 && e.policy.Allows(groupID, takers)
}

// allowsOthers returns whether the node group may be bought for those of the pods that may be on demand.
func (e *Expander) allowsOthers(groupID string, pods []*apiv1.Pod) bool {
	others := slices.DeleteFunc(slices.Clone(pods), e.policy.SpotOnly)
	return len(others) > 0 && e.policy.Allows(groupID, others)
}

// allowsOne returns whether the node group may be bought for one of the pods at least.
func (e *Expander) allowsOne(groupID string, pods []*apiv1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod *apiv1.Pod) bool { return e.policy.Allows(groupID, []*apiv1.Pod{pod}) })
}

// filter returns the options that may be bought for their pods.
func (e *Expander) filter(options []expander.Option, rule allows) []expander.Option {
	return slices.DeleteFunc(slices.Clone(options), func(option expander.Option) bool {
		id := option.NodeGroup.Id()
		return !rule(id, option.Pods) || !e.offerings.BuysForCPUPods(id) && !slices.ContainsFunc(option.Pods, processors.RequestsGPU)
	})
}
