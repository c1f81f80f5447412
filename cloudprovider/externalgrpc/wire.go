package externalgrpc

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	expanderprotos "k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin/protos"
)

// Up to Cluster Autoscaler 1.34 messages contain objects of Kubernetes. From 1.35 on, since k8s.io/api has no proto messages any more,
// they contain the same objects as bytes, and times as those of protobuf, under other numbers; the old fields are gone. The messages
// here are those of 1.33. So the newer fields are among the unknown ones of a request, and are added to the unknown ones of an answer,
// which has both: each client ignores what it does not know.
// Source: externalgrpc.proto and expander.proto at the tags cluster-autoscaler-1.34.0, 1.35.0 and 1.36.1.
const (
	templateNodeBytes protowire.Number = 2

	optionsUnneeded  protowire.Number = 8
	optionsUnready   protowire.Number = 9
	optionsProvision protowire.Number = 10

	nodePriceStart, nodePriceEnd protowire.Number = 4, 5
	podPricePod                  protowire.Number = 4
	podPriceStart, podPriceEnd   protowire.Number = 5, 6
	requestNodes, optionPods     protowire.Number = 3, 5
	mapEntryKey, mapEntryValue   protowire.Number = 1, 2
	bytesType                                     = protowire.BytesType
)

// eachNewer calls visit for each field of the message that 1.33 does not know and that consists of bytes, in order. field is the whole of
// it, with its number and type.
func eachNewer(message proto.Message, visit func(number protowire.Number, value, field []byte) error) error {
	for rest := []byte(message.ProtoReflect().GetUnknown()); len(rest) > 0; {
		number, kind, tag := protowire.ConsumeTag(rest)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, rest[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		field := rest[:tag+size]
		rest = rest[tag+size:]
		var value []byte
		if kind == bytesType {
			value, _ = protowire.ConsumeBytes(field[tag:])
		}
		if err := visit(number, value, field); err != nil {
			return fmt.Errorf("field %d of %s: %w", number, message.ProtoReflect().Descriptor().FullName(), err)
		}
	}
	return nil
}

// appendNewer adds a field that 1.33 does not know.
func appendNewer(message proto.Message, number protowire.Number, value []byte) {
	fields := message.ProtoReflect().GetUnknown()
	fields = protowire.AppendTag(fields, number, bytesType)
	message.ProtoReflect().SetUnknown(protowire.AppendBytes(fields, value))
}

// templateResponse returns the answer with the node.
func templateResponse(node *apiv1.Node) (*protos.NodeGroupTemplateNodeInfoResponse, error) {
	encoded, err := node.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode a template: %w", err)
	}
	response := &protos.NodeGroupTemplateNodeInfoResponse{NodeInfo: node}
	appendNewer(response, templateNodeBytes, encoded)
	return response, nil
}

// defaultsOf returns the options that core has set, by the times of either version.
func defaultsOf(from *protos.NodeGroupAutoscalingOptions) (config.NodeGroupAutoscalingOptions, error) {
	defaults := config.NodeGroupAutoscalingOptions{
		ScaleDownUtilizationThreshold:    from.GetScaleDownUtilizationThreshold(),
		ScaleDownGpuUtilizationThreshold: from.GetScaleDownGpuUtilizationThreshold(),
		ScaleDownUnneededTime:            durationOf(from.GetScaleDownUnneededTime()),
		ScaleDownUnreadyTime:             durationOf(from.GetScaleDownUnreadyTime()),
		MaxNodeProvisionTime:             durationOf(from.GetMaxNodeProvisionTime()),
		ZeroOrMaxNodeScaling:             from.GetZeroOrMaxNodeScaling(),
		IgnoreDaemonSetsUtilization:      from.GetIgnoreDaemonSetsUtilization(),
	}
	err := eachNewer(from, func(number protowire.Number, value, _ []byte) error {
		to := map[protowire.Number]*time.Duration{
			optionsUnneeded: &defaults.ScaleDownUnneededTime, optionsUnready: &defaults.ScaleDownUnreadyTime,
			optionsProvision: &defaults.MaxNodeProvisionTime,
		}[number]
		if to == nil {
			return nil
		}
		decoded := &durationpb.Duration{}
		err := proto.Unmarshal(value, decoded)
		*to = decoded.AsDuration()
		return err
	})
	return defaults, err
}

func durationOf(d *metav1.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return d.Duration
}

// optionsResponse returns the answer with the options. Fields of the defaults that 1.33 does not know, such as those that later versions
// have added, stay as they are.
func optionsResponse(options *config.NodeGroupAutoscalingOptions, defaults *protos.NodeGroupAutoscalingOptions) (*protos.NodeGroupAutoscalingOptionsResponse, error) {
	answer := &protos.NodeGroupAutoscalingOptions{
		ScaleDownUtilizationThreshold:    options.ScaleDownUtilizationThreshold,
		ScaleDownGpuUtilizationThreshold: options.ScaleDownGpuUtilizationThreshold,
		ScaleDownUnneededTime:            &metav1.Duration{Duration: options.ScaleDownUnneededTime},
		ScaleDownUnreadyTime:             &metav1.Duration{Duration: options.ScaleDownUnreadyTime},
		MaxNodeProvisionTime:             &metav1.Duration{Duration: options.MaxNodeProvisionTime},
		ZeroOrMaxNodeScaling:             options.ZeroOrMaxNodeScaling,
		IgnoreDaemonSetsUtilization:      options.IgnoreDaemonSetsUtilization,
	}
	ours := map[protowire.Number]time.Duration{
		optionsUnneeded: options.ScaleDownUnneededTime, optionsUnready: options.ScaleDownUnreadyTime, optionsProvision: options.MaxNodeProvisionTime,
	}
	var kept []byte
	if err := eachNewer(defaults, func(number protowire.Number, _, field []byte) error {
		if _, set := ours[number]; !set {
			kept = append(kept, field...)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	answer.ProtoReflect().SetUnknown(kept)
	for number, duration := range ours {
		encoded, err := proto.Marshal(durationpb.New(duration))
		if err != nil {
			return nil, fmt.Errorf("encode a duration: %w", err)
		}
		appendNewer(answer, number, encoded)
	}
	return &protos.NodeGroupAutoscalingOptionsResponse{NodeGroupAutoscalingOptions: answer}, nil
}

// period is the time that a price is asked for.
type period struct{ start, end time.Time }

// take takes in a field with a time.
func (p *period) take(number, start, end protowire.Number, value []byte) error {
	to := map[protowire.Number]*time.Time{start: &p.start, end: &p.end}[number]
	if to == nil {
		return nil
	}
	decoded := &timestamppb.Timestamp{}
	err := proto.Unmarshal(value, decoded)
	*to = decoded.AsTime()
	return err
}

func periodOf(start, end *metav1.Time) (p period) {
	if start != nil {
		p.start = start.Time
	}
	if end != nil {
		p.end = end.Time
	}
	return p
}

// nodePricePeriod returns the time of the request.
func nodePricePeriod(request *protos.PricingNodePriceRequest) (period, error) {
	p := periodOf(request.GetStartTime(), request.GetEndTime())
	err := eachNewer(request, func(number protowire.Number, value, _ []byte) error {
		return p.take(number, nodePriceStart, nodePriceEnd, value)
	})
	return p, err
}

// podPriceRequest returns the pod and the time of the request.
func podPriceRequest(request *protos.PricingPodPriceRequest) (*apiv1.Pod, period, error) {
	pod, p := request.GetPod(), periodOf(request.GetStartTime(), request.GetEndTime())
	err := eachNewer(request, func(number protowire.Number, value, _ []byte) error {
		if number == podPricePod {
			pod = &apiv1.Pod{}
			return pod.Unmarshal(value)
		}
		return p.take(number, podPriceStart, podPriceEnd, value)
	})
	return pod, p, err
}

// nodesOf returns the nodes of the request by node group.
func nodesOf(request *expanderprotos.BestOptionsRequest) (map[string]*apiv1.Node, error) {
	nodes := map[string]*apiv1.Node{}
	for id, node := range request.GetNodeMap() {
		nodes[id] = node
	}
	err := eachNewer(request, func(number protowire.Number, value, _ []byte) error {
		if number != requestNodes {
			return nil
		}
		id, encoded, err := mapEntry(value)
		if err != nil {
			return err
		}
		nodes[id] = &apiv1.Node{}
		return nodes[id].Unmarshal(encoded)
	})
	return nodes, err
}

// mapEntry returns the key and the value of an entry of a map<string, bytes>.
func mapEntry(entry []byte) (key string, value []byte, err error) {
	for len(entry) > 0 {
		number, kind, size := protowire.ConsumeTag(entry)
		if size < 0 {
			return "", nil, protowire.ParseError(size)
		}
		entry = entry[size:]
		if size = protowire.ConsumeFieldValue(number, kind, entry); size < 0 {
			return "", nil, protowire.ParseError(size)
		}
		if field, read := protowire.ConsumeBytes(entry); kind == bytesType && read > 0 {
			switch number {
			case mapEntryKey:
				key = string(field)
			case mapEntryValue:
				value = field
			}
		}
		entry = entry[size:]
	}
	return key, value, nil
}

// podsOf returns the pods of the option.
func podsOf(option *expanderprotos.Option) ([]*apiv1.Pod, error) {
	pods := option.GetPod()
	err := eachNewer(option, func(number protowire.Number, value, _ []byte) error {
		if number != optionPods {
			return nil
		}
		pod := &apiv1.Pod{}
		pods = append(pods, pod)
		return pod.Unmarshal(value)
	})
	return pods, err
}
