package processors

import (
	"testing"

	"github.com/stretchr/testify/assert"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
)

func TestPodsThatRequireSpotFitNodesOfThoseOfferingsOnly(t *testing.T) {
	node := func(strategy, kind, zone string) *apiv1.Node {
		n := &apiv1.Node{}
		n.Labels = map[string]string{api.LabelSpotStrategy: strategy, apiv1.LabelInstanceTypeStable: kind, apiv1.LabelTopologyZone: zone, "tier": "a"}
		return n
	}
	in := func(key, value string) apiv1.NodeSelectorTerm {
		return apiv1.NodeSelectorTerm{MatchExpressions: []apiv1.NodeSelectorRequirement{{Key: key, Operator: apiv1.NodeSelectorOpIn, Values: []string{value}}}}
	}
	shared := &apiv1.Affinity{NodeAffinity: &apiv1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &apiv1.NodeSelector{
		NodeSelectorTerms: []apiv1.NodeSelectorTerm{in("tier", "a"), in("tier", "b")},
	}}}
	before := shared.DeepCopy()
	matches := func(pod *apiv1.Pod, node *apiv1.Node) bool {
		matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
		assert.NoError(t, err)
		return matches
	}
	for name, affinity := range map[string]*apiv1.Affinity{"none of its own": nil, "one of its own": shared} {
		pod := &apiv1.Pod{Spec: apiv1.PodSpec{Affinity: affinity}}
		RequireSpot(&pod.Spec, []pricing.Offering{{InstanceType: "a10", Zone: "a", Spot: true}, {InstanceType: "l20", Zone: "b", Spot: true}})
		assert.True(t, matches(pod, node("SpotAsPriceGo", "a10", "a")), name)
		assert.True(t, matches(pod, node("SpotWithPriceLimit", "l20", "b")), name)
		assert.False(t, matches(pod, node("SpotAsPriceGo", "a10", "b")), name)
		assert.False(t, matches(pod, node("NoSpot", "a10", "a")), name)
		any := &apiv1.Pod{Spec: apiv1.PodSpec{Affinity: affinity}}
		RequireSpot(&any.Spec, nil)
		assert.True(t, matches(any, node("SpotAsPriceGo", "h20", "c")), name)
		assert.False(t, matches(any, node("NoSpot", "h20", "c")), name)
		assert.False(t, matches(any, &apiv1.Node{}), name)
	}
	assert.Equal(t, before, shared, "others have it, too")
}
