package templates

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

// market is a provider of groups by id, with their templates.
type market struct {
	cloudprovider.CloudProvider
	groups   []cloudprovider.NodeGroup
	versions map[string]string
	byNode   map[string]string
}

type group struct {
	cloudprovider.NodeGroup
	id     string
	node   *apiv1.Node
	err    error
	builds int
}

func (g *group) Id() string { return g.id }

func (g *group) TemplateNodeInfo() (*framework.NodeInfo, error) {
	g.builds++
	if g.err != nil {
		return nil, g.err
	}
	return framework.NewNodeInfo(g.node, nil), nil
}

func (m *market) NodeGroups() []cloudprovider.NodeGroup { return m.groups }
func (m *market) TemplateVersion(id string) string      { return m.versions[id] }
func (m *market) NodeGroupForNode(node *apiv1.Node) (cloudprovider.NodeGroup, error) {
	for _, g := range m.groups {
		if g.Id() == m.byNode[node.Name] {
			return g, nil
		}
	}
	return nil, nil
}

func newMarket(ids ...string) (*market, map[string]*group) {
	m := &market{versions: map[string]string{}, byNode: map[string]string{}}
	groups := map[string]*group{}
	for _, id := range ids {
		g := &group{id: id, node: testutil.NewNode("template", "cpu", "32", "memory", "128Gi", "pods", "64", "nvidia.com/gpu", "1")}
		g.node.Labels[apiv1.LabelInstanceTypeStable] = "gn6v"
		m.groups, groups[id] = append(m.groups, g), g
	}
	return m, groups
}

type templatesFixture struct {
	*Templates
	market *market
	groups map[string]*group
	events testutil.RecordedEvents
}

func newTemplatesFixture(ids ...string) *templatesFixture {
	f := &templatesFixture{}
	f.market, f.groups = newMarket(ids...)
	f.Templates = New(f.market, &f.events)
	return f
}

func (f *templatesFixture) process(t *testing.T, ready []*apiv1.Node, daemonSets ...*appsv1.DaemonSet) map[string]*framework.NodeInfo {
	t.Helper()
	ctx := &cacontext.AutoscalingContext{CloudProvider: f.market}
	infos, err := f.Process(ctx, ready, daemonSets, taints.TaintConfig{}, testutil.Epoch)
	require.Nil(t, err)
	return infos
}

func daemonSet(name string, generation int64) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: generation},
		Spec: appsv1.DaemonSetSpec{Template: apiv1.PodTemplateSpec{Spec: apiv1.PodSpec{Containers: []apiv1.Container{{
			Name:      "c",
			Resources: apiv1.ResourceRequirements{Requests: apiv1.ResourceList{"cpu": resource.MustParse("1")}},
		}}}}},
	}
}

func TestTemplatesAreRememberedUntilSomethingChanges(t *testing.T) {
	const id = "asg/gn6v/z/spot"
	node := testutil.NewNode("n", "cpu", "31", "memory", "128Gi")
	node.Labels[apiv1.LabelInstanceTypeStable] = "gn6v"
	one := []*appsv1.DaemonSet{daemonSet("logs", 1), daemonSet("gpu", 1)}
	tests := map[string]struct {
		change func(f *templatesFixture)
		ready  []*apiv1.Node
		later  []*appsv1.DaemonSet
		builds int
	}{
		"nothing changed":                  {later: one, builds: 1},
		"DaemonSets come in another order": {later: []*appsv1.DaemonSet{one[1], one[0]}, builds: 1},
		"a DaemonSet changed":              {later: []*appsv1.DaemonSet{one[0], daemonSet("gpu", 2)}, builds: 2},
		"a DaemonSet is gone":              {later: one[:1], builds: 2},
		"the offering's template changed":  {change: func(f *templatesFixture) { f.market.versions[id] = "2" }, later: one, builds: 2},
		"a node has less than promised":    {ready: []*apiv1.Node{node}, later: one, builds: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newTemplatesFixture(id)
			f.market.byNode["n"] = id
			f.process(t, nil, one...)
			if test.change != nil {
				test.change(f)
			}
			info := f.process(t, test.ready, test.later...)[id]
			f.process(t, test.ready, test.later...)
			assert.Equal(t, test.builds, f.groups[id].builds)
			assert.Len(t, info.Pods(), len(test.later), "one pod of each DaemonSet")
		})
	}
}

func TestTemplateIsCutDownToWhatNodesHave(t *testing.T) {
	f := newTemplatesFixture("asg/gn6v/z1/spot", "asg/gn6v/z2/spot", "other/gn6v/z1/spot")
	small, smaller := testutil.NewNode("small", "cpu", "31", "memory", "120Gi", "pods", "64", "nvidia.com/gpu", "0"), testutil.NewNode("smaller", "cpu", "33", "memory", "110Gi", "pods", "64")
	for _, node := range []*apiv1.Node{small, smaller} {
		node.Labels[apiv1.LabelInstanceTypeStable] = "gn6v"
		f.market.byNode[node.Name] = "asg/gn6v/z1/spot"
	}
	f.process(t, []*apiv1.Node{small, smaller})
	infos := f.process(t, nil)
	for id, want := range map[string][3]string{
		"asg/gn6v/z1/spot":   {"31", "110Gi", "1"}, // of each the least; never more than the template says; never GPUs
		"asg/gn6v/z2/spot":   {"31", "110Gi", "1"}, // alike in all zones of the pool
		"other/gn6v/z1/spot": {"32", "128Gi", "1"}, // another pool has another kubelet configuration
	} {
		has := infos[id].Node().Status.Allocatable
		got := [3]string{has.Cpu().String(), has.Memory().String(), has.Name("nvidia.com/gpu", resource.DecimalSI).String()}
		assert.Equal(t, want, got, id)
	}
}

func TestNodesSayNothingAboutOtherTypesOfTheirPool(t *testing.T) {
	f := newTemplatesFixture("asg/gn6v/z/spot", "asg/gn7i/z/spot", "asg/gn6v/y/spot")
	f.market.byNode["n"] = "asg/gn6v/z/spot"
	infos := f.process(t, []*apiv1.Node{testutil.NewNode("n", "cpu", "30")})
	assert.EqualValues(t, 32, infos["asg/gn7i/z/spot"].Node().Status.Allocatable.Cpu().Value())
	assert.EqualValues(t, 30, infos["asg/gn6v/y/spot"].Node().Status.Allocatable.Cpu().Value(), "but about their type in other zones")
}

func TestTemplateOfAWholePoolIsCutDownToTheLeastOfItsNodes(t *testing.T) {
	f := newTemplatesFixture("asg/any/any/spot")
	delete(f.groups["asg/any/any/spot"].node.Labels, apiv1.LabelInstanceTypeStable)
	large, small := testutil.NewNode("large", "cpu", "31"), testutil.NewNode("small", "cpu", "30")
	large.Labels[apiv1.LabelInstanceTypeStable], small.Labels[apiv1.LabelInstanceTypeStable] = "gn7i", "gn6v"
	f.market.byNode = map[string]string{"large": "asg/any/any/spot", "small": "asg/any/any/spot"}
	for _, ready := range [][]*apiv1.Node{{large, small}, {small, large}} {
		info := f.process(t, ready)["asg/any/any/spot"]
		assert.EqualValues(t, 30, info.Node().Status.Allocatable.Cpu().Value())
	}
}

func TestTemplateThatFailsConcernsItsOfferingOnly(t *testing.T) {
	f := newTemplatesFixture("good", "bad")
	f.groups["bad"].err = errors.New("no such type")
	for range 3 {
		infos := f.process(t, nil)
		require.Len(t, infos, 2)
		assert.Zero(t, infos["bad"].ToScheduler().Allocatable.AllowedPodNumber, "nothing fits where nothing is known")
		assert.NotZero(t, infos["good"].ToScheduler().Allocatable.AllowedPodNumber)
	}
	require.Len(t, f.events, 1, "told once")
	assert.Contains(t, f.events[0], "Warning SpotTemplateFailed Cannot buy from bad:")

	f.groups["bad"].err = nil
	assert.NotZero(t, f.process(t, nil)["bad"].ToScheduler().Allocatable.AllowedPodNumber, "it recovers")

	f.groups["bad"].err, f.market.versions["bad"] = errors.New("throttled"), "2"
	assert.NotZero(t, f.process(t, nil)["bad"].ToScheduler().Allocatable.AllowedPodNumber, "the last good one serves on")
	assert.Len(t, f.events, 2, "another failure is told of")
}

func TestCoresMarkOnTemplatesDoesNotStay(t *testing.T) {
	f := newTemplatesFixture("g")
	info := f.process(t, nil)["g"]
	info.Node().Annotations = map[string]string{core.NodeUpcomingAnnotation: "true"}
	assert.NotContains(t, f.process(t, nil)["g"].Node().Annotations, core.NodeUpcomingAnnotation)
}

func TestTemplatesOfGoneOfferingsAreForgotten(t *testing.T) {
	f := newTemplatesFixture("a", "b")
	f.process(t, nil)
	f.market.groups = f.market.groups[:1]
	assert.Len(t, f.process(t, nil), 1)
	assert.Len(t, f.built, 1)
}

// BenchmarkTemplates shows the cost per loop of a thousand offerings that do not change.
func BenchmarkTemplates(b *testing.B) {
	var ids []string
	for i := range 1000 {
		ids = append(ids, fmt.Sprintf("asg-%d/gn6v/z/spot", i))
	}
	f := newTemplatesFixture(ids...)
	ctx := &cacontext.AutoscalingContext{CloudProvider: f.market}
	var daemonSets []*appsv1.DaemonSet
	for i := range 20 {
		daemonSets = append(daemonSets, daemonSet(fmt.Sprintf("ds-%d", i), 1))
	}
	began := time.Now()
	for b.Loop() {
		if _, err := f.Process(ctx, nil, daemonSets, taints.TaintConfig{}, began); err != nil {
			b.Fatal(err)
		}
	}
}
