package pricing

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// valuing returns a pod of the namespace that says so of its time; an empty text says nothing.
func valuing(namespace, value string) *apiv1.Pod {
	p := &apiv1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
	if value != "" {
		p.Annotations = map[string]string{api.AnnotationValueOfTime: value}
	}
	return p
}

func TestNobodyDecidesForOthersWhatTheirTimeIsWorth(t *testing.T) {
	for name, c := range map[string]struct {
		pods []*apiv1.Pod
		want *float64
	}{
		"no pods":                            {nil, nil},
		"none says so":                       {[]*apiv1.Pod{valuing("a", ""), valuing("b", "")}, nil},
		"one does":                           {[]*apiv1.Pod{valuing("a", "4")}, ptr.To(4.)},
		"the on-demand price":                {[]*apiv1.Pod{valuing("a", "0")}, ptr.To(0.)},
		"one of a gang":                      {[]*apiv1.Pod{valuing("a", ""), valuing("a", "4"), valuing("a", "2")}, ptr.To(4.)},
		"all of several namespaces":          {[]*apiv1.Pod{valuing("a", "4"), valuing("b", "4.0")}, ptr.To(4.)},
		"one of several namespaces":          {[]*apiv1.Pod{valuing("a", "3"), valuing("b", "")}, nil},
		"another one of several":             {[]*apiv1.Pod{valuing("a", ""), valuing("b", "3")}, nil},
		"several namespaces do not agree":    {[]*apiv1.Pod{valuing("a", "2"), valuing("b", "4")}, nil},
		"values are powers of two":           {[]*apiv1.Pod{valuing("a", "2.8")}, ptr.To(2.)},
		"the nearest one":                    {[]*apiv1.Pod{valuing("a", "2.9")}, ptr.To(4.)},
		"so that others may be about alike":  {[]*apiv1.Pod{valuing("a", "3"), valuing("b", "5")}, ptr.To(4.)},
		"and none is too small":              {[]*apiv1.Pod{valuing("a", "1e-9")}, ptr.To(1. / 16)},
		"what cannot be read says nothing":   {[]*apiv1.Pod{valuing("a", "much")}, nil},
		"nor does what is less than nothing": {[]*apiv1.Pod{valuing("a", "-1")}, nil},
		"nor what is no number":              {[]*apiv1.Pod{valuing("a", "NaN")}, nil},
		"nor what is absurd":                 {[]*apiv1.Pod{valuing("a", "1e7")}, nil},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, ValueOfTime(c.pods...)) })
	}
}

func TestTheExpanderComparesByWhatTheTimeOfThePodsIsWorth(t *testing.T) {
	offers, infos, model := options([]bid{{"cheap", 3, 1, 1, 1}, {"kept", 4, 1, 1, 1}})
	model.config.GroupPrice = func(id string, value *float64) (float64, bool) {
		if id == "cheap" && value != nil {
			return 3 + *value/10, true
		}
		return 0, false
	}
	chosen := func(value string) Candidate {
		for i := range offers {
			offers[i].Pods[0].Annotations = valuing("", value).Annotations
		}
		var decision Decision
		best := leastPrice(model, func(d Decision) { decision = d }).BestOption(offers, infos)
		require.Equal(t, best.NodeGroup.Id(), decision.Chosen.NodeGroup)
		return decision.Chosen
	}
	assert.Equal(t, "cheap", chosen("").NodeGroup)
	assert.Equal(t, "cheap", chosen("5").NodeGroup)
	assert.Equal(t, 3., chosen("5").Price, "what is told is the market's price")
	assert.Equal(t, "kept", chosen("20").NodeGroup)
}
