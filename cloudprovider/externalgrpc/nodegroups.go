package externalgrpc

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apiv1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"
)

// untilLater is for how long nodes have to be unneeded during a cooldown: nobody waits for that, and after the cooldown the
// time is the pool's own. So a node that was idle throughout goes as soon as the cooldown ends.
const untilLater = 365 * 24 * time.Hour

// group returns the node group; a NotFound error for one that is gone.
func (s *Server) group(id string) (cloudprovider.NodeGroup, error) {
	for _, group := range s.config.Provider.NodeGroups() {
		if group.Id() == id {
			return group, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no node group %q", id)
}

// NodeGroupTargetSize returns how many instances there are and will be.
func (s *Server) NodeGroupTargetSize(_ context.Context, request *protos.NodeGroupTargetSizeRequest) (*protos.NodeGroupTargetSizeResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	size, err := group.TargetSize()
	if err != nil {
		return nil, answer(err)
	}
	return &protos.NodeGroupTargetSizeResponse{TargetSize: int32(size)}, nil
}

// NodeGroupIncreaseSize enters a purchase, which counts in the target from then on, and has it sent beside the call. So the answer does
// not wait for Alibaba Cloud. If it is lost nevertheless, the client backs the node group off and asks for its target in the next loop:
// the purchase is in it, or was never entered. The client does not repeat a call by itself. Where the client has given up before the call
// is carried out, nothing is bought.
// Source: executeScaleUp in core/scaleup/orchestrator/executor.go; gRPC itself sends a call again only if the server has not seen it
// (transparent retry, gRFC A6), since the client sets no retry policy.
func (s *Server) NodeGroupIncreaseSize(ctx context.Context, request *protos.NodeGroupIncreaseSizeRequest) (*protos.NodeGroupIncreaseSizeResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	s.buying.Lock()
	defer s.buying.Unlock()
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if err := group.IncreaseSize(int(request.GetDelta())); err != nil {
		return nil, answer(err)
	}
	select {
	case s.purchased <- struct{}{}:
	default: // it is known already that there is something to send
	}
	return &protos.NodeGroupIncreaseSizeResponse{}, nil
}

// NodeGroupDeleteNodes gives the nodes back. If that takes nearly as long as the client waits, it goes on, and the answer is that it is done.
// After an error the client would take its taint off the nodes, and pods would be placed on instances that go. With the taint nothing is, and
// the nodes are of no node group from the next loop on. Of those that are not given back in the end the taint is taken off in the client's place.
// Source: CleanUpAndRecordFailedScaleDownEvent in core/scaledown/actuation/delete_in_batch.go.
func (s *Server) NodeGroupDeleteNodes(ctx context.Context, request *protos.NodeGroupDeleteNodesRequest) (*protos.NodeGroupDeleteNodesResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	var nodes []*apiv1.Node
	for _, node := range request.GetNodes() {
		nodes = append(nodes, nodeOf(node))
	}
	removed := make(chan error, 1)
	go func() { removed <- group.DeleteNodes(nodes) }() // ends with the removal, which the provider bounds
	answered, cancel := answerIn(ctx)
	defer cancel()
	select {
	case err := <-removed:
		if err != nil {
			return nil, answer(err)
		}
	case <-answered.Done():
		klog.FromContext(ctx).Info("Nodes are given back for longer than the client waits for an answer, and it goes on", "nodeGroup", group.Id(), "nodes", len(nodes))
		go s.awaitRemoval(context.WithoutCancel(ctx), nodes, removed)
	}
	return &protos.NodeGroupDeleteNodesResponse{}, nil
}

// untaintTimeout bounds the requests by which a node is opened again.
const untaintTimeout = 30 * time.Second

// awaitRemoval waits for the end of a removal that the client takes for done, and takes the client's taint off the nodes that are not given back
// and that serve again. As long as a node has that taint, the client counts its instance in the target but not the node: it would take it for a node
// that is to come, and buy nothing for the pods that fit it. A cordon (--cordon-node-before-terminating) stays: nobody knows whose it is.
// Source: hasCloudProviderInstance and GetUpcomingNodes in clusterstate/clusterstate.go.
func (s *Server) awaitRemoval(ctx context.Context, nodes []*apiv1.Node, removed <-chan error) {
	err := <-removed
	if err == nil {
		return
	}
	klog.FromContext(ctx).Error(err, "Nodes were not given back after the client was told so")
	for _, node := range nodes {
		if !s.config.Provider.MayGiveBack(node) {
			continue
		}
		if err := s.untaint(ctx, node.Name); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot take the taint off a node that was not given back; the client does so within minutes", "node", node.Name)
		}
	}
}

// untaint takes the taint off by which the client keeps pods off a node that it deletes.
func (s *Server) untaint(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, untaintTimeout)
	defer cancel()
	node, err := s.config.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	_, err = taints.CleanToBeDeleted(node, s.config.Client, false)
	return err
}

// answerIn returns a context that ends when most of the time is over that the client waits, so that an answer still reaches it.
func answerIn(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)*4/5)
}

// NodeGroupDecreaseTargetSize cancels purchases that are not delivered yet.
func (s *Server) NodeGroupDecreaseTargetSize(_ context.Context, request *protos.NodeGroupDecreaseTargetSizeRequest) (*protos.NodeGroupDecreaseTargetSizeResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	if err := group.DecreaseTargetSize(int(request.GetDelta())); err != nil {
		return nil, answer(err)
	}
	return &protos.NodeGroupDecreaseTargetSizeResponse{}, nil
}

// NodeGroupNodes returns the instances. Failed ones are among them, with the reason.
func (s *Server) NodeGroupNodes(_ context.Context, request *protos.NodeGroupNodesRequest) (*protos.NodeGroupNodesResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	instances, err := group.Nodes()
	if err != nil {
		return nil, answer(err)
	}
	response := &protos.NodeGroupNodesResponse{}
	for _, instance := range instances {
		response.Instances = append(response.Instances, &protos.Instance{Id: instance.Id, Status: statusOf(instance.Status)})
	}
	return response, nil
}

// statusOf returns the status of an instance. The numbers of states and of classes of errors are those of Cluster Autoscaler.
func statusOf(from *cloudprovider.InstanceStatus) *protos.InstanceStatus {
	if from == nil {
		return &protos.InstanceStatus{}
	}
	to := &protos.InstanceStatus{InstanceState: protos.InstanceStatus_InstanceState(from.State)}
	if failed := from.ErrorInfo; failed != nil {
		to.ErrorInfo = &protos.InstanceErrorInfo{
			ErrorCode: failed.ErrorCode, ErrorMessage: failed.ErrorMessage, InstanceErrorClass: int32(failed.ErrorClass),
		}
	}
	return to
}

// NodeGroupTemplateNodeInfo returns the node that an instance would become.
func (s *Server) NodeGroupTemplateNodeInfo(_ context.Context, request *protos.NodeGroupTemplateNodeInfoRequest) (*protos.NodeGroupTemplateNodeInfoResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	info, err := group.TemplateNodeInfo()
	if err != nil {
		return nil, answer(err)
	}
	response, err := templateResponse(info.Node())
	if err != nil {
		return nil, answer(err)
	}
	return response, nil
}

// NodeGroupGetOptions returns the defaults, overridden by the tags of the pool. While the pool cools down none of its nodes is unneeded for
// long enough.
func (s *Server) NodeGroupGetOptions(_ context.Context, request *protos.NodeGroupAutoscalingOptionsRequest) (*protos.NodeGroupAutoscalingOptionsResponse, error) {
	group, err := s.group(request.GetId())
	if err != nil {
		return nil, err
	}
	defaults, err := defaultsOf(request.GetDefaults())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	options, err := group.GetOptions(defaults)
	if err != nil {
		return nil, answer(err)
	}
	if options == nil {
		options = &defaults
	}
	if pool, known := s.config.Provider.PoolOfGroup(group.Id()); known && pool.CoolsDown(s.config.Cooldown, s.config.Clock.Now()) {
		cooling := *options
		cooling.ScaleDownUnneededTime, cooling.ScaleDownUnreadyTime = untilLater, untilLater
		options = &cooling
	}
	response, err := optionsResponse(options, request.GetDefaults())
	if err != nil {
		return nil, answer(err)
	}
	return response, nil
}
