package externalgrpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	expanderprotos "k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin/protos"
)

// field returns a field of bytes as it is on the wire.
func field(number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func encoded(t *testing.T, message proto.Message) []byte {
	t.Helper()
	value, err := proto.Marshal(message)
	require.NoError(t, err)
	return value
}

// read returns the fields of bytes of the message on the wire, the last of each number.
func read(t *testing.T, message []byte) map[protowire.Number][]byte {
	t.Helper()
	found := map[protowire.Number][]byte{}
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		require.Positive(t, tag)
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		require.Positive(t, size)
		if kind == protowire.BytesType {
			found[number], _ = protowire.ConsumeBytes(message[tag:])
		}
		message = message[tag+size:]
	}
	return found
}

func TestATemplateIsReadByNewerClients(t *testing.T) {
	f := newFixture(t)
	response, err := f.raw.NodeGroupTemplateNodeInfo(t.Context(), &protos.NodeGroupTemplateNodeInfoRequest{Id: "b"})
	require.NoError(t, err)
	node := &apiv1.Node{}
	require.NoError(t, node.Unmarshal(read(t, encoded(t, response))[2]))
	assert.Equal(t, "b", node.Labels["type"])
	assert.Equal(t, response.GetNodeInfo().Status.Capacity.Cpu().MilliValue(), node.Status.Capacity.Cpu().MilliValue())
}

func TestOptionsAreReadByNewerClients(t *testing.T) {
	f := newFixture(t)
	defaults := &protos.NodeGroupAutoscalingOptions{ScaleDownGpuUtilizationThreshold: 0.5}
	later := field(11, encoded(t, durationpb.New(7*time.Minute))) // 1.37: maxNodeStartupDuration
	sent := append(field(8, encoded(t, durationpb.New(time.Minute))), field(9, encoded(t, durationpb.New(2*time.Minute)))...)
	sent = append(sent, field(10, encoded(t, durationpb.New(3*time.Minute)))...)
	defaults.ProtoReflect().SetUnknown(append(sent, later...))

	read135 := func() map[protowire.Number]time.Duration {
		response, err := f.raw.NodeGroupGetOptions(t.Context(), &protos.NodeGroupAutoscalingOptionsRequest{Id: "a", Defaults: defaults})
		require.NoError(t, err)
		found := map[protowire.Number]time.Duration{}
		for number, value := range read(t, encoded(t, response.GetNodeGroupAutoscalingOptions())) {
			if number >= 8 {
				duration := &durationpb.Duration{}
				require.NoError(t, proto.Unmarshal(value, duration))
				found[number] = duration.AsDuration()
			}
		}
		return found
	}
	assert.Equal(t, map[protowire.Number]time.Duration{8: time.Minute, 9: 2 * time.Minute, 10: 3 * time.Minute, 11: 7 * time.Minute}, read135(),
		"the group has none of its own: the defaults come back, and so does what is not known here")
}

func TestTheTimesAndThePodOfAPriceAreThoseOfNewerClients(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	times := func(first, second protowire.Number) []byte {
		return append(field(first, encoded(t, timestamppb.New(start))), field(second, encoded(t, timestamppb.New(start.Add(time.Hour))))...)
	}
	ofNode := &protos.PricingNodePriceRequest{}
	ofNode.ProtoReflect().SetUnknown(times(4, 5))
	over, err := nodePricePeriod(ofNode)
	require.NoError(t, err)
	assert.Equal(t, period{start, start.Add(time.Hour)}, over)

	pod, err := (&apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train"}}).Marshal()
	require.NoError(t, err)
	ofPod := &protos.PricingPodPriceRequest{}
	ofPod.ProtoReflect().SetUnknown(append(field(4, pod), times(5, 6)...))
	decoded, over, err := podPriceRequest(ofPod)
	require.NoError(t, err)
	assert.Equal(t, "train", decoded.Name)
	assert.Equal(t, period{start, start.Add(time.Hour)}, over)

	old := metav1.NewTime(start)
	over, err = nodePricePeriod(&protos.PricingNodePriceRequest{StartTime: &old, EndTime: &old})
	require.NoError(t, err)
	assert.Equal(t, period{start, start}, over)
}

// newerOptions returns a request to an expander as clients from 1.35 on send it.
func newerOptions(t *testing.T, pods []*apiv1.Pod, groups ...string) *expanderprotos.BestOptionsRequest {
	t.Helper()
	request := &expanderprotos.BestOptionsRequest{}
	var nodes []byte
	for _, group := range groups {
		option := &expanderprotos.Option{NodeGroupId: group, NodeCount: 1}
		var sent []byte
		for _, pod := range pods {
			value, err := pod.Marshal()
			require.NoError(t, err)
			sent = append(sent, field(5, value)...)
		}
		option.ProtoReflect().SetUnknown(sent)
		request.Options = append(request.Options, option)
		node, err := templateNode(group).Marshal()
		require.NoError(t, err)
		nodes = append(nodes, field(3, append(field(1, []byte(group)), field(2, node)...))...)
	}
	request.ProtoReflect().SetUnknown(nodes)
	return request
}

func TestTheOptionsOfNewerClientsHaveTheirPodsAndNodes(t *testing.T) {
	pod := &apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Spec: apiv1.PodSpec{Containers: []apiv1.Container{{
		Resources: apiv1.ResourceRequirements{Requests: apiv1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}},
	}}}}
	request := newerOptions(t, []*apiv1.Pod{pod}, "a", "b")
	received := &expanderprotos.BestOptionsRequest{}
	require.NoError(t, proto.Unmarshal(encoded(t, request), received))
	nodes, err := nodesOf(received)
	require.NoError(t, err)
	require.Len(t, nodes, 2)
	assert.Equal(t, "b", nodes["b"].Labels["type"])
	pods, err := podsOf(received.Options[1])
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, "train", pods[0].Name)
}

func TestWhatIsCutOffIsAnError(t *testing.T) {
	_, _, err := mapEntry(field(1, []byte("group"))[:3])
	assert.Error(t, err)
	option := &expanderprotos.Option{}
	option.ProtoReflect().SetUnknown(field(5, []byte{0xff}))
	_, err = podsOf(option)
	assert.ErrorContains(t, err, "field 5")
}
