package externalgrpc

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin/protos"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	catest "k8s.io/autoscaler/cluster-autoscaler/utils/test"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
)

// choice is what an expander chooses from, how, and what for whom is forbidden.
type choice struct {
	*provider
	forbidden map[string]bool
	// never is a pod that must never have the node group.
	never map[string]string
	spot  bool
}

func (c *choice) BuysForCPUPods(id string) bool { return id != "a" }
func (c *choice) Allows(id string, pods []*apiv1.Pod) bool {
	never := slices.ContainsFunc(pods, func(pod *apiv1.Pod) bool { return pod.Name == c.never[id] })
	return !never && (!c.forbidden[id] || c.spot)
}
func (c *choice) SpotOnly(*apiv1.Pod) bool     { return false }
func (c *choice) OnDemandOnly(*apiv1.Pod) bool { return false }
func (c *choice) AllowSpot(pods []*apiv1.Pod, choose func()) {
	if !slices.ContainsFunc(pods, func(pod *apiv1.Pod) bool { return pod.Name == "late" }) {
		return
	}
	c.spot = true
	defer func() { c.spot = false }()
	choose()
}

// first chooses the first option that has a node.
type first struct{}

func (first) BestOptions(options []expander.Option, nodes map[string]*framework.NodeInfo) []expander.Option {
	for _, option := range options {
		if nodes[option.NodeGroup.Id()] != nil {
			return []expander.Option{option}
		}
	}
	return nil
}

func gpuPod(name string) *apiv1.Pod {
	pod := catest.BuildTestPod(name, 100, 100)
	pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	return pod
}

func TestTheExpanderChoosesAmongWhatThePodsMayHave(t *testing.T) {
	train, web := gpuPod("train"), catest.BuildTestPod("web", 100, 100)
	for name, test := range map[string]struct {
		forbidden []string
		pods      []*apiv1.Pod
		want      []string
	}{
		"the best":                                         {pods: []*apiv1.Pod{train}, want: []string{"a"}},
		"without what is not allowed yet":                  {forbidden: []string{"a"}, pods: []*apiv1.Pod{train}, want: []string{"b"}},
		"nothing is bought if nothing may":                 {forbidden: []string{"a", "b"}, pods: []*apiv1.Pod{train}},
		"spot instances if time runs out":                  {forbidden: []string{"a", "b"}, pods: []*apiv1.Pod{gpuPod("late")}, want: []string{"a"}},
		"no GPU nodes for pods without GPUs":               {pods: []*apiv1.Pod{web}, want: []string{"b"}},
		"nothing that one of the pods must never have":     {pods: []*apiv1.Pod{train, gpuPod("never-a")}, want: []string{"b"}},
		"unless the others would have nothing then":        {forbidden: []string{"b"}, pods: []*apiv1.Pod{train, gpuPod("never-a")}, want: []string{"a"}},
		"and not for that pod alone":                       {forbidden: []string{"b"}, pods: []*apiv1.Pod{gpuPod("never-a")}},
		"nor for others that must not have it yet, either": {forbidden: []string{"a", "b"}, pods: []*apiv1.Pod{train, gpuPod("never-a")}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c := &choice{provider: f.provider, forbidden: map[string]bool{}, never: map[string]string{"a": "never-a"}}
			for _, id := range test.forbidden {
				c.forbidden[id] = true
			}
			e := NewExpander(c, c, first{})
			old := &protos.BestOptionsRequest{NodeMap: map[string]*apiv1.Node{"a": templateNode("a"), "b": templateNode("b")}}
			for _, id := range []string{"gone", "a", "b"} {
				old.Options = append(old.Options, &protos.Option{NodeGroupId: id, NodeCount: 1, Pod: test.pods})
			}
			for version, request := range map[string]*protos.BestOptionsRequest{
				"1.33": old, "1.35": newerOptions(t, test.pods, "gone", "a", "b"),
			} {
				response, err := e.BestOptions(t.Context(), request)
				require.NoError(t, err, version)
				var chosen []string
				for _, option := range response.GetOptions() {
					chosen = append(chosen, option.GetNodeGroupId())
				}
				assert.Equal(t, test.want, chosen, version)
			}
		})
	}
}

// offerings are spot instances and on-demand ones, which are called so.
type offerings struct{ *provider }

func (offerings) BuysForCPUPods(string) bool { return true }
func (offerings) OnDemandAfter(id string) (time.Duration, bool) {
	return 10 * time.Minute, id == "on-demand"
}

func TestThePodsOfOneTenantDoNotDecideForThoseOfOthersWhetherTheyAreOnSpot(t *testing.T) {
	wanting := func(annotations map[string]string) *apiv1.Pod {
		pod := gpuPod("p")
		pod.CreationTimestamp.Time, pod.Annotations = time.Now(), annotations
		return pod
	}
	never := wanting(map[string]string{api.AnnotationOnDemandAfter: api.OnDemandNever})
	late := wanting(map[string]string{api.AnnotationDeadline: time.Now().Add(time.Hour).Format(time.RFC3339), api.AnnotationWork: "1h"})
	onDemand := wanting(map[string]string{api.AnnotationCapacity: api.CapacityOnDemand})
	waiting := wanting(nil)
	for name, test := range map[string]struct {
		pods    []*apiv1.Pod
		offered []string
		want    []string
	}{
		"a late job is on demand":                                {[]*apiv1.Pod{late}, []string{"spot", "on-demand"}, []string{"on-demand"}},
		"also beside a pod that never is":                        {[]*apiv1.Pod{never, late}, []string{"spot", "on-demand"}, []string{"on-demand"}},
		"and beside one that waits for spot":                     {[]*apiv1.Pod{waiting, never, late}, []string{"spot", "on-demand"}, []string{"on-demand"}},
		"a late job is on spot if there is nothing else":         {[]*apiv1.Pod{never, late}, []string{"spot"}, []string{"spot"}},
		"those that are not late are on spot":                    {[]*apiv1.Pod{never, waiting}, []string{"spot", "on-demand"}, []string{"spot"}},
		"or wait for it":                                         {[]*apiv1.Pod{never, waiting}, []string{"on-demand"}, nil},
		"a pod that takes on demand only is on demand":           {[]*apiv1.Pod{onDemand}, []string{"spot", "on-demand"}, []string{"on-demand"}},
		"and gets nothing of spot alone":                         {[]*apiv1.Pod{onDemand}, []string{"spot"}, nil},
		"beside one that waits for spot it has what that has":    {[]*apiv1.Pod{onDemand, waiting}, []string{"spot", "on-demand"}, []string{"spot"}},
		"or else its own":                                        {[]*apiv1.Pod{onDemand, waiting}, []string{"on-demand"}, []string{"on-demand"}},
		"nothing on demand is bought for pods that never are so": {[]*apiv1.Pod{never}, []string{"on-demand"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			request := &protos.BestOptionsRequest{NodeMap: map[string]*apiv1.Node{}}
			for _, id := range test.offered {
				f.provider.AddNodeGroup(id, 0, 10, 0)
				request.NodeMap[id] = templateNode(id)
				request.Options = append(request.Options, &protos.Option{NodeGroupId: id, NodeCount: 1, Pod: test.pods})
			}
			offered := offerings{f.provider}
			policy := spotfirst.NewPolicy(spotfirst.Config{Offerings: offered, Restart: 10 * time.Minute, Clock: clock.RealClock{}})
			response, err := NewExpander(offered, policy, first{}).BestOptions(t.Context(), request)
			require.NoError(t, err)
			var chosen []string
			for _, option := range response.GetOptions() {
				chosen = append(chosen, option.GetNodeGroupId())
			}
			assert.Equal(t, test.want, chosen)
		})
	}
}

var _ cloudprovider.CloudProvider = (*provider)(nil)
