package processors

import (
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaledown/eligibility"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/pricing"
)

// RequireSpot has pods of the spec fit nodes of spot instances only, by ACK's label, and only those of the offerings if there are any. It changes
// nothing that the spec shares with others.
func RequireSpot(spec *apiv1.PodSpec, offerings []pricing.Offering) {
	affinity := spec.Affinity.DeepCopy()
	if affinity == nil {
		affinity = &apiv1.Affinity{}
	}
	if affinity.NodeAffinity == nil {
		affinity.NodeAffinity = &apiv1.NodeAffinity{}
	}
	var before []apiv1.NodeSelectorTerm
	if required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		before = required.NodeSelectorTerms
	}
	if len(before) == 0 {
		before = []apiv1.NodeSelectorTerm{{}}
	}
	var terms []apiv1.NodeSelectorTerm
	for _, term := range before {
		for _, wanted := range spotTerms(offerings) {
			both := *term.DeepCopy()
			both.MatchExpressions = append(both.MatchExpressions, wanted...)
			terms = append(terms, both)
		}
	}
	affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &apiv1.NodeSelector{NodeSelectorTerms: terms}
	spec.Affinity = affinity
}

// IsPinned returns whether somebody has said on the node that scale-down is to leave it alone.
func IsPinned(node *apiv1.Node) bool { return eligibility.HasNoScaleDownAnnotation(node) }

// spotTerms returns the alternatives of what the labels of a node have to be.
func spotTerms(offerings []pricing.Offering) (terms [][]apiv1.NodeSelectorRequirement) {
	spot := []apiv1.NodeSelectorRequirement{
		{Key: api.LabelSpotStrategy, Operator: apiv1.NodeSelectorOpExists},
		{Key: api.LabelSpotStrategy, Operator: apiv1.NodeSelectorOpNotIn, Values: []string{api.SpotStrategyNoSpot}},
	}
	if len(offerings) == 0 {
		return [][]apiv1.NodeSelectorRequirement{spot}
	}
	for _, o := range offerings {
		terms = append(terms, append([]apiv1.NodeSelectorRequirement{
			{Key: apiv1.LabelInstanceTypeStable, Operator: apiv1.NodeSelectorOpIn, Values: []string{o.InstanceType}},
			{Key: apiv1.LabelTopologyZone, Operator: apiv1.NodeSelectorOpIn, Values: []string{o.Zone}},
		}, spot...))
	}
	return terms
}
